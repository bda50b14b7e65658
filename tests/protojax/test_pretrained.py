"""Weights in files: what is saved comes back, and what is damaged or foreign is refused in one line."""

import dataclasses
import functools
import json
import struct

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy

import protojax
from experiments.running.config import ConfigError
from experiments.running.own_images import load_weights_for_own_images
from protojax import files, pretrained
from protojax.encoders import EfficientNetLite, LinearMap, ResNet12, initialize_shapes
from protojax.errors import WeightsError
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained

SHAPE = (16, 16, 1)


@pytest.fixture(scope='module')
def original():
    encoder = protojax.Conv4(filters=8, mean=(0.25,), std=(0.5,), scale=0.125)
    return Pretrained(encoder, *protojax.initialize(encoder, jax.random.key(3), SHAPE), {'seed': 3})


@pytest.fixture
def file(tmp_path, original):
    save_pretrained(tmp_path / 'weights.safetensors', original, SHAPE)
    return tmp_path / 'weights.safetensors'


def images():
    return np.random.default_rng(0).integers(0, 256, (3, *SHAPE)).astype(np.uint8)


def test_what_is_saved_comes_back(file, original):
    loaded = load_pretrained(file)
    np.testing.assert_array_equal(loaded.embed(images()), original.embed(images()))
    assert loaded.description['seed'] == 3
    assert (loaded.encoder.mean, loaded.encoder.filters, loaded.encoder.scale) == ((0.25,), 8, 0.125)


def test_the_encoder_can_be_a_static_argument(file):
    loaded = load_pretrained(file)
    embed = jax.jit(lambda encoder, *args: protojax.encode(encoder, *args)[0], static_argnums=0)
    found = embed(loaded.encoder, loaded.params, loaded.batch_stats, images())
    np.testing.assert_allclose(found, loaded.embed(images()), rtol=1e-5, atol=1e-6)


def test_all_that_is_loaded_can_be_a_static_argument(file):
    loaded = load_pretrained(file)
    calls = []

    def embed(weights, items):
        calls.append(items.shape)
        return weights.embed(items)

    compiled = jax.jit(embed, static_argnums=0)
    for _ in range(2):
        np.testing.assert_allclose(compiled(loaded, images()), loaded.embed(images()), rtol=1e-5, atol=1e-6)
    assert calls == [images().shape]
    changed = dataclasses.replace(loaded, params=jax.tree.map(lambda leaf: leaf + 1, loaded.params))
    assert np.abs(compiled(changed, images()) - loaded.embed(images())).max() > 0.01


def test_weights_take_images_of_the_size_that_they_were_saved_with(file):
    loaded = load_pretrained(file)
    assert loaded.encoder.item_shape == SHAPE
    with pytest.raises(ValueError, match=r'takes \[N, 16, 16, 1\]'):
        loaded.embed(np.zeros((2, 32, 32, 1), np.uint8))


def test_plain_lists_can_be_embedded(original):
    np.testing.assert_allclose(original.embed(images().tolist()), original.embed(images()), rtol=1e-5, atol=1e-6)


def test_no_items_have_no_embeddings(original):
    assert original.embed(images()[:0]).shape == (0, 8)


def test_what_is_loaded_can_be_changed_and_saved_again(file):
    loaded = load_pretrained(file)
    params = jax.tree.map(lambda leaf: leaf + 1, loaded.params)
    save_pretrained(file, dataclasses.replace(loaded, params=params), SHAPE)
    again = load_pretrained(file)
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    assert again.description['seed'] == 3


def test_both_maps_of_zero_shot_learning_come_back(tmp_path):
    image_map, attribute_map = LinearMap(4, mean=(1.0, 2.0), scale=3.0), LinearMap(4, item_shape=(5,))
    params, _ = protojax.initialize(image_map, jax.random.key(0), (1, 2))
    classifier, _ = protojax.initialize(attribute_map, jax.random.key(1), (5,))
    path = tmp_path / 'zero.safetensors'
    save_pretrained(path, Pretrained(image_map, params, {}, {}, attribute_map, classifier), (1, 2))
    loaded = load_pretrained(path)
    assert (loaded.encoder.mean, loaded.encoder.scale) == ((1.0, 2.0), 3.0)
    attributes = np.ones((2, 5), np.float32)
    expected = protojax.encode(attribute_map, classifier, {}, attributes)[0]
    np.testing.assert_array_equal(
        protojax.encode(loaded.attribute_encoder, loaded.classifier, {}, attributes)[0], expected
    )
    known = protojax.zero_shot_known_classes(
        loaded.embed_attributes(attributes + np.eye(2, 5, dtype=np.float32)), ['a', 'b']
    )
    assert known.sums.shape == (2, 4) and np.abs(known.sums[0] - known.sums[1]).max() > 0
    with pytest.raises(ValueError, match='know no attributes'):
        protojax.load_pretrained('omniglot-60way-1shot').embed_attributes(attributes)


