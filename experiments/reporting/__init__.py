"""Results of runs beside the paper's figures."""
