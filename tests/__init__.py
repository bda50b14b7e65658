"""The tests, and tools for developers."""

import gc

gc.set_threshold(100_000, 50, 1000)  # imports create many objects and little garbage
