"""Weights in files: exact round trips; corrupted and untrusted files are rejected in one line."""

import dataclasses
import json
import struct

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy

import protojax
from protojax import encoders, files, pretrained
from protojax.encoders import Conv4, LinearMap
from protojax.errors import WeightsError
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained

SHAPE = (16, 16, 1)
IMAGES = np.random.default_rng(0).integers(0, 256, (3, *SHAPE)).astype(np.uint8)


@pytest.fixture(scope='module')
def original():
    encoder = Conv4(filters=8, mean=(0.25,), std=(0.5,), scale=0.125, sphere=True)
    variables = encoders.init(encoder, jax.random.key(3), SHAPE)
    return Pretrained(encoder, *variables, {'seed': 3}, classifier=np.arange(3, dtype=np.float32))


@pytest.fixture
def file(tmp_path, original):
    save_pretrained(tmp_path / 'weights.safetensors', original, SHAPE)
    return tmp_path / 'weights.safetensors'


def test_round_trip(file, original):
    loaded = load_pretrained(file)
    np.testing.assert_array_equal(loaded.embed(IMAGES), original.embed(IMAGES))
    np.testing.assert_array_equal(loaded.classifier, original.classifier)
    assert loaded.description['seed'] == 3
    assert loaded.encoder == original.encoder.clone(item_shape=SHAPE)
    assert loaded.embed(IMAGES[:0]).shape == (0, 8)


def test_both_encoders_of_zero_shot_learning(tmp_path):
    image_map, attribute_map = LinearMap(4, mean=(1.0, 2.0), scale=3.0), LinearMap(4, item_shape=(5,))
    params, _ = encoders.init(image_map, jax.random.key(0), (1, 2))
    classifier, _ = encoders.init(attribute_map, jax.random.key(1), (5,))
    path = tmp_path / 'zero.safetensors'
    save_pretrained(path, Pretrained(image_map, params, {}, {}, attribute_map, classifier), (1, 2))
    loaded = load_pretrained(path)
    assert (loaded.encoder.mean, loaded.encoder.scale) == ((1.0, 2.0), 3.0)
    attributes = np.eye(2, 5, dtype=np.float32)
    expected = encoders.encode(attribute_map, classifier, {}, attributes)[0]
    np.testing.assert_array_equal(loaded.embed_attributes(attributes), expected)


def test_loaded_weights_can_be_a_static_argument(file):
    loaded = load_pretrained(file)
    changed = dataclasses.replace(loaded, params=jax.tree.map(lambda leaf: leaf + 1, loaded.params))
    compiled = jax.jit(Pretrained.embed, static_argnums=0)
    for weights in (loaded, changed):
        np.testing.assert_allclose(compiled(weights, IMAGES), weights.embed(IMAGES), rtol=1e-4, atol=1e-5)
    assert np.abs(changed.embed(IMAGES) - loaded.embed(IMAGES)).max() > 0.01


class Custom(nn.Module):
    """An encoder that is not part of the package."""

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        return nn.Dense(3)(x.reshape(len(x), -1).astype(np.float32))


def test_custom_encoders_are_passed_by_the_user(tmp_path):
    variables = encoders.init(Custom(), jax.random.key(0), SHAPE)
    path = tmp_path / 'custom.safetensors'
    save_pretrained(path, Pretrained(Custom(), *variables, {}), SHAPE)
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(path, encoder=Custom()).params, variables[0])
    with pytest.raises(WeightsError, match='unknown encoder Custom.*pass the encoder used in training'):
        load_pretrained(path)
    with pytest.raises(WeightsError, match='/mean: expected .*, got nothing.*pass the encoder used in training'):
        load_pretrained(path, encoder=protojax.Conv4())


@pytest.mark.parametrize(
    'name', ['omniglot-1000way', '~nobody-here/w.safetensors', 'x' * 5000 + '.safetensors', 'a\0b.safetensors']
)
def test_unknown_and_impossible_names_list_the_bundled_weights(name):
    with pytest.raises(WeightsError, match='not found.*omniglot-60way-1shot'):
        load_pretrained(name)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x07
    file.write_bytes(content)


def declare_a_huge_array(file):
    header = json.dumps({'x': {'dtype': 'F32', 'shape': [2**40], 'data_offsets': [0, 2**42]}}).encode()
    file.write_bytes(struct.pack('<Q', len(header)) + header)


def changed(arrays=None, settings=None, **description):
    """Return a function that changes arrays, settings of the encoder and metadata, with a matching digest."""

    def change(file):
        found, about = files.read_arrays(file)
        found |= arrays or {}
        about |= description
        about['encoder'] |= settings or {}
        about['digest'] = pretrained.digest(about, found)
        files.write_arrays(file, found, about)

    return change


ONES = np.ones(8, np.float32)
ATTRIBUTES = {'kind': 'LinearMap', 'dimensions': 8, 'item_shape': [5]}
DENSE = {'classifier/Dense_0/kernel': np.ones((5, 8), np.float32), 'classifier/Dense_0/bias': np.ones(8, np.float32)}
UNUSABLE = {
    'truncated': lambda file: file.write_bytes(file.read_bytes()[:-100]),
    'flipped': flip,
    'flipped in the metadata': lambda file: file.write_bytes(file.read_bytes().replace(b'0.25', b'0.24')),
    'another format': lambda file: file.write_text('hello'),
    'huge': declare_a_huge_array,
    'no metadata': lambda file: file.write_bytes(safetensors.numpy.save({'x': np.zeros(3, np.float32)})),
    'not a number': changed({'params/ConvBlock_0/bias': np.nan * ONES}),
    'additional array': changed({'params/ConvBlock_0/more': ONES}),
    'another type': changed({'params/ConvBlock_0/bias': ONES.astype(np.float64)}),
    'empty images': changed(item_shape=[0, 16, 1]),
    'two image sizes': changed(settings={'item_shape': [32, 32, 1]}),
    'results without names': changed(results=[]),
    'text as a number': changed(settings={'scale': 'x'}),
    'scale of NaN': changed(settings={'scale': float('nan')}),
    'endless depth': changed(settings={'kind': 'EfficientNetLite', 'depth': 1e9}),
    'mean of other channels': changed(settings={'mean': [0.0, 0.0, 0.0]}),
    'attributes in other dimensions': changed(DENSE, attribute_encoder=ATTRIBUTES | {'dimensions': 9}),
    'attributes without a shape': changed(DENSE, attribute_encoder=ATTRIBUTES | {'item_shape': None}),
}


@pytest.mark.parametrize('name', UNUSABLE)
def test_unusable_files_are_rejected_in_one_line(file, name):
    UNUSABLE[name](file)
    with pytest.raises(WeightsError, match='download it again') as error:
        load_pretrained(file)
    assert '\n' not in str(error.value)


def test_items_are_embedded_in_batches_of_two_sizes(original, monkeypatch):
    expected, embed, sizes = original.embed(IMAGES), pretrained._embed, []
    spied = lambda *key: lambda *given: (sizes.append(len(given[-1])), embed(*key)(*given))[1]  # noqa: E731
    monkeypatch.setattr(pretrained, '_embed', spied)
    monkeypatch.setattr(pretrained, 'BATCH_NUMBERS', 4 * 16 * 16)
    for copies in (1, 3):
        found = original.embed(np.tile(IMAGES, (copies, 1, 1, 1)))
        np.testing.assert_allclose(found, np.tile(expected, (copies, 1)), rtol=1e-5, atol=1e-6)
    assert sizes == [4, 4, 4, 1]  # one batch padded, two and one item
