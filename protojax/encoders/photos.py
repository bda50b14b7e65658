"""EfficientNet-Lite, an encoder for photographs (Tan and Le 2019); its weights are in `protojax.photo_weights`.

Batch normalisation is folded into the convolutions, so the network consists of convolutions, biases and clipped ReLUs.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from protojax.distances import unit_length
from protojax.encoders import cpu

# Stages of the smallest network: repeats, kernel size, stride of the first block, expansion, channels.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
          (1, 3, 1, 6, 320))  # fmt: skip
STEM, HEAD = 32, 1280  # channels of the first and last convolution, for all sizes
TORCH_EPSILON = 1e-3  # of the batch normalisation


class Layer(nn.Module):
    """Kernel and bias of a convolution."""

    shape: tuple[int, int, int, int]  # height, width, input channels per group, output channels

    @nn.compact
    def __call__(self):
        kernel = self.param('kernel', nn.initializers.he_normal(), self.shape)
        return kernel, self.param('bias', nn.initializers.zeros, self.shape[-1:])


class Block(nn.Module):
    """Inverted residual block: [N, H, W, C] -> [N, H / stride, W / stride, channels].

    1x1 expansion, depthwise convolution, 1x1 projection, and a skip connection if the shape is unchanged. `expand` is
    the expansion of a block that does not have one among its parameters.
    """

    size: int
    stride: int
    expansion: int
    channels: int

    @nn.compact
    def __call__(self, x, run, expand=None):
        if self.expansion > 1:
            expand = Layer((1, 1, x.shape[-1], x.shape[-1] * self.expansion), name='expand')()
        wide = x.shape[-1] if expand is None else expand[1].size
        depthwise = Layer((self.size, self.size, 1, wide), name='depthwise')()
        return run(x, expand, depthwise, Layer((1, 1, wide, self.channels), name='project')(), self.stride)


def _run_block(x, expand, depthwise, project, stride, products=False):
    """Run a block in plain JAX, given the kernels and biases of its layers."""
    y = x if expand is None else _relu6(_convolve(x, *expand))
    convolve = functools.partial(_convolve, stride=stride, groups=y.shape[-1])
    if products:  # on CPUs, XLA's depthwise convolution is 2 to 30 times slower
        by_products = functools.partial(_sum_of_products, stride=stride)
        y = lax.platform_dependent(y, *depthwise, cpu=by_products, default=convolve)
    else:
        y = convolve(y, *depthwise)
    y = _convolve(_relu6(y), *project)
    return x + y if x.shape == y.shape else y


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _run_kernel(x, expand, depthwise, project, stride):
    """Run a block by the C++ kernel; gradients are computed in plain JAX."""
    return cpu.inverted_block(x, expand, depthwise, project, stride)


def _gradient(stride, arguments, gradient):
    return jax.vjp(functools.partial(_run_block, stride=stride, products=True), *arguments)[1](gradient)


_run_kernel.defvjp(lambda *arguments: (_run_kernel(*arguments), arguments[:4]), _gradient)


class EfficientNetLite(nn.Module):
    """Features of colour images, uint8 or floats in 0..255, with a common norm: [N, H, W, 3] -> [N, 1280].

    With a norm of 4, squared distances need no temperature: the optimal temperature is between 0.7 and 1.8 in episodes
    with 5 to 8 classes and 1 to 5 shots of birds and of miniImageNet.
    """

    width: float = 1.0  # factor of the channels of the stages
    depth: float = 1.0  # factor of the repeats of the stages
    crop: float | None = 0.875  # central crop of images, as in the evaluation of the weights
    item_shape: Sequence[int] | None = (224, 224, 3)
    scale: float = 4.0  # norm of the embeddings
    kernels: bool = True  # use the C++ kernels on CPUs
    products: bool = True  # without kernels, compute depthwise convolutions on CPUs as sums of products
    dtype: jnp.dtype = jnp.float32  # type of the activations; parameters and embeddings are float32
    settings: ClassVar[tuple[str, ...]] = ('width', 'depth', 'crop', 'item_shape', 'scale')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = ((images.astype(jnp.float32) - 127) / 128).astype(self.dtype)
        stem = Layer((3, 3, 3, STEM), name='stem')()
        run, expand = functools.partial(_run_block, products=self.products), None
        if self.kernels and cpu.supports_blocks(x, [block[-1] for block in layers(self.width, self.depth)]):
            run, expand = _run_kernel, (stem[0].reshape(1, 1, -1, STEM), stem[1])
            x = _patches(x)  # the first convolution becomes the expansion of the first block
        else:
            x = _relu6(_convolve(x, *stem, stride=2))
        for number, block in enumerate(layers(self.width, self.depth)):
            x = Block(*block, name=f'block{number}')(x, run, None if number else expand)
        x = _relu6(_convolve(x, *Layer((1, 1, x.shape[-1], HEAD), name='head')()))
        x = x.astype(jnp.promote_types(self.dtype, jnp.float32)).mean((1, 2))
        return self.scale * unit_length(x)


def layers(width: float, depth: float) -> list[tuple[int, int, int, int]]:
    """Return kernel size, stride, expansion and channels of every block."""
    found = []
    for number, (repeats, size, stride, expansion, channels) in enumerate(STAGES):
        ends = number in (0, len(STAGES) - 1)
        repeats = repeats if ends else math.ceil(depth * repeats)
        block = size, stride, expansion, _in_eights(width * channels)
        found += [block, *[(size, 1, *block[2:])] * (repeats - 1)]
    return found


def params_from_torch(encoder: EfficientNetLite, tensors: Mapping[str, np.ndarray]) -> dict:
    """Convert the state of the same network in PyTorch to parameters, folding in the normalisations."""

    def convolution(weight, norm):
        """Fold a normalisation with fixed statistics into the convolution before it."""
        scale = tensors[f'{norm}.weight'] / np.sqrt(tensors[f'{norm}.running_var'] + TORCH_EPSILON)
        bias = tensors[f'{norm}.bias'] - scale * tensors[f'{norm}.running_mean']
        kernel = tensors[f'{weight}.weight'].transpose(2, 3, 1, 0) * scale  # out, in, h, w -> h, w, in, out
        return {'kernel': kernel, 'bias': bias}

    params = {'stem': convolution('_conv_stem', '_bn0'), 'head': convolution('_conv_head', '_bn1')}
    for number, (_, _, expansion, _) in enumerate(layers(encoder.width, encoder.depth)):
        at = f'_blocks.{number}.'
        params[f'block{number}'] = {
            **({'expand': convolution(f'{at}_expand_conv', f'{at}_bn0')} if expansion > 1 else {}),
            'depthwise': convolution(f'{at}_depthwise_conv', f'{at}_bn1'),
            'project': convolution(f'{at}_project_conv', f'{at}_bn2'),
        }
    return params


def _in_eights(channels):
    """Round to the nearest multiple of eight that is at least 90 % of the number of channels."""
    nearest = int(channels + 4) // 8 * 8
    return nearest if nearest >= 0.9 * channels else nearest + 8


def _relu6(x):
    return jnp.clip(x, 0, 6)


def _convolve(x, kernel, bias, stride=1, groups=1):
    kernel, axes = kernel.astype(x.dtype), ('NHWC', 'HWIO', 'NHWC')
    options = {'dimension_numbers': axes, 'feature_group_count': groups}
    x = lax.conv_general_dilated(x, kernel, (stride, stride), 'SAME', **options)
    return x + bias.astype(x.dtype).reshape(1, 1, 1, -1)


def _sum_of_products(x, kernel, bias, stride):
    """Compute a depthwise convolution as a sum of products, one per kernel element; XLA fuses them to one loop."""
    kernel, bias = kernel.astype(x.dtype), bias.astype(x.dtype)
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], (stride, stride), 'SAME')
    height, width = (-(-size // stride) for size in x.shape[1:3])
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    total = jnp.broadcast_to(bias.reshape(1, 1, 1, -1), (x.shape[0], height, width, x.shape[3]))
    for i, j in np.ndindex(kernel.shape[:2]):
        rows = slice(i, i + (height - 1) * stride + 1, stride)
        columns = slice(j, j + (width - 1) * stride + 1, stride)
        total = total + x[:, rows, columns] * kernel[i, j][None, None]
    return total


def _patches(x):
    """Extract patches of 3x3 pixels around every second pixel: [N, H, W, C] -> [N, H / 2, W / 2, 9 C]."""
    pads = lax.padtype_to_pads(x.shape[1:3], (3, 3), (2, 2), 'SAME')
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    (n, height, width, channels), pairs = x.shape, (*x.shape[:2], x.shape[2] // 2, 2 * x.shape[3])
    x = x.reshape(n, height, width * channels)  # copying whole rows of a patch is faster than nine single pixels
    x = jnp.concatenate([x[..., :-channels].reshape(pairs), x[..., channels:].reshape(pairs)[..., channels:]], -1)
    return jnp.concatenate([x[:, i : height - 2 + i : 2] for i in range(3)], -1)
