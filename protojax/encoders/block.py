"""The convolution block of the paper's encoder as pure functions.

A block is a 3x3 convolution, batch normalisation, ReLU and 2x2 max-pooling. The textbook order computes four times as
many normalised values as needed, so `apply` reorders the steps without changing the result:

- Pooling precedes the affine part of the normalisation. An increasing function commutes with the maximum; if the scale
  is negative, its sign is folded into the convolution kernel first.
- Pooling is a maximum over a reshaped array. The gradient of `reduce_window` is very slow on CPUs. This form divides
  the gradient of ties among the winners, which only matters at zero, where the ReLU has no gradient.
- Mean and variance are computed in one pass, from the means of y and y * y.
- With few input channels (the first block), the moments of the convolution follow from the mean and second moment of
  the 3x3 patches, so scale and shift are folded into the kernel before the convolution.

Axis letters: N images, H height, W width, C input channels, F filters.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

EPSILON = 1e-5  # as in the official code
MOMENTUM = 0.9  # weight of the old running statistics, as in the official code


class Statistics(NamedTuple):
    """Mean and variance of the output of the convolution over a batch."""

    mean: jax.Array  # [F]
    var: jax.Array  # [F]


class Steps(NamedTuple):
    """Steps of a block with several implementations; PLAIN contains the implementations in this module."""

    patch_moments: Callable  # x -> mean [9 C] and second moment [9 C, 9 C] of its 3x3 patches
    convolve_and_pool: Callable  # x, kernel -> pooled, mean [F] and mean square [F] before the pooling
    scale_shift_relu: Callable  # pooled, multiplier [F], shift [F] -> activations
    convolve_pool_relu: Callable  # x, kernel, bias [F] -> activations


def apply(
    x: jax.Array,
    kernel: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    statistics: Statistics | None = None,
    *,
    axis_name: str | None = None,
    steps: Steps | None = None,
) -> tuple[jax.Array, Statistics]:
    """Apply a block: [N, H, W, C], [3, 3, C, F], [F], [F] -> [N, H//2, W//2, F], Statistics.

    The convolution is normalised by `statistics`, or by the statistics of the batch if they are None. With `axis_name`,
    the batch is sharded across that axis and its statistics are means over all devices.
    """
    steps = steps or PLAIN
    if statistics is None and 9 * x.shape[-1] < kernel.shape[-1]:
        statistics = _statistics_of_patches(steps.patch_moments(x), kernel, axis_name)
    if statistics is not None:  # the normalisation is folded into kernel and bias
        multiplier = scale * lax.rsqrt(statistics.var + EPSILON)
        shift = bias - statistics.mean * multiplier
        return steps.convolve_pool_relu(x, kernel * _per_filter(multiplier), shift), statistics
    sign = jnp.where(scale < 0, -1, 1).astype(scale.dtype)
    pooled, mean, mean_square = steps.convolve_and_pool(x, kernel * _per_filter(sign))
    statistics = _statistics(mean, mean_square, axis_name)
    multiplier = scale * sign * lax.rsqrt(statistics.var + EPSILON)
    activations = steps.scale_shift_relu(pooled, multiplier, bias - statistics.mean * multiplier)
    return activations, statistics._replace(mean=statistics.mean * sign)


def _convolve_and_pool(x, kernel):
    """Compute the pooled convolution in the type of x, and the means of the convolution and of its square."""
    y = convolution(x, kernel)
    return max_pool(y).astype(x.dtype), jnp.mean(y, (0, 1, 2)), jnp.mean(y * y, (0, 1, 2))


def _scale_shift_relu(pooled, multiplier, shift):
    """Compute relu(pooled * multiplier + shift) in the type of pooled: [N, H, W, F], [F], [F] -> [N, H, W, F]."""
    scaled = pooled.astype(multiplier.dtype) * _per_filter(multiplier)
    return jax.nn.relu(scaled + _per_filter(shift)).astype(pooled.dtype)


def _convolve_pool_relu(x, kernel, bias):
    """Compute relu(max_pool(convolution(x, kernel)) + bias) in the type of x: [N, H, W, C] -> [N, H//2, W//2, F]."""
    return jax.nn.relu(max_pool(convolution(x, kernel)) + _per_filter(bias)).astype(x.dtype)


def convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Compute a 3x3 convolution with zero padding: [N, H, W, C], [3, 3, C, F] -> [N, H, W, F].

    Computes in the type of x and returns the type of the kernel, so statistics of bfloat16 activations are float32.
    """
    layout = ('NHWC', 'HWIO', 'NHWC')
    y = lax.conv_general_dilated(x, kernel.astype(x.dtype), (1, 1), 'SAME', dimension_numbers=layout)
    return y.astype(kernel.dtype)


def max_pool(x: jax.Array) -> jax.Array:
    """Compute a 2x2 max-pooling; an odd last row or column is dropped: [N, H, W, F] -> [N, H//2, W//2, F]."""
    n, h, w, f = x.shape
    windows = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, f)
    return windows.max((2, 4))


def _per_filter(vector):
    """Add axes for broadcasting with images or kernels: [F] -> [1, 1, 1, F]."""
    return vector.reshape(1, 1, 1, -1)


def _patch_moments(x):
    """Compute mean and second moment of all 3x3 patches, in float32 or better: [N, H, W, C] -> [9 C], [9 C, 9 C]."""
    _, h, w, c = x.shape
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [padded[:, i : i + h, j : j + w, k].reshape(-1) for i in range(3) for j in range(3) for k in range(c)]
    patches = jnp.stack(taps)
    return patches.mean(1), patches @ patches.T / patches.shape[1]


def _statistics_of_patches(moments, kernel, axis_name):
    """Compute statistics of a convolution from the moments of its input patches: [9 C], [9 C, 9 C] -> Statistics."""
    (mean, second_moment), weights = moments, kernel.reshape(-1, kernel.shape[-1])
    return _statistics(mean @ weights, jnp.sum(weights * (second_moment @ weights), 0), axis_name)


def _statistics(mean, mean_square, axis_name):
    if axis_name is not None:
        mean, mean_square = lax.pmean((mean, mean_square), axis_name)
    return Statistics(mean, jnp.maximum(mean_square - mean * mean, 0))  # rounding may make it negative


PLAIN = Steps(_patch_moments, _convolve_and_pool, _scale_shift_relu, _convolve_pool_relu)
