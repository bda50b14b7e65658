"""Made-up classes of points, for tests of figures."""

import numpy as np

from experiments.drawing.style import DrawnClasses


def classes(count, items, dimensions=6, spread=1.0, seed=0):
    """Return DrawnClasses: `count` classes around random centres, with `items` points and noise images each."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(count, dimensions))
    points = (centres[:, None] + spread * rng.normal(size=(count, items, dimensions))).reshape(-1, dimensions)
    images = rng.integers(0, 256, (count * items, 5, 5, 1)).astype(np.uint8)
    return DrawnClasses(points, np.repeat(np.arange(count), items), tuple(f'class {k}' for k in range(count)), images)
