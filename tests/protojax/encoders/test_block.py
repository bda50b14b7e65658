"""The reordered blocks against the textbook order: convolution, batch normalisation in two passes, ReLU, max-pool."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from protojax.encoders.block import (
    EPSILON,
    PLAIN,
    BlockStatistics,
    _statistics_of_patches,
    batch_block,
    fixed_block,
    max_pool,
)

# images, height, width, channels, filters; the moments of patches serve where 9 channels < filters
SHAPES = [(3, 6, 6, 1, 64), (2, 7, 5, 3, 64), (2, 5, 8, 64, 64), (3, 7, 6, 1, 5), (2, 6, 9, 3, 28)]
each_shape = pytest.mark.parametrize('shape', SHAPES, ids=str)


def arguments(shape, dtype=np.float64, seed=0):
    """x, kernel, scale with negative values and a zero, bias."""
    n, h, w, c, f = shape
    rng = np.random.default_rng(seed)
    x, kernel = rng.uniform(size=(n, h, w, c)), rng.normal(size=(3, 3, c, f)) * (2 / (9 * c)) ** 0.5
    scale, bias = rng.normal(size=f), 0.5 * rng.normal(size=f)
    scale[:4] = -1.5, 0, 2, -0.1
    return tuple(v.astype(dtype) for v in (x, kernel, scale, bias))


def given_statistics(shape, dtype=np.float64):
    rng = np.random.default_rng(1)
    return BlockStatistics(rng.normal(size=shape[-1]).astype(dtype), rng.uniform(0.5, 2, shape[-1]).astype(dtype))


def textbook(x, kernel, scale, bias, statistics=None):
    """Block as the paper describes it, with its batch's statistics where none are given."""
    y = lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
    if statistics is None:
        mean = y.mean((0, 1, 2))
        statistics = BlockStatistics(mean, jnp.mean(jnp.square(y - mean[None, None, None]), (0, 1, 2)))
    mean, var, scale, bias = (v[None, None, None] for v in (*statistics, scale, bias))
    y = jnp.maximum((y - mean) / jnp.sqrt(var + EPSILON) * scale + bias, 0)
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID'), statistics


def outputs_and_gradients(block, args):
    """Outputs (activations, mean, var) and gradients of a loss that depends on each of them differently."""

    def loss(*args):
        activations, statistics = block(*args)
        rng = np.random.default_rng(2)
        weights = [rng.normal(size=v.shape).astype(v.dtype) for v in (activations, *statistics)]
        outputs = (activations, *statistics)
        return sum(jnp.sum(w * v) for w, v in zip(weights, outputs, strict=True)), outputs

    gradients, outputs = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*args)
    return [np.asarray(v) for v in outputs], [np.asarray(v) for v in gradients]


def without_kink(gradients):
    """Gradients but that of a zero scale, where the textbook's function has a kink and any slope between will do."""
    x, kernel, scale, bias = gradients
    return x, kernel, np.delete(scale, 1), bias


@each_shape
def test_batch_block_is_the_textbook(shape, x64):
    args = arguments(shape)
    outputs, gradients = outputs_and_gradients(batch_block, args)
    expected_outputs, expected_gradients = outputs_and_gradients(textbook, args)
    for found, expected in zip(outputs, expected_outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    for found, expected in zip(without_kink(gradients), without_kink(expected_gradients), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@each_shape
def test_fixed_block_is_the_textbook(shape, x64):
    args, statistics = arguments(shape), given_statistics(shape)

    def fixed(*args):
        return fixed_block(*args, statistics), ()

    def fixed_textbook(*args):
        return textbook(*args, statistics)[0], ()

    outputs, gradients = outputs_and_gradients(fixed, args)
    expected_outputs, expected_gradients = outputs_and_gradients(fixed_textbook, args)
    np.testing.assert_allclose(outputs[0], expected_outputs[0], rtol=1e-9, atol=1e-11)
    for found, expected in zip(without_kink(gradients), without_kink(expected_gradients), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize('shape', [SHAPES[1], SHAPES[3]], ids=str)
def test_slope_at_zero_scale_is_a_subgradient(shape, x64):
    x, kernel, scale, bias = arguments(shape)
    bias = np.abs(bias)  # else the ReLU hides the kink

    def total(block, scale):  # a sum of maxima, so convex in the scale
        return jnp.sum(block(x, kernel, scale, bias)[0])

    step = 1e-7 * (np.arange(shape[-1]) == 1)
    left, here, right = (jax.jit(functools.partial(total, textbook))(scale + s) for s in (-step, 0 * step, step))
    slope = jax.jit(jax.grad(functools.partial(total, batch_block)))(scale)[1]
    assert (here - left) / 1e-7 - 1e-4 < slope < (right - here) / 1e-7 + 1e-4
    assert right - here > here - left + 1e-8


@pytest.mark.parametrize('shape', SHAPES[1:4], ids=str)
def test_single_precision_is_as_good_as_the_textbook_in_single_precision(shape):
    with jax.enable_x64(True):
        exact = outputs_and_gradients(textbook, arguments(shape))
    plain = outputs_and_gradients(textbook, arguments(shape, np.float32))
    ours = outputs_and_gradients(batch_block, arguments(shape, np.float32))
    values = zip(*([*outputs, *without_kink(gradients)] for outputs, gradients in (ours, plain, exact)), strict=True)
    for found, usual, right in values:
        assert found.dtype == np.float32
        scale = np.abs(right).max()
        assert np.abs(found - right).max() < 4 * np.abs(usual - right).max() + 1e-6 * scale


def test_statistics_by_hand():
    # A kernel that looks only at the pixel itself: channel 0 times 2, and channel 1 minus channel 0.
    kernel = np.zeros((3, 3, 2, 2), np.float32)
    kernel[1, 1] = [[2, -1], [0, 1]]
    x = np.array([[[[1, 0], [2, 3]], [[3, 3], [6, 6]]]], np.float32)  # outputs 2 4 6 12 and -1 1 0 0
    for statistics in (
        _statistics_of_patches(*PLAIN.patch_moments(x), kernel),
        batch_block(x, kernel, *np.ones((2, 2), np.float32))[1],
    ):
        np.testing.assert_allclose(statistics.mean, [6, 0], atol=1e-6)
        np.testing.assert_allclose(statistics.var, [14, 0.5], rtol=1e-5)


def test_max_pool_drops_the_odd_row_and_column():
    x = np.arange(15, dtype=np.float32).reshape(1, 3, 5, 1)
    np.testing.assert_array_equal(max_pool(x)[0, :, :, 0], [[6, 8]])


@pytest.mark.parametrize('shape', [(8, 6, 6, 1, 64), (8, 5, 6, 2, 6)], ids=['patches', 'direct'])
def test_batch_spread_over_an_axis_is_the_whole_batch(shape):
    x, *params = arguments(shape, np.float32)
    expected, statistics = jax.jit(batch_block)(x, *params)
    parts = x.reshape(4, 2, *x.shape[1:])
    block = functools.partial(batch_block, axis_name='parts')
    axes = (0, None, None, None)
    for mapped in (jax.jit(jax.vmap(block, axes, axis_name='parts')), jax.pmap(block, 'parts', in_axes=axes)):
        found, found_statistics = mapped(parts, *params)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
        for part in range(4):
            np.testing.assert_allclose(found_statistics.mean[part], statistics.mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found_statistics.var[part], statistics.var, rtol=1e-4, atol=1e-5)
    alone = jax.jit(jax.vmap(batch_block, axes))(parts, *params)[0]
    assert np.abs(alone.reshape(expected.shape) - expected).max() > 0.01  # the axis matters
