"""Browser demo: `python -m experiments.page`."""

import os

# Read when NumPy is imported. Its factorisations are small here, and threads would only wait for each other.
os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
