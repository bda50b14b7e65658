"""Classes of points that are made up, for tests of figures."""

import numpy as np

from experiments.reporting.drawing import DrawnClasses


def classes(count, items, dimensions=6, spread=1.0, seed=0):
    """DrawnClasses: so many classes around centres of their own, each with so many items and images of noise."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(count, dimensions))
    points = (centres[:, None] + spread * rng.normal(size=(count, items, dimensions))).reshape(-1, dimensions)
    images = rng.integers(0, 256, (count * items, 5, 5, 1)).astype(np.uint8)
    return DrawnClasses(points, np.repeat(np.arange(count), items), tuple(f'class {k}' for k in range(count)), images)
