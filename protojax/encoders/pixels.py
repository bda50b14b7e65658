"""What encoders of images have in common: pixels from 0 to 255 in, floats of a sensible size out."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


def scaled_pixels(images: jax.Array, mean: Sequence[float], std: Sequence[float], dtype: jnp.dtype) -> jax.Array:
    """Pixels scaled to 0-1, then less the mean and over the deviation of each channel: [N, H, W, C]."""
    if images.ndim != 4:
        raise ValueError(f'images of shape {images.shape}, not [N, H, W, C]')
    mean, std = (jnp.asarray(v, jnp.float32).reshape(1, 1, 1, -1) for v in (mean, std))
    return ((images / 255 - mean) / std).astype(dtype)
