"""The paper's encoder: four blocks of a convolution, batch normalisation, ReLU and max-pooling."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from protojax.encoders import block, cpu
from protojax.encoders.block import MOMENTUM
from protojax.encoders.pixels import scaled_pixels
from protojax.encoders.sphere import Sphere

# How parameters start. 'uniform' is what PyTorch did when the paper was written. The size of a kernel does not change
# what a normalised convolution computes, but one that is 2.4 times smaller than by He's rule turns further by each step
# of Adam.
KERNEL_INITS = {
    'he_normal': nn.initializers.he_normal(),
    'uniform': nn.initializers.variance_scaling(1 / 3, 'fan_in', 'uniform'),  # in +-1 / sqrt(fan-in)
}
SCALE_INITS = {'ones': nn.initializers.ones, 'uniform': nn.initializers.uniform(1.0)}  # the latter in [0, 1]


class ConvBlock(nn.Module):
    """3x3 convolution, batch normalisation, ReLU, 2x2 max-pool: [N, H, W, C] -> [N, H//2, W//2, filters].

    The running variance follows the variance of the batch, a mean over its n values. PyTorch's is n / (n - 1) times as
    large; n is 3,240 at least in the paper's episodes on Omniglot, and with that factor the accuracy of the weights
    that come with protojax stays the same in all digits over 2,000 test episodes.
    """

    filters: int
    kernel_init: nn.initializers.Initializer
    scale_init: nn.initializers.Initializer
    kernels: bool

    @nn.compact
    def __call__(self, x, *, train, axis_name=None):
        # No bias in the convolution: the normalisation would take it away again.
        kernel = self.param('kernel', self.kernel_init, (3, 3, x.shape[-1], self.filters))
        scale = self.param('scale', self.scale_init, (self.filters,))
        bias = self.param('bias', nn.initializers.zeros, (self.filters,))
        mean = self.variable('batch_stats', 'mean', jnp.zeros, (self.filters,))
        var = self.variable('batch_stats', 'var', jnp.ones, (self.filters,))

        steps = cpu.steps(x, kernel) if self.kernels else block.PLAIN
        if not train:
            statistics = block.BlockStatistics(mean.value, var.value)
            return block.fixed_block(x, kernel, scale, bias, statistics, steps=steps)
        x, batch = block.batch_block(x, kernel, scale, bias, axis_name=axis_name, steps=steps)
        if not self.is_initializing():
            mean.value = MOMENTUM * mean.value + (1 - MOMENTUM) * batch.mean
            var.value = MOMENTUM * var.value + (1 - MOMENTUM) * batch.var
        return x


class Conv4(nn.Module):
    """Four blocks on uint8 or 0-255 images: 28x28x1 -> 64 and 84x84x3 -> 1600 dimensions, [N, H, W, C] -> [N, D].

    Pixels are scaled to 0-1, then to the given mean and deviation of each channel.
    """

    filters: int = 64
    kernel_init: str = 'uniform'  # of the convolutions, by KERNEL_INITS
    scale_init: str = 'uniform'  # of the batch norms, by SCALE_INITS
    last_scale: float = 1.0  # factor of the initial scales of the last block
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    item_shape: Sequence[int] | None = None
    two_sided: bool = False  # whether test embeddings are means over an image and its mirror image
    sphere: bool = False  # whether test embeddings lie on a sphere about their mean
    scale: float = 1.0  # of the embeddings; takes a temperature of squared distances into the encoder
    kernels: bool = True  # use the CPU kernels where they apply
    dtype: jnp.dtype = jnp.float32  # of the activations; parameters, statistics and embeddings stay float32
    settings: ClassVar[tuple[str, ...]] = ('filters', 'mean', 'std', 'item_shape', 'two_sided', 'sphere', 'scale')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        kernel_init, scale_init = KERNEL_INITS[self.kernel_init], SCALE_INITS[self.scale_init]
        scales = [partial(_scaled_start, scale_init, factor) for factor in (1.0, 1.0, 1.0, self.last_scale)]
        blocks = [ConvBlock(self.filters, kernel_init, start, self.kernels) for start in scales]

        def embed(images):
            x = scaled_pixels(images, self.mean, self.std, self.dtype)
            for apply_block in blocks:
                x = apply_block(x, train=train, axis_name=axis_name)
            return x.reshape(x.shape[0], -1).astype(jnp.promote_types(self.dtype, jnp.float32))

        x = embed(images)
        if self.two_sided and not train:
            x = (x + embed(images[:, :, ::-1])) / 2
        if self.sphere:
            x = Sphere()(x, train=train, axis_name=axis_name)
        return self.scale * x


def _scaled_start(init, factor, *arguments):
    return factor * init(*arguments)
