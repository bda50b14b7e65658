"""The paper's encoder: four blocks of convolution, batch normalisation, ReLU and max-pooling."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from protojax.encoders import block, cpu
from protojax.encoders.block import MOMENTUM
from protojax.encoders.images import ImageEncoder

# Initialisations. 'uniform' is PyTorch's default at the time of the paper. The norm of a kernel does not change the
# output of a normalised convolution, but a kernel with a 2.4 times smaller norm than He initialisation changes its
# direction faster under Adam.
KERNEL_INITS = {
    'he_normal': nn.initializers.he_normal(),
    'uniform': nn.initializers.variance_scaling(1 / 3, 'fan_in', 'uniform'),  # in +-1 / sqrt(fan-in)
}
SCALE_INITS = {'ones': nn.initializers.ones, 'uniform': nn.initializers.uniform(1.0)}  # uniform in [0, 1]


class ConvBlock(nn.Module):
    """3x3 convolution, batch normalisation, ReLU, 2x2 max-pooling: [N, H, W, C] -> [N, H//2, W//2, filters].

    The running variance follows the biased variance of the batch. PyTorch's estimate is n / (n - 1) times as large,
    with n >= 3,240 in the paper's Omniglot episodes; this does not change the test accuracy of the bundled weights.
    """

    filters: int
    kernel_init: nn.initializers.Initializer
    scale_init: nn.initializers.Initializer
    kernels: bool

    @nn.compact
    def __call__(self, x, *, train, axis_name=None):
        # No bias in the convolution: the normalisation would remove it.
        kernel = self.param('kernel', self.kernel_init, (3, 3, x.shape[-1], self.filters))
        scale = self.param('scale', self.scale_init, (self.filters,))
        bias = self.param('bias', nn.initializers.zeros, (self.filters,))
        mean = self.variable('batch_stats', 'mean', jnp.zeros, (self.filters,))
        var = self.variable('batch_stats', 'var', jnp.ones, (self.filters,))

        steps = cpu.steps(x, kernel) if self.kernels else block.PLAIN
        running = None if train else block.Statistics(mean.value, var.value)
        x, batch = block.apply(x, kernel, scale, bias, running, axis_name=axis_name, steps=steps)
        if train and not self.is_initializing():
            mean.value = MOMENTUM * mean.value + (1 - MOMENTUM) * batch.mean
            var.value = MOMENTUM * var.value + (1 - MOMENTUM) * batch.var
        return x


class Conv4(ImageEncoder):
    """The paper's encoder: 28x28x1 -> 64 and 84x84x3 -> 1600 dimensions, [N, H, W, C] -> [N, D]."""

    filters: int = 64
    kernel_init: str = 'uniform'  # initialisation of the convolutions, a key of KERNEL_INITS
    scale_init: str = 'uniform'  # initialisation of the normalisations, a key of SCALE_INITS
    last_scale: float = 1.0  # factor of the initial scales of the last block
    kernels: bool = True  # use the CPU kernels if they support the shapes
    settings: ClassVar[tuple[str, ...]] = ('filters', *ImageEncoder.settings)

    def blocks(self) -> list[nn.Module]:
        kernel_init, scale_init = KERNEL_INITS[self.kernel_init], SCALE_INITS[self.scale_init]
        last_init = lambda *arguments: self.last_scale * scale_init(*arguments)  # noqa: E731
        inits = (scale_init, scale_init, scale_init, last_init)
        return [ConvBlock(self.filters, kernel_init, init, self.kernels) for init in inits]

    def pool(self, x: jax.Array) -> jax.Array:
        return x.reshape(x.shape[0], -1)
