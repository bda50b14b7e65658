"""Random changes of the drawings in training episodes, beyond the paper.

The paper makes new characters by turning drawings by quarter turns; `mirror` makes more of them in the same way, and
`redraw` makes new drawings of a character, as another hand might have done them.
"""

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates

SLANT, STRETCH, SHIFT = 0.25, 0.1, 2.0  # at most: shear of each axis, change of its scale, and pixels along it


def mirror(key, images, labels, *, way):
    """Half of the classes as their mirror images, all examples of a class alike: [N, H, W, C], [N] -> [N, H, W, C]."""
    mirrored = jax.random.bernoulli(key, 0.5, (way,))[labels]
    return jnp.where(mirrored[:, None, None, None], images[:, :, ::-1], images)


def redraw(key, images, labels, *, way):
    """Each image moved, stretched and slanted a little on its own; what comes in from outside is 0."""
    height, width = images.shape[1:3]
    y, x = jnp.meshgrid(jnp.arange(height) - (height - 1) / 2, jnp.arange(width) - (width - 1) / 2, indexing='ij')

    def redraw_one(amounts, image):  # by the place in the image that each pixel of the result is taken from
        (slant_y, slant_x), (stretch_y, stretch_x), (shift_y, shift_x) = amounts
        from_y = (1 + stretch_y) * y + slant_y * x + shift_y + (height - 1) / 2
        from_x = (1 + stretch_x) * x + slant_x * y + shift_x + (width - 1) / 2
        channel = lambda pixels: map_coordinates(pixels, (from_y, from_x), order=1)  # noqa: E731
        return jax.vmap(channel, in_axes=-1, out_axes=-1)(image)

    most = jnp.array([SLANT, STRETCH, SHIFT]).reshape(1, 3, 1)
    amounts = most * jax.random.uniform(key, (len(images), 3, 2), minval=-1, maxval=1)
    return jax.vmap(redraw_one)(amounts, images.astype(jnp.float32))


def both(key, images, labels, *, way):
    """New drawings of partly new characters."""
    mirror_key, redraw_key = jax.random.split(key)
    return redraw(redraw_key, mirror(mirror_key, images, labels, way=way), labels, way=way)


AUGMENTATIONS = {'none': None, 'mirror': mirror, 'redraw': redraw, 'both': both}
