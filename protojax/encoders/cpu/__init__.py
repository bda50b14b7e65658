"""The steps of `protojax.encoders.block` as fused C++ kernels for CPUs, called through jax.ffi.

`steps` gives these kernels where they apply and the plain steps, with one line in the log, where they do not. The
normalisation around them, its gradients and its collectives over devices are those of the other module.

Gradients have custom rules of first order: of reverse mode alone, and not differentiable again. Where several outputs
of a pooling window are equal, its gradient goes to one of them.

Loading the kernels lets XLA keep the buffers of its programs from run to run (see memory.h).
"""

import functools

import jax
import jax.numpy as jnp
from absl import logging

from protojax.encoders import block
from protojax.encoders.cpu import build

FILTERS = 64
CHANNELS = (1, 3, 64)
DEFINES = {'float32': (), 'bfloat16': ('PROTOJAX_BFLOAT16',)}  # by the type of activations; all else is float32
HANDLERS = (
    'convolve_and_pool',
    'convolve_and_pool_gradient',
    'convolve_pool_relu',
    'convolve_pool_relu_winners',
    'convolve_pool_relu_gradient',
    'scale_shift_relu',
    'scale_shift_relu_gradient',
    'patch_moments',
)


def steps(x: jax.Array, kernel: jax.Array) -> block.BlockSteps:
    """The steps for a block of these images and this kernel."""
    reason = _refusal(x, kernel) or _unavailable(x.dtype.name)
    if reason:
        _explain(reason)
        return block.PLAIN
    return block.BlockSteps(patch_moments, convolve_and_pool, scale_shift_relu, convolve_pool_relu)


@jax.custom_vjp
def convolve_and_pool(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Pooled convolution, and the mean of its output and of the output's square: [N, H//2, W//2, 64], [64], [64]."""
    return _convolve_and_pool(x, kernel)[0]


def _convolve_and_pool(x, kernel):
    results = [_like(x, x.shape), _like(x, _pooled_shape(x)), _like(kernel, (FILTERS,)), _like(kernel, (FILTERS,))]
    y, *results = _call('convolve_and_pool', results, x, kernel)
    return tuple(results), (x, kernel, y)


def _convolve_and_pool_gradient(residuals, gradients):
    x, kernel, y = residuals
    pooled, mean, mean_square = gradients
    pixels = y.size // FILTERS
    arguments = (x, kernel.swapaxes(2, 3), y, pooled, 2 * mean_square / pixels, mean / pixels)
    return tuple(_call('convolve_and_pool_gradient', [x, kernel], *arguments, aliases={0: 0}))


convolve_and_pool.defvjp(_convolve_and_pool, _convolve_and_pool_gradient)


@jax.custom_vjp
def scale_shift_relu(pooled: jax.Array, multiplier: jax.Array, shift: jax.Array) -> jax.Array:
    """relu(pooled * multiplier + shift): [N, H, W, 64], [64], [64] -> [N, H, W, 64]."""
    return _call('scale_shift_relu', [pooled], pooled, multiplier, shift)[0]


def _scale_shift_relu_gradient(arguments, gradient):
    return tuple(_call('scale_shift_relu_gradient', arguments, *arguments, gradient, aliases={3: 0}))


scale_shift_relu.defvjp(lambda *arguments: (scale_shift_relu(*arguments), arguments), _scale_shift_relu_gradient)


@jax.custom_vjp
def convolve_pool_relu(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """relu(max_pool(convolution(x, kernel)) + bias): [N, H, W, C], [3, 3, C, 64], [64] -> [N, H//2, W//2, 64]."""
    return _call('convolve_pool_relu', [_like(x, _pooled_shape(x))], x, kernel, bias)[0]


def _convolve_pool_relu(x, kernel, bias):
    if x.shape[-1] == FILTERS:
        return convolve_pool_relu(x, kernel, bias), (x, kernel, bias, None)
    results = [_like(x, _pooled_shape(x)), jax.ShapeDtypeStruct(_pooled_shape(x), jnp.uint8)]
    activations, winners = _call('convolve_pool_relu_winners', results, x, kernel, bias)
    return activations, (x, kernel, bias, winners)


def _convolve_pool_relu_gradient(residuals, gradient):
    x, kernel, bias, winners = residuals
    plain = jax.vjp(block.PLAIN.convolve_pool_relu, x, kernel, bias)[1](gradient)
    if winners is None:
        return plain
    of_weights = _call('convolve_pool_relu_gradient', [kernel, bias], x, winners, gradient)
    return plain[0], *of_weights  # images hardly ever need a gradient: compiled code then drops the plain path


convolve_pool_relu.defvjp(_convolve_pool_relu, _convolve_pool_relu_gradient)


@jax.custom_vjp
def patch_moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and second moment of all 3x3 patches: [N, H, W, C] -> [9 C], [9 C, 9 C]."""
    taps = 9 * x.shape[-1]
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((taps,), (taps, taps))]
    return tuple(_call('patch_moments', results, x))


patch_moments.defvjp(
    lambda x: (patch_moments(x), x), lambda x, gradient: jax.vjp(block.PLAIN.patch_moments, x)[1](gradient)
)


def _call(name, results, *arguments, aliases=None):
    """Call a handler; `results` are arrays or shapes like those it gives, `aliases` maps arguments to results."""
    shapes = [jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results]
    target = f'protojax_{name}_{arguments[0].dtype.name}'
    call = jax.ffi.ffi_call(target, shapes, vmap_method='sequential', input_output_aliases=aliases)
    return call(*arguments)


def _like(array, shape):
    return jax.ShapeDtypeStruct(shape, array.dtype)


def _pooled_shape(x):
    n, h, w, _ = x.shape
    return n, h // 2, w // 2, FILTERS


def _refusal(x, kernel):
    """Why the kernels cannot do this, or None."""
    if jax.default_backend() != 'cpu':
        return f'they serve the CPU only, not {jax.default_backend()}'
    if x.dtype.name not in DEFINES or kernel.dtype != jnp.float32:
        return f'they serve float32 and bfloat16 images and float32 kernels only, not {x.dtype} and {kernel.dtype}'
    channels = x.shape[-1]
    if kernel.shape != (3, 3, channels, FILTERS) or channels not in CHANNELS:
        return f'they serve 3x3 kernels from 1, 3 or 64 channels to 64 filters, not {kernel.shape}'
    if min(x.shape) < 1 or min(x.shape[1:3]) < 2:
        return f'they serve images of 2x2 pixels or more, not {x.shape}'
    return None


@functools.cache
def _unavailable(dtype='float32'):
    """Loads the library for activations of a type at first use; why that is impossible, or None."""
    try:
        library = build.load_kernels(*DEFINES[dtype])
    except build.BuildError as error:
        return str(error)
    for name in HANDLERS:
        handler = jax.ffi.pycapsule(getattr(library, f'protojax_{name}'))
        jax.ffi.register_ffi_target(f'protojax_{name}_{dtype}', handler, platform='cpu')
    if not _unavailable.cache_info().currsize:  # it is the first library; one is enough
        library.protojax_keep_buffers()  # see memory.h; where it cannot, nothing changes
    return None


@functools.cache
def _explain(reason):
    logging.warning('Plain JAX instead of the CPU kernels: %s.', reason)
