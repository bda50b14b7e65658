"""Omniglot: splits, drawings, rotations, and incomplete sources."""

import functools
import io
import itertools
import shutil

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import omniglot
from protojax.errors import DataError

SMALL = {'Korean': 3, 'Latin': 2, 'Hebrew': 2, 'Tengwar': 2}  # train, train, validation, test


def png(pixels, mode='1'):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, 'PNG')
    return file.getvalue()


def drawing(character, number):
    """A 105x105 drawing, white with one black bar that encodes its character and number."""
    pixels = np.full((105, 105), 255, np.uint8)
    pixels[15 * character : 15 * character + 6, : 15 * number] = 0
    return png(pixels)


def small_files(drawings=2):
    """Two mappings of paths to contents, in the layout of the original archives."""
    halves = ({}, {})
    for alphabet, count in SMALL.items():
        half = int(alphabet == 'Tengwar')
        for character, number in itertools.product(range(1, count + 1), range(1, drawings + 1)):
            path = f'{omniglot.HALVES[half]}/{alphabet}/character{character:02}/0{number}_01.png'
            halves[half][path] = drawing(character, number)
    return halves


def write_folders(folder, halves):
    for name, contents in (halves[0] | halves[1]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)
    return folder


def write_zips(folder, halves):
    write_folders(folder / 'unpacked', halves)
    for half in omniglot.HALVES:
        shutil.make_archive(folder / half, 'zip', folder / 'unpacked', half)
    shutil.rmtree(folder / 'unpacked')
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Expect the alphabets of SMALL only."""
    monkeypatch.setattr(omniglot, 'CHARACTERS', {'train': 5, 'validation': 2, 'test': 2})


@pytest.fixture
def source(tmp_path):
    return write_zips(tmp_path / 'source', small_files())


@pytest.fixture
def load(tmp_path):
    return functools.partial(omniglot.load, data='real', data_dir=tmp_path / 'prepared', rotations=False)


def test_four_characters_of_an_alphabet_are_for_the_test():
    names = ('Latin/character01', 'Hebrew/character01', 'Gurmukhi/character41', 'Gurmukhi/character42')
    assert list(map(omniglot.split_of, names)) == ['train', 'validation', 'train', 'test']


def test_splits_names_and_ink(load, source):
    data = load(source=source)
    assert (data.title, data.synthetic) == ('Omniglot', False)
    assert data.train.names == (*(f'Korean/character0{n}' for n in (1, 2, 3)), 'Latin/character01', 'Latin/character02')
    assert data.validation.names == ('Hebrew/character01', 'Hebrew/character02')
    assert data.test.names == ('Tengwar/character01', 'Tengwar/character02')
    assert data.train.items.shape == (5, 2, 28, 28, 1) and data.train.counts.tolist() == [2] * 5
    # Korean/character02, second drawing: a bar over rows 30-35 and columns 0-29 of 105, hence rows 8-9.6, columns 0-7.
    image = data.train.items[1, 1, :, :, 0].astype(int)
    assert image[8, :8].tolist() == [255] * 8
    assert (abs(image[9, :8] - 128) <= 1).all()
    assert image[:8].sum() == image[10:].sum() == image[:, 8:].sum() == 0


def test_nearest_has_no_grey_and_stands_beside_antialias(load, source):
    load(source=source)
    nearest = load(source=source, resize='nearest').train.items
    assert set(np.unique(nearest)) == {0, 255}
    assert len(np.unique(load().train.items)) > 2


def test_rotations_are_classes_of_their_own(load, source):
    plain, turned = load(source=source), load(source=source, rotations=True)
    assert turned.train.names[4:8] == tuple(f'Korean/character02/rot{angle}' for angle in ('000', '090', '180', '270'))
    assert turned.train.counts.tolist() == [2] * 20
    for turns in range(4):
        np.testing.assert_array_equal(turned.train.items[4 + turns, 1], np.rot90(plain.train.items[1, 1], turns))


def test_folders_archives_and_one_archive_load_the_same(tmp_path, load, source):
    expected = load(source=source)
    folders = write_folders(tmp_path / 'folders', small_files())
    one = shutil.make_archive(tmp_path / 'all', 'zip', tmp_path, 'folders')
    mixed = shutil.copytree(folders, tmp_path / 'mixed')
    shutil.rmtree(mixed / 'images_evaluation')
    shutil.copy(source / 'images_evaluation.zip', mixed)
    half = folders / 'images_background'
    for number, given in enumerate((folders, one, mixed, half, source / 'images_evaluation.zip', str(source))):
        for found, split in zip(load(source=given, data_dir=tmp_path / f'{number}')[2:], expected[2:], strict=True):
            np.testing.assert_array_equal(found.items, split.items)
            assert found.names == split.names
    (source / 'images_evaluation.zip').unlink()
    with pytest.raises(DataError, match='does not contain images_evaluation'):
        load(source=source)


def test_missing_drawings_are_padding(load, tmp_path):
    halves = small_files()
    del halves[0]['images_background/Korean/character01/01_01.png']
    data = load(source=write_folders(tmp_path / 'source', halves))
    assert data.train.counts.tolist() == [1, 2, 2, 2, 2]
    assert data.train.items[0, 1].sum() == 0  # padding


FIRST = 'images_background/Korean/character02/02_01.png'


@pytest.mark.parametrize(
    'files, message',
    [
        ({FIRST: drawing(1, 1)[:70]}, f'bad.*{FIRST[18:]} is not a usable image'),
        ({FIRST: png(np.zeros((28, 28), np.uint8))}, f'bad.*{FIRST[18:]} is .*expected 105x105 pixels, got 28x28'),
        ({'images_background/Korean/x/1.png': b''}, 'bad.*: expected 5 characters in train, got 6'),
    ],
)
def test_what_can_be_wrong(load, tmp_path, files, message):
    background, evaluation = small_files()
    with pytest.raises(DataError, match=message) as error:
        load(source=write_zips(tmp_path / 'bad', (background | files, evaluation)))
    assert str(error.value).isprintable()


def test_real_omniglot(load, monkeypatch, real_data):
    monkeypatch.undo()
    data = load(source=real_data('omniglot'))
    assert [len(split.names) for split in data[2:]] == [1028, 172, 423]
    for split in data[2:]:
        assert split.items.shape[1:] == (20, 28, 28, 1)
        assert (split.counts == 20).all()
        assert (split.items.max((2, 3, 4)) > 100).all()  # ink in every drawing
        assert split.items.mean() < 40  # on an empty page
