"""Encoders: sizes, running statistics worked out by hand, modes, types and pixel scaling."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax.encoders import Conv4, LinearMap, ResNet12, encode, initialize
from protojax.encoders import block as blocks

SMALL = Conv4(filters=8, kernels=False)  # on 16x16 images four blocks leave one pixel
SHAPE = (16, 16, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


@functools.cache
def fresh(encoder=SMALL, shape=SHAPE):
    return jax.jit(functools.partial(initialize, encoder, item_shape=shape))(jax.random.key(0))


@functools.cache
def jitted(encoder, train=False):
    return jax.jit(functools.partial(encode, encoder, train=train))


@pytest.mark.parametrize('shape, dimensions', [((28, 28, 1), 64), ((84, 84, 3), 1600)])
def test_size_of_conv4(shape, dimensions):
    encoder = Conv4(kernels=False)
    images = jax.ShapeDtypeStruct((2, *shape), jnp.uint8)
    params, batch_stats = jax.eval_shape(functools.partial(initialize, encoder, item_shape=shape), jax.random.key(0))
    embeddings, _ = jax.eval_shape(functools.partial(encode, encoder), params, batch_stats, images)
    assert embeddings.shape == (2, dimensions)
    first, rest = 9 * shape[-1] * 64 + 2 * 64, 9 * 64 * 64 + 2 * 64
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == first + 3 * rest
    assert sum(leaf.size for leaf in jax.tree.leaves(batch_stats)) == 4 * 2 * 64


def test_conv4_is_four_blocks_on_scaled_pixels():
    params, batch_stats = fresh()
    x = jnp.asarray(IMAGES / 255, jnp.float32)
    for i in range(4):
        p, s = params[f'ConvBlock_{i}'], batch_stats[f'ConvBlock_{i}']
        x = jax.jit(blocks.fixed_block)(
            x, p['kernel'], p['scale'], p['bias'], blocks.BlockStatistics(s['mean'], s['var'])
        )
    embeddings, unchanged = jitted(SMALL)(params, batch_stats, IMAGES)
    np.testing.assert_allclose(embeddings, x.reshape(6, 8), rtol=1e-5, atol=1e-6)
    assert np.abs(embeddings).max() > 0
    jax.tree.map(np.testing.assert_array_equal, unchanged, batch_stats)


def test_the_scale_multiplies_embeddings():
    params, batch_stats = fresh()
    expected, _ = jitted(SMALL)(params, batch_stats, IMAGES)
    scaled, _ = jitted(SMALL.clone(scale=0.125))(params, batch_stats, IMAGES)
    np.testing.assert_array_equal(scaled, 0.125 * expected)
    assert expected.max() > 0


@pytest.mark.parametrize('encoder', [SMALL, ResNet12(widths=(4, 8))])
def test_the_sphere_about_the_running_mean_by_hand(encoder):
    plain, on_sphere = encoder, encoder.clone(sphere=True, scale=0.5)
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


@pytest.mark.parametrize('encoder', [SMALL, ResNet12(widths=(4, 4, 4, 8))])
def test_two_sided_embeddings_are_means_over_an_image_and_its_mirror_image_at_test_alone(encoder):
    params, stats = fresh(encoder)
    two_sided = encoder.clone(two_sided=True)
    sides = [jitted(encoder)(params, stats, images)[0] for images in (IMAGES, IMAGES[:, :, ::-1])]
    assert np.abs(sides[0] - sides[1]).max() > 1e-3
    np.testing.assert_allclose(jitted(two_sided)(params, stats, IMAGES)[0], np.mean(sides, 0), rtol=1e-4, atol=1e-6)
    in_training = [jitted(one, train=True)(params, stats, IMAGES)[0] for one in (encoder, two_sided)]
    np.testing.assert_array_equal(*in_training)


def test_the_sphere_of_several_devices_is_that_of_one():
    encoder = SMALL.clone(sphere=True)
    params, stats = fresh(encoder)
    _, expected = jitted(encoder, train=True)(params, stats, IMAGES)
    share = functools.partial(encode, encoder, params, stats, train=True, axis_name='devices')
    _, found = jax.jit(jax.vmap(share, axis_name='devices'))(IMAGES.reshape(3, 2, *SHAPE))
    for device in range(3):
        jax.tree.map(
            lambda one, many, device=device: np.testing.assert_allclose(many[device], one, rtol=1e-4, atol=1e-6),
            expected,
            found,
        )


def test_scales_of_the_last_block_may_start_smaller():
    usual, smaller = (fresh(SMALL.clone(last_scale=factor))[0] for factor in (1.0, 0.25))
    smaller['ConvBlock_3']['scale'] *= 4
    jax.tree.map(np.testing.assert_array_equal, smaller, usual)


def test_fresh_parameters_by_the_usual_rules():
    encoder = Conv4(kernels=False, kernel_init='he_normal', scale_init='ones')
    params, batch_stats = fresh(encoder, (16, 16, 3))
    for i in range(4):
        p, s = params[f'ConvBlock_{i}'], batch_stats[f'ConvBlock_{i}']
        assert (np.asarray(p['scale']) == 1).all()
        assert (np.asarray(p['bias']) == 0).all()
        assert (np.asarray(s['mean']) == 0).all()
        assert (np.asarray(s['var']) == 1).all()
        inputs = 9 * (64 if i else 3)
        np.testing.assert_allclose(np.std(p['kernel']), (2 / inputs) ** 0.5, rtol=0.1)


def test_fresh_parameters_as_when_the_paper_was_written():
    params = [fresh(Conv4(kernels=False), (16, 16, 3))[0][f'ConvBlock_{i}'] for i in range(4)]
    for i in range(4):
        kernel, bound = np.asarray(params[i]['kernel']), (9 * (64 if i else 3)) ** -0.5
        assert np.abs(kernel).max() <= bound
        np.testing.assert_allclose(np.std(kernel), bound / 3**0.5, rtol=0.1)
    scales = np.concatenate([p['scale'] for p in params])
    assert scales.min() >= 0
    assert scales.max() <= 1
    shares, _ = np.histogram(scales, 4, (0, 1))
    assert (np.abs(shares - 64) < 24).all()  # 256 draws in four equal parts, within 3.5 deviations


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
    assert np.abs(jitted(SMALL)(params, new, IMAGES)[0] - in_training).max() > 0.01
    # an image's embedding depends on its batch in training alone
    alone = jitted(SMALL)(params, new, IMAGES[:3])[0]
    np.testing.assert_allclose(alone, jitted(SMALL)(params, new, IMAGES)[0][:3], rtol=1e-4, atol=1e-5)
    assert np.abs(jitted(SMALL, train=True)(params, old, IMAGES[:3])[0] - in_training[:3]).max() > 0.01


def test_bfloat16_stays_near_float32():
    half = SMALL.clone(dtype=jnp.bfloat16)
    params, batch_stats = fresh()
    jax.tree.map(np.testing.assert_array_equal, fresh(half), fresh())
    expected, expected_stats = jitted(SMALL, train=True)(params, batch_stats, IMAGES)
    embeddings, stats = jitted(half, train=True)(params, batch_stats, IMAGES)
    assert {leaf.dtype for leaf in jax.tree.leaves((embeddings, stats, fresh(half)))} == {jnp.dtype('float32')}
    np.testing.assert_allclose(embeddings, expected, atol=0.1)
    assert np.abs(embeddings - expected).max() > 1e-5  # it does compute in half precision
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=0.02), stats, expected_stats)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(encode(half, p, batch_stats, IMAGES, train=True)[0])))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype('float32')}


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
    expected = x @ np.asarray(params['Dense_0']['kernel']) + np.arange(7.0)[None]
    np.testing.assert_allclose(encode(LinearMap(7), params, {}, x)[0], expected, rtol=1e-5, atol=1e-5)
    unit = LinearMap(7, unit_length=True)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encode(unit, params, {}, x)[0], expected / lengths, rtol=1e-5, atol=1e-5)
    nothing = jax.tree.map(jnp.zeros_like, params)
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(encode(unit, p, {}, x)[0])))(nothing)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_encode_needs_no_statistics():
    class Mean(nn.Module):
        """An encoder without parameters."""

        @nn.compact
        def __call__(self, x, *, train=False, axis_name=None):
            return x.reshape(x.shape[0], -1).mean(1, keepdims=True)

    embeddings, batch_stats = encode(Mean(), {}, {}, np.ones((2, 3, 3), np.float32), train=True)
    assert batch_stats == {}
    np.testing.assert_array_equal(embeddings, [[1], [1]])


@pytest.mark.parametrize('widths', [(64, 128, 256, 512), (64, 160, 320, 640)])
def test_size_of_resnet12(widths):
    encoder = ResNet12(widths)
    params, batch_stats = jax.eval_shape(
        functools.partial(initialize, encoder, item_shape=(84, 84, 3)), jax.random.key(0)
    )
    images = jax.ShapeDtypeStruct((2, 84, 84, 3), jnp.uint8)
    embeddings, _ = jax.eval_shape(functools.partial(encode, encoder), params, batch_stats, images)
    assert embeddings.shape == (2, widths[-1])
    channels, expected = (3, *widths), 0
    for before, after in zip(channels[:-1], widths, strict=True):
        expected += 9 * after * (before + 2 * after) + before * after + 4 * 2 * after  # kernels, scales and biases
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected


def test_resnet12_block_by_hand():
    """Evaluation of a single block on random statistics, written out with NumPy."""
    encoder = ResNet12(widths=(4,))
    params, batch_stats = initialize(encoder, jax.random.key(0), (6, 6, 1))
    rng = np.random.default_rng(0)
    batch_stats = jax.tree.map(lambda s: jnp.asarray(rng.uniform(0.5, 1.5, s.shape), jnp.float32), batch_stats)
    block, stats = params['ResidualBlock_0'], batch_stats['ResidualBlock_0']
    images = rng.integers(0, 256, (2, 6, 6, 1), dtype=np.uint8)

    def layer(x, number):
        kernel = np.asarray(block[f'Conv_{number}']['kernel'])
        size = kernel.shape[0]
        padded = np.pad(x, ((0, 0), (size // 2, size // 2), (size // 2, size // 2), (0, 0)))
        y = sum(padded[:, i : i + 6, j : j + 6] @ kernel[i, j] for i in range(size) for j in range(size))
        mean, var = (np.asarray(stats[f'BatchNorm_{number}'][name]) for name in ('mean', 'var'))
        return (y - mean) / np.sqrt(var + 1e-5)

    leaky = lambda x: np.where(x > 0, x, 0.1 * x)  # noqa: E731
    x = images / 255
    shortcut = layer(x, 0)
    x = leaky(layer(x, 1))
    x = leaky(layer(x, 2))
    x = leaky(layer(x, 3) + shortcut)
    pooled = x.reshape(2, 3, 2, 3, 2, 4).max((2, 4))
    found, _ = encode(encoder, params, batch_stats, images)
    np.testing.assert_allclose(found, pooled.mean((1, 2)), rtol=1e-4, atol=1e-5)


def test_resnet12_moves_its_running_statistics_in_training_alone():
    encoder = ResNet12(widths=(4, 8))
    params, before = fresh(encoder)
    _, after = jitted(encoder, train=True)(params, before, IMAGES)
    _, unchanged = jitted(encoder)(params, before, IMAGES)
    jax.tree.map(np.testing.assert_array_equal, unchanged, before)
    assert all(np.abs(a - b).max() > 0 for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True))


@pytest.mark.parametrize(
    'items, hint',
    [
        (np.zeros((16, 16, 1), np.uint8), r'add the batch axis: items\[None\]'),
        (np.zeros((2, 28, 28, 1), np.uint8), r'takes \[N, 16, 16, 1\]; resize'),
        (np.zeros((2, 16, 16, 3), np.uint8), r'takes \[N, 16, 16, 1\]; resize'),
        (np.full((2, 16, 16, 1), 0.9, np.float32), 'multiply them by 255'),
    ],
    ids=['no batch axis', 'another size', 'other channels', 'pixels up to 1'],
)
def test_wrong_items_are_told(items, hint):
    encoder = SMALL.clone(item_shape=SHAPE)
    with pytest.raises(ValueError, match=hint):
        encode(encoder, *fresh(), items)
    encode(encoder, *fresh(), IMAGES.astype(np.float32))  # floats from 0 to 255 will do


@pytest.mark.parametrize('kind', [np.float32, np.float64, np.uint8, bool, list])
def test_pixels_up_to_one_are_told_without_an_item_shape(kind):
    items = np.random.default_rng(0).integers(0, 2, (2, *SHAPE))
    items = items.tolist() if kind is list else items.astype(kind)
    with pytest.raises(ValueError, match='pixels go up to 1 only'):
        encode(SMALL, *fresh(), items)


@pytest.mark.parametrize('kind', [np.float32, np.uint8, bool])
def test_black_images_are_images(kind):
    black = np.zeros((2, *SHAPE), kind)
    np.testing.assert_array_equal(encode(SMALL, *fresh(), black)[0], encode(SMALL, *fresh(), 0 * IMAGES[:2])[0])


def test_images_may_be_lists():
    found, expected = (encode(SMALL, *fresh(), items)[0] for items in (IMAGES[:2].tolist(), IMAGES[:2]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
