"""Test embeddings of an image and its mirror image together, an option of the encoders of images."""

import jax
import jax.numpy as jnp


def both_sides(images: jax.Array) -> jax.Array:
    """Images and, after them, their mirror images: [N, H, W, C] -> [2 N, H, W, C]."""
    return jnp.concatenate([images, images[:, :, ::-1]])


def mean_of_sides(embeddings: jax.Array) -> jax.Array:
    """The mean over each image and its mirror image: [2 N, D] -> [N, D]."""
    return embeddings.reshape(2, -1, embeddings.shape[-1]).mean(0)
