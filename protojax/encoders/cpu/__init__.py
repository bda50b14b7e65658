"""The blocks of `protojax.encoders.block` on fused C++ kernels for CPUs, called through jax.ffi.

The two public functions are those of `protojax.encoders.block`, which also take over, with one line in the log, where
the kernels do not apply. Only three steps are kernels; the normalisation around them, its gradients and its collectives
over devices are the plain JAX of the other module:

- `convolve_and_pool`, a training block's convolution of 64 channels with the moments that batch normalisation needs;
- `convolve_pool_relu`, a whole block whose normalisation has been folded into its kernel;
- `patch_moments`, from which the first block's batch statistics follow.

Gradients have custom rules of first order: of reverse mode alone, and not differentiable again.
"""

import functools

import jax
import jax.numpy as jnp
from absl import logging
from jax import lax

from protojax.encoders import block as blocks
from protojax.encoders.cpu import build

FILTERS = 64
CHANNELS = (1, 3, 64)
HANDLERS = (
    'convolve_and_pool',
    'convolve_and_pool_gradient',
    'convolve_pool_relu',
    'convolve_pool_relu_gradient',
    'patch_moments',
)


def batch_block(x, kernel, scale, bias, *, axis_name=None):
    """Block normalised by its own batch: [N, H, W, C], [3, 3, C, F], [F], [F] -> [N, H//2, W//2, F], Statistics."""
    if not _applies(x, kernel, scale, bias):
        return blocks.batch_block(x, kernel, scale, bias, axis_name=axis_name)
    if x.shape[-1] < FILTERS:
        statistics = blocks.statistics_of_patches(*patch_moments(x), kernel, axis_name=axis_name)
        return convolve_pool_relu(x, *blocks.fold(kernel, scale, bias, statistics)), statistics
    sign = jnp.where(scale < 0, -1, 1).astype(x.dtype)
    pooled, mean, mean_square = convolve_and_pool(x, kernel * blocks.per_filter(sign))
    statistics = blocks._statistics(mean, mean_square, axis_name)
    multiplier = scale * sign * lax.rsqrt(statistics.var + blocks.EPSILON)
    shift = bias - statistics.mean * multiplier
    activations = jax.nn.relu(pooled * blocks.per_filter(multiplier) + blocks.per_filter(shift))
    return activations, statistics._replace(mean=statistics.mean * sign)


def fixed_block(x, kernel, scale, bias, statistics):
    """Block normalised by given statistics, which fold into the kernel: [N, H, W, C] -> [N, H//2, W//2, F]."""
    if not _applies(x, kernel, scale, bias, *statistics):
        return blocks.fixed_block(x, kernel, scale, bias, statistics)
    return convolve_pool_relu(x, *blocks.fold(kernel, scale, bias, statistics))


@jax.custom_vjp
def convolve_and_pool(x, kernel):
    """Pooled convolution, and the mean of its output and of the output's square: [N, H//2, W//2, 64], [64], [64]."""
    return _convolve_and_pool(x, kernel)[0]


def _convolve_and_pool(x, kernel):
    y, *results = _call('convolve_and_pool', x, kernel, shapes=[x.shape, _pooled_shape(x), (FILTERS,), (FILTERS,)])
    return tuple(results), (x, kernel, y)


def _convolve_and_pool_gradient(residuals, gradients):
    x, kernel, y = residuals
    pooled, mean, mean_square = gradients
    pixels = y.size // FILTERS
    arguments = (x, kernel.swapaxes(2, 3), y, pooled, 2 * mean_square / pixels, mean / pixels)
    return tuple(_call('convolve_and_pool_gradient', *arguments, shapes=[x.shape, kernel.shape]))


convolve_and_pool.defvjp(_convolve_and_pool, _convolve_and_pool_gradient)


@jax.custom_vjp
def convolve_pool_relu(x, kernel, bias):
    """relu(max_pool(convolution(x, kernel)) + bias): [N, H, W, C], [3, 3, C, 64], [64] -> [N, H//2, W//2, 64]."""
    return _call('convolve_pool_relu', x, kernel, bias, shapes=[_pooled_shape(x)])[0]


def _convolve_pool_relu_gradient(arguments, gradient):
    x, kernel, bias = arguments
    plain = jax.vjp(_plain_convolve_pool_relu, *arguments)[1](gradient)
    if x.shape[-1] == FILTERS:
        return plain
    of_weights = _call('convolve_pool_relu_gradient', *arguments, gradient, shapes=[kernel.shape, bias.shape])
    return plain[0], *of_weights  # images hardly ever need a gradient: compiled code then drops the plain path


def _plain_convolve_pool_relu(x, kernel, bias):
    return jax.nn.relu(blocks.max_pool(blocks.convolution(x, kernel)) + blocks.per_filter(bias))


convolve_pool_relu.defvjp(lambda *arguments: (convolve_pool_relu(*arguments), arguments), _convolve_pool_relu_gradient)


@jax.custom_vjp
def patch_moments(x):
    """Mean and second moment of all 3x3 patches: [N, H, W, C] -> [9 C], [9 C, 9 C]."""
    taps = 9 * x.shape[-1]
    return tuple(_call('patch_moments', x, shapes=[(taps,), (taps, taps)]))


patch_moments.defvjp(lambda x: (patch_moments(x), x), lambda x, gradient: jax.vjp(blocks.patch_moments, x)[1](gradient))


def _call(name, *arguments, shapes):
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.ffi.ffi_call(f'protojax_{name}', results, vmap_method='sequential')(*arguments)


def _pooled_shape(x):
    n, h, w, _ = x.shape
    return n, h // 2, w // 2, FILTERS


def _applies(x, kernel, *others):
    """Whether the kernels can do this; logs why not."""
    reason = _refusal(x, kernel, *others) or _unavailable()
    if reason:
        _explain(reason)
    return not reason


def _refusal(x, kernel, *others):
    if jax.default_backend() != 'cpu':
        return f'they serve the CPU only, not {jax.default_backend()}'
    if any(array.dtype != jnp.float32 for array in (x, kernel, *others)):
        return 'they serve float32 only'
    channels = x.shape[-1]
    if kernel.shape != (3, 3, channels, FILTERS) or channels not in CHANNELS:
        return f'they serve 3x3 kernels from 1, 3 or 64 channels to 64 filters, not {kernel.shape}'
    if min(x.shape) < 1 or min(x.shape[1:3]) < 2:
        return f'they serve images of 2x2 pixels or more, not {x.shape}'
    return None


@functools.cache
def _unavailable():
    """Loads the library at first use; why that is impossible, or None."""
    try:
        library = build.load()
    except build.BuildError as error:
        return str(error)
    for name in HANDLERS:
        handler = jax.ffi.pycapsule(getattr(library, f'protojax_{name}'))
        jax.ffi.register_ffi_target(f'protojax_{name}', handler, platform='cpu')
    library.protojax_keep_buffers()  # see memory.h; where it cannot, nothing changes
    return None


@functools.cache
def _explain(reason):
    logging.warning('Plain JAX instead of the CPU kernels: %s.', reason)
