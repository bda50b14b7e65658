"""The reordered block against the textbook order: convolution, batch normalisation in two passes, ReLU, max-pool."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from protojax.encoders import block
from protojax.encoders.block import Statistics

# images, height, width, channels, filters; the moments of patches are used if 9 channels < filters
PATCHES, DIRECT = (2, 7, 5, 3, 64), (2, 5, 8, 16, 16)


def arguments(shape):
    """Return x, kernel, scale with negative values and a zero, and bias."""
    n, h, w, c, f = shape
    rng = np.random.default_rng(0)
    scale = rng.normal(size=f)
    scale[:4] = -1.5, 0, 2, -0.1
    kernel = rng.normal(size=(3, 3, c, f)) * (2 / (9 * c)) ** 0.5
    return rng.uniform(size=(n, h, w, c)), kernel, scale, 0.5 * rng.normal(size=f)


def textbook(x, kernel, scale, bias, statistics=None):
    """Compute the block as the paper describes it, by default with the statistics of its batch."""
    y = lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    if statistics is None:
        mean = y.mean((0, 1, 2))
        statistics = Statistics(mean, jnp.mean(jnp.square(y - mean[None, None, None]), (0, 1, 2)))
    mean, var, scale, bias = (v[None, None, None] for v in (*statistics, scale, bias))
    y = jnp.maximum((y - mean) / jnp.sqrt(var + block.EPSILON) * scale + bias, 0)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID'), statistics


def outputs_and_gradients(function, args):
    """Return activations, mean and var, and gradients of a loss that depends on each of them differently."""

    def loss(*args):
        activations, statistics = function(*args)
        rng, outputs = np.random.default_rng(2), (activations, *statistics)
        return sum(jnp.sum(rng.normal(size=v.shape) * v) for v in outputs), outputs

    (dx, dkernel, dscale, dbias), outputs = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*args)
    # At a zero scale the textbook's function has a kink: any slope between those of both sides is correct.
    return *outputs, dx, dkernel, np.delete(dscale, 1), dbias


@pytest.mark.parametrize('shape', [PATCHES, DIRECT], ids=['patches', 'direct'])
@pytest.mark.parametrize('given', [False, True], ids=['batch', 'given statistics'])
def test_block_is_the_textbook(shape, given, x64):
    rng = np.random.default_rng(1)
    statistics = Statistics(rng.normal(size=shape[-1]), rng.uniform(0.5, 2, shape[-1])) if given else None
    functions = (functools.partial(function, statistics=statistics) for function in (block.apply, textbook))
    results = (outputs_and_gradients(function, arguments(shape)) for function in functions)
    for found, expected in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_max_pool_drops_the_odd_row_and_column():
    x = np.arange(15, dtype=np.float32).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(block.max_pool(x)[0, :, :, 0], [[6, 8]])