class Mine(nn.Module):
    """An encoder that the package does not know."""

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        return nn.Dense(3)(x.reshape(len(x), -1).astype(np.float32))


def test_an_encoder_that_the_package_does_not_know(tmp_path):
    variables = protojax.initialize(Mine(), jax.random.key(0), SHAPE)
    path = tmp_path / 'mine.safetensors'
    save_pretrained(path, Pretrained(Mine(), *variables, {}), SHAPE)
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(path, encoder=Mine()).params, variables[0])
    with pytest.raises(WeightsError, match='is a Mine, which protojax does not know; pass it as encoder=$'):
        load_pretrained(path)
    with pytest.raises(WeightsError, match='ConvBlock_0/bias is missing.*pass the encoder of its training'):
        load_pretrained(path, encoder=protojax.Conv4())


class Uncertain(nn.Module):
    """An encoder with a statistic that is negative by right."""

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        logvar = self.variable('batch_stats', 'logvar', lambda: np.full((2,), -3, np.float32))
        return nn.Dense(2)(x.reshape(len(x), -1).astype(np.float32)) * logvar.value[None]


def test_only_a_statistic_called_var_is_a_variance(tmp_path):
    variables = protojax.initialize(Uncertain(), jax.random.key(0), SHAPE)
    path = tmp_path / 'uncertain.safetensors'
    save_pretrained(path, Pretrained(Uncertain(), *variables, {}), SHAPE)
    np.testing.assert_array_equal(load_pretrained(path, encoder=Uncertain()).batch_stats['logvar'], [-3, -3])


def test_an_unknown_name_lists_the_way_out():
    with pytest.raises(WeightsError, match='there are no weights omniglot-1000way.*omniglot-60way-1shot'):
        load_pretrained('omniglot-1000way')


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def flip_in_description(file):
    content = bytearray(file.read_bytes())
    place = content.index(b'0.25')
    content[place] = ord('7')
    file.write_bytes(content)


def boastful(file):
    """An array of which there is nothing but the claim to be large."""
    header = json.dumps({'x': {'dtype': 'F32', 'shape': [2**40], 'data_offsets': [0, 2**42]}}).encode()
    file.write_bytes(struct.pack('<Q', len(header)) + header)


def resaved(file, change):
    """The file with other contents, and a digest that fits them."""
    weights = load_pretrained(file)
    save_pretrained(file, change(weights), SHAPE)


def scaled(weights, part, factor):
    return dataclasses.replace(
        weights, **{part: jax.tree.map(lambda leaf: leaf * np.float32(factor), getattr(weights, part))}
    )


def with_encoder(weights, **settings):
    return dataclasses.replace(weights, encoder=weights.encoder.clone(**settings))


def described(file, item_shape=SHAPE, encoder=None, **description):
    """The file with another description, and a digest that fits it."""
    weights = load_pretrained(file)
    weights = with_encoder(weights, **encoder) if encoder else weights
    save_pretrained(file, dataclasses.replace(weights, description={**weights.description, **description}), item_shape)


def rearranged(file, change):
    """The arrays changed under the old description."""
    content = file.read_bytes()
    (length,) = struct.unpack('<Q', content[:8])
    arrays = safetensors.numpy.load(content)
    change(arrays)
    file.write_bytes(safetensors.numpy.save(arrays, json.loads(content[8 : 8 + length])['__metadata__']))


