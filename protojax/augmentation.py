"""Augmentations: random changes of the items of a training episode, on the device.

The paper has two: rotations of Omniglot by 90 degrees, which create new classes when the data are loaded, and the
random crop of zero-shot learning. The other augmentations are additions.
"""

from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array


class Augmentation(Protocol):
    """Function of the items of an episode and their labels in 0 .. way - 1: [N, ...], [N] -> [N, ...]."""

    def __call__(self, key: Array, items: Array, labels: Array, *, way: int) -> Array: ...


def apply(augmentations: Sequence[Augmentation], key: Array, items: Array, labels: Array, *, way: int) -> Array:
    """Apply the augmentations in order, each with a separate key: [N, ...], [N] -> [N, ...]."""
    for number, augment in enumerate(augmentations, 1):
        items = augment(jax.random.fold_in(key, number), items, labels, way=way)
    return items


def random_crop(key: Array, items: Array, labels: Array, *, way: int) -> Array:
    """Select a random crop of each item: [N, crops, D] -> [N, 1, D]."""
    return jnp.take_along_axis(items, jax.random.randint(key, (items.shape[0], 1, 1), 0, items.shape[1]), 1)


def mirror(key: Array, images: Array, labels: Array, *, way: int) -> Array:
    """Mirror all images of a class with probability 1/2: [N, H, W, C]."""
    mirrored = jax.random.bernoulli(key, 0.5, (way,))[labels]
    return jnp.where(mirrored[:, None, None, None], images[:, :, ::-1], images)


def flip(key: Array, images: Array, labels: Array, *, way: int) -> Array:
    """Mirror each image with probability 1/2: [N, H, W, C]."""
    flipped = jax.random.bernoulli(key, 0.5, (len(images), 1, 1, 1))
    return jnp.where(flipped, images[:, :, ::-1], images)


def shift(key: Array, images: Array, labels: Array, *, way: int, pixels: int) -> Array:
    """Shift each image by up to `pixels` pixels along each axis, zero-padded: [N, H, W, C]."""
    # Integer shifts only: interpolation would blur training images but not test images.
    padded = jnp.pad(images, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)))
    corners = jax.random.randint(key, (len(images), 2), 0, 2 * pixels + 1)
    cut = lambda image, corner: jax.lax.dynamic_slice(image, (*corner, 0), images.shape[1:])  # noqa: E731
    return jax.vmap(cut)(padded, corners)


def jitter(key: Array, images: Array, labels: Array, *, way: int, strength: float) -> Array:
    """Multiply brightness, contrast and saturation of each image by factors in 1 +- strength: [N, H, W, C].

    The result is float, clipped to 0..255.
    """
    low, high = 1 - strength, 1 + strength
    brightness, contrast, saturation = jax.random.uniform(key, (3, len(images), 1, 1, 1), minval=low, maxval=high)
    images = brightness * images
    images = contrast * images + (1 - contrast) * images.mean((1, 2, 3), keepdims=True)
    images = saturation * images + (1 - saturation) * images.mean(3, keepdims=True)
    return jnp.clip(images, 0, 255)
