"""A page to draw on: `python -m experiments.page`."""

import os

# Read when NumPy is loaded. Its factorisations are small here, and threads that wait for each other would take longer.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