DAMAGE = {
    'truncated': lambda file: file.write_bytes(file.read_bytes()[:-100]),
    'flipped': flip,
    'flipped in the description': flip_in_description,
    'empty': lambda file: file.write_bytes(b''),
    'foreign': lambda file: file.write_text('hello'),
    'boastful': boastful,
    'not a number': lambda file: resaved(file, functools.partial(scaled, part='params', factor='nan')),
    'negative variance': lambda file: resaved(file, functools.partial(scaled, part='batch_stats', factor=-1)),
    'mean not a number': lambda file: resaved(file, functools.partial(with_encoder, mean=(float('nan'),))),
    'deviation zero': lambda file: resaved(file, functools.partial(with_encoder, std=(0.0,))),
    'endless images': lambda file: described(file, item_shape=(100_000, 100_000, 1)),
    'large images': lambda file: described(file, item_shape=(2000, 2000, 1)),
    'images of nothing': lambda file: described(file, item_shape=(0, 16, 1)),
    'parts of pixels': lambda file: described(file, item_shape=(16.0, 16, 1)),
    'two kinds of images': lambda file: described(file, encoder={'item_shape': (32, 32, 1)}),
    'results without names': lambda file: described(file, results=[]),
    'settings without names': lambda file: described(file, results={'config': []}),
    'endless results': lambda file: described(file, results={'config': {'way': 'é' * 11_000}}),
    'endless classes': lambda file: described(file, trained_on={'x' * 70_000: 1}),
    'other filters': lambda file: resaved(file, functools.partial(with_encoder, filters=9)),
    'another array': lambda file: rearranged(file, lambda a: a.update({k: v + 1 for k, v in a.items()})),
    'missing array': lambda file: rearranged(file, lambda a: a.pop(next(k for k in a if 'kernel' in k))),
    'no description': lambda file: file.write_bytes(safetensors.numpy.save({'x': np.zeros(3, np.float32)})),
}


def resealed(file, arrays=None, items=SHAPE, attribute_encoder=None, **settings):
    """The file with other arrays and settings, whatever they are, and a digest that fits them."""
    found, description = files.read_arrays(file, largest=1 << 30)
    found |= arrays or {}
    description['encoder'] |= settings
    description['item_shape'] = list(items)
    if attribute_encoder is not None:
        description['attribute_encoder'] = attribute_encoder
    description['digest'] = pretrained._pretrained_digest(description, found)
    files.write_arrays(file, found, description)


ONES = np.ones(2, np.float32)
ATTRIBUTES = {'kind': 'LinearMap', 'dimensions': 8, 'item_shape': [5]}
DENSE = {'classifier/Dense_0/kernel': np.ones((5, 8), np.float32), 'classifier/Dense_0/bias': np.ones(8, np.float32)}
REFUSED = {
    'an array of no part': {'arrays': {'other/x': ONES}},
    'an array without a name': {'arrays': {'classifier/': ONES}},
    'a deep tree': {'arrays': {'classifier' + 8 * '/a': ONES}},
    'an array within an array': {'arrays': {'params/ConvBlock_0/kernel/x': ONES}},
    'a large array': {'arrays': {'params/ConvBlock_0/bias': np.full(8, 1e19, np.float32)}},
    'floats as its shape': {'item_shape': [16.0, 16.0, 1.0]},
    'a truth as its shape': {'item_shape': [16, 16, True]},
    'four axes': {'items': [1, 16, 16, 1]},
    'no axes': {'items': []},
    'a float of filters': {'filters': 8.0},
    'a list of filters': {'filters': [8]},
    'no filters': {'filters': None},
    'a number as a truth': {'sphere': 0},
    'a list as a truth': {'sphere': []},
    'a truth as a number': {'scale': True},
    'a list as a number': {'scale': [1.0]},
    'a text as a number': {'scale': 'x'},
    'a number as a list': {'mean': 0.25},
    'a scale beyond float32': {'scale': 1e300},
    'a scale below float32': {'scale': 1e-300},
    'a mean beyond float32': {'mean': [-1e300]},
    'a deviation below float32': {'std': [1e-40]},
    'no mean': {'mean': []},
    'no layers': {'kind': 'ResNet12', 'widths': []},
    'a mean of other channels': {'mean': [0.0, 0.0, 0.0]},
    'a deviation of other channels': {'std': [1.0, 1.0]},
    'attributes in other dimensions': {'attribute_encoder': ATTRIBUTES | {'dimensions': 9}, 'arrays': DENSE},
    'attributes without a shape': {'attribute_encoder': ATTRIBUTES | {'item_shape': None}, 'arrays': DENSE},
    'attributes without weights': {'attribute_encoder': ATTRIBUTES},
    'attributes that are images': {'attribute_encoder': {'kind': 'Conv4', 'filters': 8, 'item_shape': [16, 16, 1]}},
}


@pytest.mark.parametrize('change', REFUSED)
def test_impossible_contents_are_refused_though_their_digest_fits(file, change):
    resealed(file, **REFUSED[change])
    with pytest.raises(WeightsError, match='get it again') as error:
        load_pretrained(file)
    assert '\n' not in str(error.value)


def test_possible_contents_are_not(file):
    resealed(file, attribute_encoder=ATTRIBUTES, arrays=DENSE, mean=[0], sphere=False, item_shape=[16, 16, 1])
    assert load_pretrained(file).embed_attributes(np.ones((2, 5))).shape == (2, 8)


