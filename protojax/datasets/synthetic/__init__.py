"""Stand-ins for the data sets, drawn by programs, for machines that have no data."""
