"""A page to draw on: `python -m experiments.page`."""
