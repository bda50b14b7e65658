"""The convolution block of the paper's encoder as pure functions.

A block is a 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling. The textbook order computes four times more
than it must, so both functions below reorder it without changing the function:

- Pooling comes before the affine part of the normalisation. An increasing function commutes with the maximum; where the
  scale is negative it would decrease, so its sign is folded into the convolution kernel first.
- Pooling is a maximum over a reshaped array. The gradient of `reduce_window` is very slow on CPU, and ties, which this
  form shares between the winners, only matter at zero, where the ReLU stops the gradient.
- Mean and variance come from one pass: the mean of y and of y * y.
- With few input channels (the first block), the moments of the convolution follow from the mean and second moment of
  the 3x3 patches, so scale and shift are folded into the kernel before the convolution runs.

Axis letters: N images, H height, W width, C input channels, F filters.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

EPSILON = 1e-5  # as in the official code


class Statistics(NamedTuple):
    """Mean and variance of the convolution's output over a batch, per filter."""

    mean: jax.Array  # [F]
    var: jax.Array  # [F]


def batch_block(x, kernel, scale, bias, *, axis_name=None):
    """Block normalised by its own batch: [N, H, W, C], [3, 3, C, F], [F], [F] -> [N, H//2, W//2, F], Statistics.

    With `axis_name` the batch is spread over the devices of that axis and the statistics are those of all of it.
    """
    if 9 * x.shape[-1] < kernel.shape[-1]:
        statistics = patch_statistics(x, kernel, axis_name=axis_name)
        return fixed_block(x, kernel, scale, bias, statistics), statistics
    sign = jnp.where(scale < 0, -1, 1).astype(scale.dtype)
    y = convolution(x, kernel * per_filter(sign))
    statistics = _statistics(jnp.mean(y, (0, 1, 2)), jnp.mean(y * y, (0, 1, 2)), axis_name)
    multiplier = scale * sign * lax.rsqrt(statistics.var + EPSILON)
    shift = bias - statistics.mean * multiplier
    pooled = jax.nn.relu(max_pool(y) * per_filter(multiplier) + per_filter(shift))
    return pooled.astype(x.dtype), statistics._replace(mean=statistics.mean * sign)


def fixed_block(x, kernel, scale, bias, statistics):
    """Block normalised by given statistics, which fold into the kernel: [N, H, W, C] -> [N, H//2, W//2, F]."""
    kernel, bias = fold(kernel, scale, bias, statistics)
    return jax.nn.relu(max_pool(convolution(x, kernel)) + per_filter(bias)).astype(x.dtype)


def convolution(x, kernel):
    """3x3 convolution that keeps height and width: [N, H, W, C], [3, 3, C, F] -> [N, H, W, F].

    Computes in the type of x and gives the type of the kernel, so that bfloat16 activations meet float32 statistics.
    """
    layout = ('NHWC', 'HWIO', 'NHWC')
    y = lax.conv_general_dilated(x, kernel.astype(x.dtype), (1, 1), 'SAME', dimension_numbers=layout)
    return y.astype(kernel.dtype)


def max_pool(x):
    """2x2 maximum; an odd last row or column is dropped: [N, H, W, F] -> [N, H//2, W//2, F]."""
    n, h, w, f = x.shape
    windows = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, f)
    return windows.max((2, 4))


def fold(kernel, scale, bias, statistics):
    """Kernel and bias of the convolution that contains the normalisation: [3, 3, C, F], [F]."""
    multiplier = scale * lax.rsqrt(statistics.var + EPSILON)
    return kernel * per_filter(multiplier), bias - statistics.mean * multiplier


def per_filter(vector):
    """One value per filter, to be combined with images or kernels: [F] -> [1, 1, 1, F]."""
    return vector.reshape(1, 1, 1, -1)


def patch_statistics(x, kernel, *, axis_name=None):
    """Statistics of convolution(x, kernel) without running it: [N, H, W, C], [3, 3, C, F] -> Statistics."""
    return statistics_of_patches(*patch_moments(x.astype(kernel.dtype)), kernel, axis_name=axis_name)


def patch_moments(x):
    """Mean and second moment of all 3x3 patches: [N, H, W, C] -> [9 C], [9 C, 9 C]."""
    _, h, w, c = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, i : i + h, j : j + w, k].reshape(-1) for i in range(3) for j in range(3) for k in range(c)]
    patches = jnp.stack(taps)
    return patches.mean(1), patches @ patches.T / patches.shape[1]


def statistics_of_patches(mean, second_moment, kernel, *, axis_name=None):
    """Statistics of a convolution from the moments of its input's patches: [9 C], [9 C, 9 C] -> Statistics."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    return _statistics(mean @ weights, jnp.sum(weights * (second_moment @ weights), 0), axis_name)


def _statistics(mean, mean_square, axis_name):
    if axis_name is not None:
        mean, mean_square = lax.pmean((mean, mean_square), axis_name)
    return Statistics(mean, jnp.maximum(mean_square - mean * mean, 0))  # rounding may go below zero
