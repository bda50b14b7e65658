"""The linear maps of zero-shot learning."""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from protojax.distances import unit_length

MIDDLE_CROP = 0  # index of the middle crop among the crops of an image; the one that is evaluated


class LinearMap(nn.Module):
    """Linear map of standardised inputs, optionally to unit norm: [N, A] -> [N, dimensions].

    For inputs [N, crops, A], the middle crop is used. If `whitened`, a constant matrix in batch_stats comes first.
    """

    dimensions: int = 1024
    unit_length: bool = False
    mean: Sequence[float] = (0.0,)  # mean of the inputs: [A], or one for all
    scale: float = 1.0  # divides the centred inputs
    start: float = 1.0  # factor of LeCun initialisation; 0 starts from zero weights
    item_shape: Sequence[int] | None = None
    root: bool = False  # take square roots of the inputs, scaled to unit norm
    whitened: bool = False  # multiply standardised inputs by `whitening` [A, A]
    settings: ClassVar = ('dimensions', 'unit_length', 'mean', 'scale', 'item_shape', 'root', 'whitened')

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        x = x[:, MIDDLE_CROP] if x.ndim == 3 else x
        x = rooted(x) if self.root else x.astype(jnp.float32)
        x = (x - jnp.asarray(self.mean, jnp.float32).reshape(1, -1)) / self.scale
        if self.whitened:
            x = x @ self.variable('batch_stats', 'whitening', jnp.eye, x.shape[1]).value
        lecun = nn.initializers.lecun_normal()
        x = nn.Dense(self.dimensions, kernel_init=lambda *args: self.start * lecun(*args))(x)
        return unit_length(x) if self.unit_length else x


def rooted(x: jax.Array) -> jax.Array:
    """Take square roots of absolute values, with their signs, and scale to unit norm: [N, A] -> [N, A]."""
    x = jnp.asarray(x, jnp.float32)
    return unit_length(jnp.sign(x) * jnp.sqrt(jnp.abs(x)))
