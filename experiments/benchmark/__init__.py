"""Speed and memory of protojax beside textbook Flax and PyTorch: `python -m experiments.benchmark`."""
