"""Weights in files: what is saved comes back, and what is damaged or foreign is refused in one line."""

import io
import json
import zipfile

import jax
import numpy as np
import pytest

import protojax
from protojax.errors import WeightsError
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained

SHAPE = (16, 16, 1)


@pytest.fixture(scope='module')
def original():
    encoder = protojax.Conv4(filters=8, mean=(0.25,), std=(0.5,))
    return Pretrained(encoder, *protojax.initialize(encoder, jax.random.key(3), SHAPE), {'seed': 3})


@pytest.fixture
def file(tmp_path, original):
    save_pretrained(tmp_path / 'weights.npz', original, SHAPE)
    return tmp_path / 'weights.npz'


def rewritten(file, change):
    """The file with its arrays changed."""
    with np.load(file) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(file, **arrays)
    return file


def test_what_is_saved_comes_back(file, original):
    loaded = load_pretrained(str(file))
    images = np.random.default_rng(0).integers(0, 256, (3, *SHAPE)).astype(np.uint8)
    outputs = [protojax.encode(w.encoder, w.params, w.batch_stats, images)[0] for w in (original, loaded)]
    np.testing.assert_array_equal(*outputs)
    assert loaded.description['seed'] == 3
    assert (loaded.encoder.mean, loaded.encoder.filters) == ([0.25], 8)


def test_what_is_loaded_can_be_changed_and_saved_again(file):
    loaded = load_pretrained(str(file))
    params = jax.tree.map(lambda leaf: leaf + 1, loaded.params)
    save_pretrained(file, loaded._replace(params=params), SHAPE)
    again = load_pretrained(str(file))
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    assert again.description['seed'] == 3


def test_an_unknown_name_lists_the_way_out():
    with pytest.raises(WeightsError, match='there are no weights omniglot-1000way'):
        load_pretrained('omniglot-1000way')


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def pickled(file):
    stream = io.BytesIO()
    np.save(stream, np.array([{'a': 1}], object), allow_pickle=True)
    with zipfile.ZipFile(file, 'a') as archive:
        archive.writestr('evil.npy', stream.getvalue())


def compressed(file):
    """The damage of a bomb: a member that claims little and unfolds into much."""
    with zipfile.ZipFile(file, 'a', zipfile.ZIP_BZIP2) as archive:
        archive.writestr('bomb.npy', bytes(2**20))


def boastful(file):
    """An array of which there is nothing but the claim to be large."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {'descr': '<f4', 'fortran_order': False, 'shape': (2**40,)})
    with zipfile.ZipFile(file, 'a') as archive:
        archive.writestr('boast.npy', stream.getvalue())


def not_a_number(file):
    weights = load_pretrained(str(file))
    params = jax.tree.map(lambda leaf: leaf * np.float32('nan'), weights.params)
    save_pretrained(file, weights._replace(params=params), SHAPE)


def describe(arrays, **changes):
    description = json.loads(bytes(arrays['description']).decode()) | changes
    arrays['description'] = np.frombuffer(json.dumps(description).encode(), np.uint8)


DAMAGE = {
    'truncated': lambda file: file.write_bytes(file.read_bytes()[:-100]),
    'flipped': flip,
    'empty': lambda file: file.write_bytes(b''),
    'foreign': lambda file: file.write_text('hello'),
    'pickled': pickled,
    'compressed': compressed,
    'boastful': boastful,
    'not a number': not_a_number,
    'another array': lambda file: rewritten(file, lambda a: a.update({k: v + 1 for k, v in a.items() if v.ndim == 4})),
    'missing array': lambda file: rewritten(file, lambda a: a.pop(next(k for k in a if 'kernel' in k))),
    'no description': lambda file: rewritten(file, lambda a: a.pop('description')),
    'another format': lambda file: rewritten(file, lambda a: describe(a, format='protojax weights 9')),
    'another shape': lambda file: rewritten(file, lambda a: describe(a, item_shape=[16, 16, 3])),
    'huge': lambda file: rewritten(file, lambda a: a.update(huge=np.zeros(2**25, np.uint32))),
}


@pytest.mark.parametrize('damage', DAMAGE)
def test_damaged_and_foreign_files_are_refused(file, damage):
    DAMAGE[damage](file)
    with pytest.raises(WeightsError, match='get the file again') as error:
        load_pretrained(str(file))
    assert '\n' not in str(error.value)
