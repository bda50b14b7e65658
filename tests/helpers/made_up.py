"""Made-up parameters, and classes of points for tests of figures."""

import math

import jax
import numpy as np

from experiments.drawing.style import DrawnClasses


def variables(init, seed=0):
    """Return parameters and statistics of the shapes that `init` gives, which takes long to compile."""
    rng = np.random.default_rng(seed)

    def made_up(leaf):
        kernel = rng.normal(size=leaf.shape) * math.sqrt(2 / max(1, math.prod(leaf.shape[:-1])))
        return np.asarray(kernel if leaf.ndim > 1 else rng.uniform(0.5, 1.5, leaf.shape), leaf.dtype)

    return jax.tree.map(made_up, jax.eval_shape(init, jax.random.key(0)))


def classes(count, items, dimensions=6, spread=1.0, seed=0):
    """Return DrawnClasses: `count` classes around random centres, with `items` points and noise images each."""
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(count, dimensions))
    points = (centres[:, None] + spread * rng.normal(size=(count, items, dimensions))).reshape(-1, dimensions)
    images = rng.integers(0, 256, (count * items, 5, 5, 1)).astype(np.uint8)
    return DrawnClasses(points, np.repeat(np.arange(count), items), tuple(f'class {k}' for k in range(count)), images)
