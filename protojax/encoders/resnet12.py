"""ResNet-12, the encoder that most work on few-shot learning has used since (Mishra et al. 2018; Lee et al. 2019).

Without the DropBlock of some versions, as encoders draw no random numbers.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from protojax.encoders.block import EPSILON, MOMENTUM, max_pool
from protojax.encoders.pixels import scaled_pixels
from protojax.encoders.sphere import Sphere


class ResidualBlock(nn.Module):
    """Three 3x3 convolutions beside a 1x1 one, leaky ReLU, max-pool: [N, H, W, C] -> [N, H//2, W//2, filters]."""

    filters: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, *, train, axis_name):
        convolution = partial(
            nn.Conv, self.filters, use_bias=False, dtype=self.dtype, kernel_init=nn.initializers.he_normal()
        )
        normalisation = partial(
            nn.BatchNorm,
            use_running_average=not train,
            momentum=MOMENTUM,
            epsilon=EPSILON,
            dtype=self.dtype,
            axis_name=None if self.is_initializing() else axis_name,
        )
        activation = partial(nn.leaky_relu, negative_slope=0.1)
        shortcut = normalisation()(convolution((1, 1))(x))
        for layer in range(3):
            x = normalisation()(convolution((3, 3))(x))
            x = activation(x if layer < 2 else x + shortcut)
        return max_pool(x)


class ResNet12(nn.Module):
    """Four residual blocks and the mean over the image: [N, H, W, C] -> [N, widths[-1]].

    The usual widths are 64-128-256-512, or 64-160-320-640 for the wide version. Images are uint8, or floats from 0 to
    255, which are scaled to 0-1 and then to the given mean and deviation of each channel.
    """

    widths: Sequence[int] = (64, 128, 256, 512)
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    item_shape: Sequence[int] | None = None
    two_sided: bool = False  # whether test embeddings are means over an image and its mirror image
    sphere: bool = False  # whether test embeddings lie on a sphere about their mean
    scale: float = 1.0  # of the embeddings
    dtype: jnp.dtype = jnp.float32  # of the activations; parameters, statistics and embeddings stay float32
    settings: ClassVar[tuple[str, ...]] = ('widths', 'mean', 'std', 'item_shape', 'two_sided', 'sphere', 'scale')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        blocks = [ResidualBlock(filters, self.dtype) for filters in self.widths]

        def embed(images):
            x = scaled_pixels(images, self.mean, self.std, self.dtype)
            for apply_block in blocks:
                x = apply_block(x, train=train, axis_name=axis_name)
            if 0 in x.shape[1:3]:
                raise ValueError(f'images of shape {images.shape[1:]} are too small for {len(blocks)} blocks')
            return x.mean((1, 2)).astype(jnp.promote_types(self.dtype, jnp.float32))

        x = embed(images)
        if self.two_sided and not train:
            x = (x + embed(images[:, :, ::-1])) / 2
        if self.sphere:
            x = Sphere()(x, train=train, axis_name=axis_name)
        return self.scale * x
