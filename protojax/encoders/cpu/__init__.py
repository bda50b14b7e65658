"""C++ kernels for CPUs, called through jax.ffi: the steps of `protojax.encoders.block`, and the blocks of `photos`.

`steps` returns these kernels if they support the inputs; otherwise it logs one line and returns the plain steps. The
normalisation, its gradients and its collectives over devices remain in `block`.

Gradients are custom rules for reverse mode, first order only. If several outputs of a pooling window are equal, the
gradient goes to one of them.

Loading the kernels also makes XLA reuse the buffers of its programs between runs (see memory.h).
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from absl import logging

from protojax.encoders import block
from protojax.encoders.cpu import build

FILTERS = 64
LANES = 16  # minimum number of channels of an inverted block
Layer = tuple[jax.Array, jax.Array]  # kernel and bias
CHANNELS = (1, 3, 64)
DEFINES = {'float32': (), 'bfloat16': ('PROTOJAX_BFLOAT16',)}  # by type of the activations; other arrays are float32
HANDLERS = (
    *('convolve_and_pool', 'convolve_and_pool_gradient', 'scale_shift_relu', 'scale_shift_relu_gradient'),
    *('convolve_pool_relu', 'convolve_pool_relu_winners', 'convolve_pool_relu_gradient', 'patch_moments'),
    'inverted_block',
)


def steps(x: jax.Array, kernel: jax.Array) -> block.Steps:
    """Return the steps of a block for these images and this kernel."""
    reason = _unsupported(x, kernel) or _unavailable(x.dtype.name)
    if reason:
        _explain(reason)
        return block.PLAIN
    return block.Steps(patch_moments, convolve_and_pool, scale_shift_relu, convolve_pool_relu)


@jax.custom_vjp
def convolve_and_pool(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the pooled convolution, and mean and mean square before pooling: -> [N, H//2, W//2, 64], [64], [64]."""
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
    """Compute relu(pooled * multiplier + shift): [N, H, W, 64], [64], [64] -> [N, H, W, 64]."""
    return _call('scale_shift_relu', [pooled], pooled, multiplier, shift)[0]


def _scale_shift_relu_gradient(arguments, gradient):
    return tuple(_call('scale_shift_relu_gradient', arguments, *arguments, gradient, aliases={3: 0}))


scale_shift_relu.defvjp(lambda *arguments: (scale_shift_relu(*arguments), arguments), _scale_shift_relu_gradient)


@jax.custom_vjp
def convolve_pool_relu(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Compute relu(max_pool(convolution(x, kernel)) + bias): [N, H, W, C] -> [N, H//2, W//2, 64]."""
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
    return plain[0], *of_weights  # if images need no gradient, XLA removes the plain path


convolve_pool_relu.defvjp(_convolve_pool_relu, _convolve_pool_relu_gradient)


@jax.custom_vjp
def patch_moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute mean and second moment of all 3x3 patches: [N, H, W, C] -> [9 C], [9 C, 9 C]."""
    taps = 9 * x.shape[-1]
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((taps,), (taps, taps))]
    return tuple(_call('patch_moments', results, x))


patch_moments.defvjp(
    lambda x: (patch_moments(x), x), lambda x, gradient: jax.vjp(block.PLAIN.patch_moments, x)[1](gradient)
)


def supports_blocks(x: jax.Array, channels: Sequence[int]) -> bool:
    """Return whether `inverted_block` supports images like these, given the channels between blocks."""
    if jax.default_backend() != 'cpu' or x.dtype != jnp.float32 or min(channels) < LANES or 0 in x.shape:
        return False
    reason = _unavailable()
    if reason:
        _explain(reason)
    return reason is None


def inverted_block(x: jax.Array, expand: Layer, depthwise: Layer, project: Layer, stride: int) -> jax.Array:
    """Compute an inverted residual block, given the kernels and biases of its layers; see `photos.Block`."""
    n, height, width, _ = x.shape
    result = _like(x, (n, -(-height // stride), -(-width // stride), project[1].size))
    kernels = [kernel.reshape(-1, bias.size) for kernel, bias in (expand, project)]
    taps = depthwise[0].squeeze(2)
    arguments = (kernels[0], expand[1], taps, depthwise[1], kernels[1], project[1])
    return _call('inverted_block', [result], x, *arguments)[0]


def _call(name, results, *arguments, aliases=None):
    """Call a handler; `results` have the shapes and types of its outputs, `aliases` maps inputs to outputs."""
    shapes = [jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results]
    target = f'protojax_{name}_{arguments[0].dtype.name}'
    call = jax.ffi.ffi_call(target, shapes, vmap_method='sequential', input_output_aliases=aliases)
    return call(*arguments)


def _like(array, shape):
    return jax.ShapeDtypeStruct(shape, array.dtype)


def _pooled_shape(x):
    n, h, w, _ = x.shape
    return n, h // 2, w // 2, FILTERS


def _unsupported(x, kernel):
    """Return why the kernels do not support these inputs, or None if they do."""
    if jax.default_backend() != 'cpu':
        return f'they run on CPUs only, not on {jax.default_backend()}'
    if x.dtype.name not in DEFINES or kernel.dtype != jnp.float32:
        return f'they need float32 or bfloat16 images and float32 kernels, got {x.dtype} and {kernel.dtype}'
    channels = x.shape[-1]
    if kernel.shape != (3, 3, channels, FILTERS) or channels not in CHANNELS:
        return f'they need 3x3 kernels from 1, 3 or 64 channels to 64 filters, got {kernel.shape}'
    if min(x.shape) < 1 or min(x.shape[1:3]) < 2:
        return f'they need images of at least 2x2 pixels, got {x.shape}'
    return None


@functools.cache
def _unavailable(dtype='float32'):
    """Load the library for activations of a type; return the reason if it is unavailable, else None."""
    try:
        library = build.load(*DEFINES[dtype])
    except build.BuildError as error:
        return str(error)
    for name in HANDLERS:
        handler = jax.ffi.pycapsule(getattr(library, f'protojax_{name}'))
        jax.ffi.register_ffi_target(f'protojax_{name}_{dtype}', handler, platform='cpu')
    if not _unavailable.cache_info().currsize:  # the first library; one is enough
        library.protojax_keep_buffers()  # see memory.h
    return None


@functools.cache
def _explain(reason):
    logging.warning('using plain JAX instead of the CPU kernels: %s', reason)
