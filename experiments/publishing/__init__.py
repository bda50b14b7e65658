"""Published runs: their records, and the tables and pages that show them beside the paper."""
