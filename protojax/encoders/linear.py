"""The linear maps of zero-shot learning."""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from protojax.distances import unit_length

MIDDLE_CROP = 0  # the place of the middle crop among the crops of an image, the one that is evaluated


class LinearMap(nn.Module):
    """One linear map of inputs less a mean [A] and over a scale, to unit length if asked: [N, A] -> [N, dimensions].

    Of inputs [N, crops, A] the middle crop is taken.
    """

    dimensions: int = 1024
    unit_length: bool = False
    mean: Sequence[float] = (0.0,)
    scale: float = 1.0
    start: float = 1.0  # times the usual deviation of the weights at the start; 0: all are zero
    item_shape: Sequence[int] | None = None
    settings: ClassVar[tuple[str, ...]] = ('dimensions', 'unit_length', 'mean', 'scale', 'item_shape')

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        x = x[:, MIDDLE_CROP] if x.ndim == 3 else x
        x = (x.astype(jnp.float32) - jnp.asarray(self.mean, jnp.float32).reshape(1, -1)) / self.scale
        usual = nn.initializers.lecun_normal()
        x = nn.Dense(self.dimensions, kernel_init=lambda *args: self.start * usual(*args))(x)
        if self.unit_length:
            x = unit_length(x)
        return x