@pytest.mark.parametrize(
    ('encoder', 'shape', 'why'),
    [
        (protojax.Conv4(filters=2), (8, 8, 1), 'embedding of shape'),
        (LinearMap(2), (4, 4, 1), 'embedding of shape'),
        (ResNet12(widths=(2, 2)), (3, 3, 1), 'too small for 2 blocks'),
    ],
)
def test_encoders_without_embeddings_are_refused(file, encoder, shape, why):
    with jax.numpy_rank_promotion('allow'):  # as it is for users, unlike in these tests
        params, batch_stats = ones(encoder, (4, 4, 1) if 'small' in why else shape)
        save_pretrained(file, Pretrained(encoder, params, batch_stats, {}), shape)
        with pytest.raises(WeightsError, match=why):
            load_pretrained(file)


def ones(encoder, shape):
    return jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), initialize_shapes(encoder, shape))


@pytest.mark.parametrize('radius', [0.0, -1.0])
def test_a_sphere_has_a_radius(file, radius):
    encoder = protojax.Conv4(filters=2, sphere=True)
    params, batch_stats = ones(encoder, SHAPE)
    save_pretrained(file, Pretrained(encoder, params, batch_stats, {}), SHAPE)
    assert load_pretrained(file).encoder.sphere
    batch_stats['Sphere_0']['radius'] = np.full((), radius, np.float32)
    save_pretrained(file, Pretrained(encoder, params, batch_stats, {}), SHAPE)
    with pytest.raises(WeightsError, match='radius is not positive'):
        load_pretrained(file)


@pytest.mark.parametrize('crop', [5, 0, -1.0, 1e-9, True, [0.5], '1'])
def test_a_crop_is_a_part_of_the_image(file, original, crop):
    save_pretrained(file, dataclasses.replace(original, encoder=EfficientNetLite(crop=crop)), SHAPE)
    with pytest.raises(WeightsError, match='the encoder has crop='):
        load_pretrained(file)


def test_what_a_classifier_has_learned_may_be_one_array(file, original):
    learned = np.arange(3, dtype=np.float32)
    save_pretrained(file, dataclasses.replace(original, classifier=learned), SHAPE)
    np.testing.assert_array_equal(load_pretrained(file).classifier, learned)
    with pytest.raises(ConfigError, match='squared Euclidean distances alone'):
        load_weights_for_own_images(str(file))


@pytest.mark.parametrize('damage', DAMAGE)
def test_damaged_and_foreign_files_are_refused(file, damage):
    DAMAGE[damage](file)
    with pytest.raises(WeightsError, match='get it again') as error:
        load_pretrained(file)
    assert '\n' not in str(error.value)


def test_a_file_that_is_too_large_is_not_read(file, monkeypatch):
    monkeypatch.setattr(pretrained, 'LARGEST', 1000)
    with pytest.raises(WeightsError, match='more than 1000'):
        load_pretrained(file)


def test_a_long_header_is_not_parsed(file, monkeypatch):
    monkeypatch.setattr(files, 'LONGEST_HEADER', 100)
    with pytest.raises(WeightsError, match='far more than 100'):
        load_pretrained(file)


def test_large_items_are_embedded_fewer_at_a_time(original, monkeypatch):
    expected = original.embed(images())
    sizes, embed = [], pretrained._embed_items
    monkeypatch.setattr(pretrained, '_embed_items', lambda *given: (sizes.append(len(given[-1])), embed(*given))[1])
    monkeypatch.setattr(pretrained, 'BATCH_NUMBERS', 3 * 16 * 16)
    np.testing.assert_allclose(original.embed(images()), expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(pretrained, 'BATCH_NUMBERS', 1)
    original.embed(images())
    assert sizes == [2, 1, 1, 1, 1]


@pytest.mark.parametrize('encoder', [EfficientNetLite(depth=1e9), ResNet12(widths=(2,) * 2000)])
def test_an_endless_encoder_is_not_built(file, original, encoder):
    save_pretrained(file, dataclasses.replace(original, encoder=encoder), SHAPE)
    with pytest.raises(WeightsError, match='far more than 8 layers'):
        load_pretrained(file)


@pytest.mark.parametrize('name', ['~nobody-here/w.safetensors', 'x' * 5000 + '.safetensors', 'a\0b.safetensors'])
def test_names_that_no_file_can_have_are_names_of_nothing(name):
    with pytest.raises(WeightsError, match='there are no weights'):
        load_pretrained(name)
