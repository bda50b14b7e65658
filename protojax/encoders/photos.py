"""EfficientNet-Lite, an encoder for photographs (Tan and Le 2019); `protojax.photo_weights` has its weights.

Batch normalisation is folded into the convolutions, so that they, their biases and clipped ReLUs are all there is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import lax

from protojax.distances import unit_length

# The stages of the smallest network: repeats, kernel size, stride of the first block, expansion, channels.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
          (1, 3, 1, 6, 320))  # fmt: skip
STEM, HEAD = 32, 1280  # channels of the first and last convolution, in networks of all sizes
TORCH_EPSILON = 1e-3  # of the batch normalisation


class Depthwise(nn.Module):
    """A convolution of each channel by itself: [N, H, W, C] -> [N, H / stride, W / stride, C]."""

    size: int
    stride: int
    products: bool

    @nn.compact
    def __call__(self, x):
        kernel = self.param('kernel', nn.initializers.he_normal(), (self.size, self.size, 1, x.shape[-1]))
        bias = self.param('bias', nn.initializers.zeros, (x.shape[-1],))
        kernel, bias = kernel.astype(x.dtype), bias.astype(x.dtype)
        if self.products:  # on CPU, XLA's own convolution of single channels is 2 to 30 times slower
            x = lax.platform_dependent(x, kernel, cpu=self.by_products, default=self.by_convolution)
        else:
            x = self.by_convolution(x, kernel)
        return x + bias.reshape(1, 1, 1, -1)

    def by_convolution(self, x, kernel):
        axes = ('NHWC', 'HWIO', 'NHWC')
        return lax.conv_general_dilated(
            x, kernel, (self.stride,) * 2, 'SAME', dimension_numbers=axes, feature_group_count=x.shape[-1]
        )

    def by_products(self, x, kernel):
        """The same as a sum of products, one for each place of the kernel, which compile to one loop."""
        strides = (self.stride,) * 2
        pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], strides, 'SAME')
        height, width = (-(-size // self.stride) for size in x.shape[1:3])
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
        total = jnp.zeros((x.shape[0], height, width, x.shape[3]), x.dtype)
        for i in range(self.size):
            for j in range(self.size):
                rows = slice(i, i + (height - 1) * self.stride + 1, self.stride)
                columns = slice(j, j + (width - 1) * self.stride + 1, self.stride)
                total = total + x[:, rows, columns] * kernel[i, j][None, None]
        return total


class Block(nn.Module):
    """Inverted residual block: [N, H, W, C] -> [N, H / stride, W / stride, channels].

    1x1 expansion, depthwise convolution, 1x1 projection, and a skip connection where the shape stays.
    """

    size: int
    stride: int
    expansion: int
    channels: int
    products: bool
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        y, wide = x, x.shape[-1] * self.expansion
        if self.expansion > 1:
            y = _relu6(nn.Conv(wide, (1, 1), dtype=self.dtype, name='expand')(y))
        y = _relu6(Depthwise(self.size, self.stride, self.products, name='depthwise')(y))
        y = nn.Conv(self.channels, (1, 1), dtype=self.dtype, name='project')(y)
        return x + y if x.shape == y.shape else y


class EfficientNetLite(nn.Module):
    """Features of colour images, uint8 or floats from 0 to 255: [N, H, W, 3] -> [N, 1280].

    All have the same length. With a length of 4, squared distances need no temperature: the one of lowest loss is
    between 0.7 and 1.8 in episodes of 5 to 8 classes and 1 to 5 shots, of birds and of miniImageNet.
    """

    width: float = 1.0  # times the channels of the stages
    depth: float = 1.0  # times the repeats of the stages
    crop: float | None = 0.875  # as the weights were tested
    item_shape: Sequence[int] | None = (224, 224, 3)
    scale: float = 4.0  # length of the embeddings
    products: bool = True  # on CPU, convolve single channels by the form that is faster there
    dtype: jnp.dtype = jnp.float32  # of the activations; parameters and embeddings stay float32
    settings: ClassVar[tuple[str, ...]] = ('width', 'depth', 'crop', 'item_shape', 'scale')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = ((images.astype(jnp.float32) - 127) / 128).astype(self.dtype)
        x = _relu6(nn.Conv(STEM, (3, 3), (2, 2), dtype=self.dtype, name='stem')(x))
        for number, block in enumerate(photo_blocks(self.width, self.depth)):
            x = Block(*block, self.products, self.dtype, name=f'block{number}')(x)
        x = _relu6(nn.Conv(HEAD, (1, 1), dtype=self.dtype, name='head')(x))
        x = x.astype(jnp.promote_types(self.dtype, jnp.float32)).mean((1, 2))
        return self.scale * unit_length(x)


def photo_blocks(width: float, depth: float) -> list[tuple[int, int, int, int]]:
    """Kernel size, stride, expansion and channels of every block."""
    found = []
    for number, (repeats, size, stride, expansion, channels) in enumerate(STAGES):
        ends = number in (0, len(STAGES) - 1)
        repeats = repeats if ends else math.ceil(depth * repeats)
        block = size, stride, expansion, _in_eights(width * channels)
        found += [block, *[(size, 1, *block[2:])] * (repeats - 1)]
    return found


def photo_params_from_torch(encoder: EfficientNetLite, tensors: Mapping[str, np.ndarray]) -> dict:
    """The encoder's parameters from the state of the same network in PyTorch, whose normalisations are folded in."""

    def convolution(weight, norm):
        """Kernel and bias of a convolution that is followed by a normalisation with fixed statistics."""
        scale = tensors[f'{norm}.weight'] / np.sqrt(tensors[f'{norm}.running_var'] + TORCH_EPSILON)
        bias = tensors[f'{norm}.bias'] - scale * tensors[f'{norm}.running_mean']
        kernel = tensors[f'{weight}.weight'].transpose(2, 3, 1, 0) * scale  # out, in, h, w -> h, w, in, out
        return {'kernel': kernel, 'bias': bias}

    params = {'stem': convolution('_conv_stem', '_bn0'), 'head': convolution('_conv_head', '_bn1')}
    for number, (_, _, expansion, _) in enumerate(photo_blocks(encoder.width, encoder.depth)):
        at = f'_blocks.{number}.'
        params[f'block{number}'] = {
            **({'expand': convolution(f'{at}_expand_conv', f'{at}_bn0')} if expansion > 1 else {}),
            'depthwise': convolution(f'{at}_depthwise_conv', f'{at}_bn1'),
            'project': convolution(f'{at}_project_conv', f'{at}_bn2'),
        }
    return params


def _in_eights(channels):
    """The nearest multiple of eight that is not more than a tenth less."""
    nearest = int(channels + 4) // 8 * 8
    return nearest if nearest >= 0.9 * channels else nearest + 8


def _relu6(x):
    return jnp.clip(x, 0, 6)
