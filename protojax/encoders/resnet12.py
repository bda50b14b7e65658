"""ResNet-12, the usual encoder of few-shot learning since 2018 (Mishra et al. 2018; Lee et al. 2019).

Without the DropBlock of some versions, because encoders draw no random numbers.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from protojax.encoders.block import EPSILON, MOMENTUM, max_pool
from protojax.encoders.images import ImageEncoder


class ResidualBlock(nn.Module):
    """Three 3x3 convolutions with a 1x1 shortcut, leaky ReLU, max-pooling: [N, H, W, C] -> [N, H//2, W//2, filters]."""

    filters: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, *, train, axis_name):
        init = nn.initializers.he_normal()
        convolution = partial(nn.Conv, self.filters, use_bias=False, dtype=self.dtype, kernel_init=init)
        options = {'momentum': MOMENTUM, 'epsilon': EPSILON, 'dtype': self.dtype, 'axis_name': axis_name}
        normalisation = partial(nn.BatchNorm, use_running_average=not train, **options)
        activation = partial(nn.leaky_relu, negative_slope=0.1)
        shortcut = normalisation()(convolution((1, 1))(x))
        for layer in range(3):
            x = normalisation()(convolution((3, 3))(x))
            x = activation(x if layer < 2 else x + shortcut)
        return max_pool(x)


class ResNet12(ImageEncoder):
    """Four residual blocks and global average pooling: [N, H, W, C] -> [N, widths[-1]].

    The usual widths are 64-128-256-512, or 64-160-320-640 for the wide version.
    """

    widths: Sequence[int] = (64, 128, 256, 512)
    settings: ClassVar[tuple[str, ...]] = ('widths', *ImageEncoder.settings)

    def blocks(self) -> list[nn.Module]:
        return [ResidualBlock(filters, self.dtype) for filters in self.widths]

    def pool(self, x: jax.Array) -> jax.Array:
        return x.mean((1, 2))
