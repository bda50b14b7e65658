"""More to learn from, beyond the paper, which makes new characters by turning drawings by quarter turns.

A change is a function `change(key, images, labels, *, way)` of an episode's images: [N, H, W, C], [N] -> [N, H, W, C].
"""

import jax
import jax.numpy as jnp


def mirror(key, images, labels, *, way):
    """Each class with a chance of one half as its mirror image, all its examples alike."""
    mirrored = jax.random.bernoulli(key, 0.5, (way,))[labels]
    return jnp.where(mirrored[:, None, None, None], images[:, :, ::-1], images)


def shift(key, images, labels, *, way, pixels):
    """Each image moved by up to so many whole pixels along each axis; what comes in from outside is 0."""
    # By whole pixels, as anything finer would blur training images alone.
    padded = jnp.pad(images, ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0)))
    corners = jax.random.randint(key, (len(images), 2), 0, 2 * pixels + 1)
    cut = lambda image, corner: jax.lax.dynamic_slice(image, (*corner, 0), images.shape[1:])  # noqa: E731
    return jax.vmap(cut)(padded, corners)
