"""Encoders: sizes, running statistics by hand, modes, types and pixel scaling."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax import encoders
from protojax.encoders import Conv4, LinearMap, ResNet12, block, encode

SMALL = Conv4(filters=8, kernels=False)  # on 16x16 images four blocks leave one pixel
SHAPE = (16, 16, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


@functools.cache
def fresh(encoder=SMALL, shape=SHAPE):
    return jax.jit(functools.partial(encoders.init, encoder, item_shape=shape))(jax.random.key(0))


@functools.cache
def jitted(encoder, train=False):
    return jax.jit(functools.partial(encode, encoder, train=train))


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize('shape, dimensions', [((28, 28, 1), 64), ((84, 84, 3), 1600)])
def test_size_of_conv4(shape, dimensions):
    params, batch_stats = encoders.shapes(Conv4(kernels=False), shape)
    assert encoders.dimensions(Conv4(kernels=False), shape) == dimensions
    assert count(params) == 9 * shape[-1] * 64 + 2 * 64 + 3 * (9 * 64 * 64 + 2 * 64)
    assert count(batch_stats) == 4 * 2 * 64
    with pytest.raises(ValueError, match='too large'):  # in a file of weights
        encoders.dimensions(Conv4(), (9999, 9999, 1))


def test_conv4_is_four_blocks_on_scaled_pixels():
    params, batch_stats = fresh()
    x = jnp.asarray(IMAGES / 255, jnp.float32)
    for name, stats in batch_stats.items():
        x, _ = jax.jit(block.apply)(x, **params[name], statistics=block.Statistics(**stats))
    embeddings, unchanged = jitted(SMALL)(params, batch_stats, IMAGES)
    np.testing.assert_allclose(embeddings, x.reshape(6, 8), rtol=1e-5, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, unchanged, batch_stats)


def test_the_sphere_about_the_running_mean_by_hand():
    plain, on_sphere = SMALL, SMALL.clone(sphere=True, scale=0.5)
    params, old = fresh(plain)
    assert jax.tree.structure(fresh(on_sphere)[0]) == jax.tree.structure(params)
    stats = {**old, 'Sphere_0': fresh(on_sphere)[1]['Sphere_0']}
    mean, radius = np.zeros(8), 1.0
    for images in (IMAGES[:3], IMAGES[3:]):
        as_they_are, old = jitted(plain, train=True)(params, old, images)
        mean = 0.9 * mean + 0.1 * np.mean(as_they_are, 0)
        radius = 0.9 * radius + 0.1 * np.mean([np.linalg.norm(x - np.mean(as_they_are, 0)) for x in as_they_are])
        in_training, stats = jitted(on_sphere, train=True)(params, stats, images)
        np.testing.assert_allclose(in_training, 0.5 * as_they_are, rtol=1e-5)
    for x, y in zip(jitted(plain)(params, old, IMAGES)[0], jitted(on_sphere)(params, stats, IMAGES)[0], strict=True):
        np.testing.assert_allclose(y, 0.5 * radius * (x - mean) / np.linalg.norm(x - mean), rtol=1e-4, atol=1e-6)


def test_flip_averaging_is_the_mean_over_an_image_and_its_mirror_image_but_not_in_training():
    params, stats = fresh()
    averaging = SMALL.clone(two_sided=True)
    sides = [jitted(SMALL)(params, stats, images)[0] for images in (IMAGES, IMAGES[:, :, ::-1])]
    assert np.abs(sides[0] - sides[1]).max() > 1e-3
    np.testing.assert_allclose(jitted(averaging)(params, stats, IMAGES)[0], np.mean(sides, 0), rtol=1e-4, atol=1e-6)
    in_training = [jitted(one, train=True)(params, stats, IMAGES)[0] for one in (SMALL, averaging)]
    np.testing.assert_array_equal(*in_training)


def test_the_sphere_of_several_devices_is_that_of_one():
    encoder = SMALL.clone(sphere=True)
    params, stats = fresh(encoder)
    _, expected = jitted(encoder, train=True)(params, stats, IMAGES)
    share = functools.partial(encode, encoder, params, stats, train=True, axis_name='devices')
    _, found = jax.jit(jax.vmap(share, axis_name='devices', out_axes=(0, None)))(IMAGES.reshape(3, 2, *SHAPE))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), found, expected)


def test_fresh_parameters_as_when_the_paper_was_written():
    params = [fresh(Conv4(kernels=False), (16, 16, 3))[0][f'ConvBlock_{i}'] for i in range(4)]
    for channels, block_params in zip((3, 64, 64, 64), params, strict=True):
        kernel, bound = np.asarray(block_params['kernel']), (9 * channels) ** -0.5
        assert np.abs(kernel).max() <= bound
        np.testing.assert_allclose(np.std(kernel), bound / 3**0.5, rtol=0.1)
    shares, _ = np.histogram(np.concatenate([p['scale'] for p in params]), 4, (0, 1))
    assert (np.abs(shares - 64) < 24).all() and shares.sum() == 256  # four equal parts, within 3.5 deviations


def test_running_statistics_by_hand():
    params, batch_stats = fresh()
    kernel = np.asarray(params['ConvBlock_0']['kernel'], np.float64)
    mean, var = np.zeros(8), np.ones(8)
    for images in (IMAGES[:3], IMAGES[3:], IMAGES[1:4]):
        padded = np.pad(images / 255, ((0, 0), (1, 1), (1, 1), (0, 0)))
        y = sum(padded[:, i : i + 16, j : j + 16] @ kernel[i, j] for i in range(3) for j in range(3))
        mean, var = 0.9 * mean + 0.1 * y.mean((0, 1, 2)), 0.9 * var + 0.1 * y.var((0, 1, 2))
        _, batch_stats = jitted(SMALL, train=True)(params, batch_stats, images)
        np.testing.assert_allclose(batch_stats['ConvBlock_0']['mean'], mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(batch_stats['ConvBlock_0']['var'], var, rtol=1e-4)


def test_training_uses_the_batch_and_testing_the_running_statistics():
    params, old = fresh()
    in_training, new = jitted(SMALL, train=True)(params, old, IMAGES)
    of_the_batch = jax.tree.map(lambda a, b: (np.asarray(b) - 0.9 * np.asarray(a)) / 0.1, old, new)
    np.testing.assert_allclose(jitted(SMALL)(params, of_the_batch, IMAGES)[0], in_training, rtol=1e-3, atol=1e-4)
    together, alone = (jitted(SMALL)(params, new, images)[0] for images in (IMAGES, IMAGES[:3]))
    assert np.abs(together - in_training).max() > 0.01
    np.testing.assert_allclose(alone, together[:3], rtol=1e-4, atol=1e-5)


def test_bfloat16_stays_near_float32():
    half = SMALL.clone(dtype=jnp.bfloat16)
    params, batch_stats = fresh()
    jax.tree.map(np.testing.assert_array_equal, fresh(half), fresh())
    expected, expected_stats = jitted(SMALL, train=True)(params, batch_stats, IMAGES)
    embeddings, stats = jitted(half, train=True)(params, batch_stats, IMAGES)
    np.testing.assert_allclose(embeddings, expected, atol=0.1)
    assert np.abs(embeddings - expected).max() > 1e-5  # it does compute in half precision
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=0.02), stats, expected_stats)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(encode(half, p, batch_stats, IMAGES, train=True)[0])))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves((embeddings, stats, gradient))} == {jnp.dtype('float32')}


def test_pixels_are_normalised_by_channel():
    mean, std = (0.1, 0.5, 0.7), (0.2, 0.3, 0.4)
    images = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    variables = fresh(SMALL, (16, 16, 3))
    normalised = np.asarray(((images / 255) - mean) / std * 255, np.float32)  # which the plain encoder divides by 255
    expected = jitted(SMALL)(*variables, normalised)[0]
    found = jitted(SMALL.clone(mean=mean, std=std))(*variables, images)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_linear_map():
    x = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
    params, batch_stats = fresh(LinearMap(7), (5,))
    assert batch_stats == {}
    params = {'Dense_0': {'kernel': params['Dense_0']['kernel'], 'bias': jnp.arange(7.0)}}
    expected = (x - 0.5) / 2 @ np.asarray(params['Dense_0']['kernel']) + np.arange(7.0)[None]
    plain, unit = (LinearMap(7, mean=(0.5,), scale=2.0, unit_length=unit) for unit in (False, True))
    np.testing.assert_allclose(encode(plain, params, {}, x)[0], expected, rtol=1e-5, atol=1e-5)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encode(unit, params, {}, x)[0], expected / lengths, rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda p: jnp.sum(encode(unit, p, {}, x)[0]))(jax.tree.map(jnp.zeros_like, params))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_resnet12_block_by_hand():
    """Evaluate a single block on random statistics, written out with NumPy."""
    encoder, rng = ResNet12(widths=(4,)), np.random.default_rng(0)
    params, stats = jax.tree.map(
        lambda s: rng.uniform(0.5, 1.5, s.shape).astype(np.float32), encoders.shapes(encoder, (6, 6, 1))
    )
    images = rng.integers(0, 256, (2, 6, 6, 1), dtype=np.uint8)

    def layer(x, number):
        own, statistics = params['ResidualBlock_0'], stats['ResidualBlock_0'][f'BatchNorm_{number}']
        kernel, norm = own[f'Conv_{number}']['kernel'], own[f'BatchNorm_{number}']
        size, margin = len(kernel), (len(kernel) // 2,) * 2
        padded = np.pad(x, ((0, 0), margin, margin, (0, 0)))
        y = sum(padded[:, i : i + 6, j : j + 6] @ kernel[i, j] for i in range(size) for j in range(size))
        return (y - statistics['mean']) / np.sqrt(statistics['var'] + 1e-5) * norm['scale'] + norm['bias']

    def leaky(x):
        return np.where(x > 0, x, 0.1 * x)

    x = images / 255
    x = leaky(layer(leaky(layer(leaky(layer(x, 1)), 2)), 3) + layer(x, 0))
    expected = x.reshape(2, 3, 2, 3, 2, 4).max((2, 4)).mean((1, 2))
    np.testing.assert_allclose(jitted(encoder)(params, stats, images)[0], expected, rtol=1e-4, atol=1e-5)


def test_items_of_another_form_are_rejected_and_dark_images_accepted():
    for items, hint in (
        (IMAGES[0], r'add the batch axis: items\[None\]'),
        (IMAGES.repeat(3, -1), r'expected items of shape \[N, 16, 16, 1\].* resize'),
        (np.full((2, *SHAPE), 0.9, np.float32), 'got a maximum of 0.9; multiply by 255'),
    ):
        with pytest.raises(ValueError, match=hint):
            encode(SMALL.clone(item_shape=SHAPE), *fresh(), items)
    for images in (IMAGES // 255, IMAGES * np.float32(0)):
        encoders.check(SMALL, images)


def test_a_setting_is_a_string_only_if_its_default_is_one():
    class Initialised(Conv4):
        settings = ('kernel_init', *Conv4.settings)

    encoders.check_settings(Initialised(kernel_init='he_normal'))
    with pytest.raises(TypeError, match='str'):
        encoders.check_settings(Initialised(filters='64'))
