"""Charts, plots of runs, and the paper's figures."""
