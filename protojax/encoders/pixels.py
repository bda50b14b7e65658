"""What encoders of images have in common: pixels of a sensible size, and mirror images beside them at test."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp


def scaled_pixels(images: jax.Array, mean: Sequence[float], std: Sequence[float], dtype: jnp.dtype) -> jax.Array:
    """Pixels scaled to 0-1, then less the mean and over the deviation of each channel: [N, H, W, C]."""
    if images.ndim != 4:
        raise ValueError(f'images of shape {images.shape}, not [N, H, W, C]')
    mean, std = (jnp.asarray(v, jnp.float32).reshape(1, 1, 1, -1) for v in (mean, std))
    return ((images / 255 - mean) / std).astype(dtype)


def both_sides(images: jax.Array) -> jax.Array:
    """Images and, after them, their mirror images, for test embeddings of both: [N, H, W, C] -> [2 N, H, W, C]."""
    return jnp.concatenate([images, images[:, :, ::-1]])


def mean_of_sides(embeddings: jax.Array) -> jax.Array:
    """The mean over each image and its mirror image: [2 N, D] -> [N, D]."""
    return embeddings.reshape(2, -1, embeddings.shape[-1]).mean(0)
