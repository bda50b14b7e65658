"""Any images as a data set: division of the classes, unequal classes, sets of TFDS, and what cannot be used."""

import os

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import folder
from protojax.errors import DataError
from protojax.images import ImageForm
from tests.helpers.spots import Spots


def fill(place, classes, *, seed=0):
    """Photographs of noise: {class: number of images}."""
    rng = np.random.default_rng(seed)
    for name, number in classes.items():
        (place / name).mkdir(parents=True)
        for image in range(number):
            noise = Image.fromarray(rng.integers(0, 256, (6, 5, 3), np.uint8)).resize((50, 40))
            noise.save(place / name / f'{image}.jpg')
    return place


@pytest.fixture
def ten(tmp_path):
    return fill(tmp_path / 'ten', {f'class{k}': 2 + k % 3 for k in range(10)})


def names(data):
    return {split: set(getattr(data, split).names) for split in ('train', 'validation', 'test')}


def test_classes_are_divided_by_seed(ten):
    data = folder.load(ten, split='0.5,0.2,0.3', seed=1)
    sizes = {split: len(own) for split, own in names(data).items()}
    assert sizes == {'train': 5, 'validation': 2, 'test': 3}
    assert set.union(*names(data).values()) == {f'class{k}' for k in range(10)}
    found = [folder.find(ten, split='0.5,0.2,0.3', seed=seed) for seed in (1, 2, 1)]
    assert found[0].splits['train'].keys() == names(data)['train']
    assert found[2] == found[0] != found[1]
    fill(ten, {'class10': 2})
    assert len({folder.find(ten).title, *(own.title for own in found)}) == 3  # distinguishes runs


def test_classes_of_unequal_size_are_padded_and_unreadable_files_skipped(ten):
    (ten / 'class2' / '4.jpg').write_bytes(b'broken')
    data = folder.load(ten, form=ImageForm((8, 8, 3)))
    assert data.title.startswith('ten (30 images, ') and not data.synthetic
    for split in (data.train, data.validation, data.test):
        assert split.items.shape[1:] == (split.counts.max(), 8, 8, 3)
        for items, count, name in zip(split.items, split.counts, split.names, strict=True):
            assert count == 2 + int(name[-1]) % 3
            assert items[:count].any((1, 2, 3)).all() and not items[count:].any()


def test_folders_of_splits(tmp_path):
    for split, classes in {'train': 'abcdef', 'test': 'gh'}.items():
        fill(tmp_path / split, dict.fromkeys(classes, 1))
    found = folder.find(tmp_path).splits  # validation classes are taken from train
    assert found['test'].keys() == set('gh') and len(found['validation']) == 2
    assert found['train'].keys() | found['validation'] == set('abcdef')
    fill(tmp_path / 'val', {'i': 1, 'j': 1})
    splits = {'train': set('abcdef'), 'validation': set('ij'), 'test': set('gh')}
    assert names(folder.load(tmp_path)) == splits
    fill(tmp_path / 'test', {'a': 1})
    with pytest.raises(DataError, match="tested on unseen classes: class 'a' is in both test and train"):
        folder.find(tmp_path)


def test_train_and_test_with_the_same_classes_are_put_together(tmp_path, caplog):
    for split in ('train', 'test'):
        fill(tmp_path / split, dict.fromkeys('abcdef', 2))
    found = folder.find(tmp_path).splits.values()
    assert [[len(files) for files in classes.values()] for classes in found] == [[4, 4]] * 3
    assert 'train, val and test have the same classes' in caplog.text


def test_classes_are_divided_by_a_file(ten, tmp_path, caplog):
    file = tmp_path / 'split.txt'
    file.write_text('[train]\nclass3\nclass1\n[val]\nclass5\n\n[test]\nclass7\nclass9\n', 'utf-8-sig')
    expected = {'train': ['class3', 'class1'], 'validation': ['class5'], 'test': ['class7', 'class9']}
    assert {split: list(own) for split, own in folder.find(ten, split=file).splits.items()} == expected
    assert 'does not list 5 classes, which are left out (first: class0)' in caplog.text
    for text, message in {
        'class1': "'class1' does not follow .train., .val. or .test.",
        '[train]\nclass1\n[test]\nclass1': "'class1' is listed twice",
        '[train]\nowl': "'owl' is not one of the 10 classes",
        '[train]\nclass1': r'must list classes below \[train\] and \[test\]',
    }.items():
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            folder.find(ten, split=file)


def test_a_set_of_tfds(tmp_path):
    options = {'data_dir': str(tmp_path), 'image_key': 'image', 'label_key': 'colour'}
    data = folder.load(f'tfds:{Spots.name}', form=ImageForm((8, 8, 3)), **options)
    assert data.title.startswith('spots/1.0.0 (40 images, ')
    assert set.union(*names(data).values()) == {f'colour{k}' for k in range(8)}
    for split in data[2:]:
        for items, name in zip(split.items, split.names, strict=True):  # of train and test together
            own = sorted(items[:, 0, 0].tolist())
            assert own == [[30 * int(name[-1]), int(name[-1]) + 8 * k, 99] for k in range(5)]
    for changes, message in {
        ('label_key', ''): 'tfds:spots: set `label_key` to one of colour, size',
        ('data_dir', __file__): '`source=tfds:spots` cannot be used .*Not a directory',
    }.items():
        with pytest.raises(DataError, match=message):
            folder.find('tfds:spots', **{**options, changes[0]: changes[1]})
    (features,) = tmp_path.rglob('features.json')
    features.write_text(features.read_text().replace('tensorflow_datasets.core.features.image_feature', 'os.path'))
    with pytest.raises(DataError, match='os.path'):
        folder.find('tfds:Spots:1.0.0', **options)  # with a version, TFDS reads features.json
    with pytest.raises(DataError, match='`source=tfds:nothing` cannot be used .Dataset nothing not found'):
        folder.find('tfds:nothing', data_dir=str(tmp_path))


def test_kind_and_size_of_the_images(ten, tmp_path):
    assert folder.load(ten).train.items.shape[2:] == (84, 84, 3)
    assert folder.load(ten, image_size=16).train.items.shape[2:] == (16, 16, 3)
    assert folder.load(ten, kind='drawings').train.items.shape[2:] == (28, 28, 1)
    for k in range(6):
        (tmp_path / 'drawn' / f'class{k}').mkdir(parents=True)
        drawing = np.full((40, 40), 255, np.uint8)
        drawing[10:20, 5 : 10 + 3 * k] = 0
        Image.fromarray(drawing).save(tmp_path / 'drawn' / f'class{k}' / 'a.png')
    data = folder.load(tmp_path / 'drawn')
    assert data.train.items.shape[2:] == (28, 28, 1) and data.train.items[0, 0, 0, 0, 0] == 0  # paper


def test_names_that_are_no_text(ten):
    before = folder.find(ten).title
    os.rename(ten / 'class0', os.fsencode(ten) + b'/\xff\x1b')
    os.rename(ten, os.fsencode(ten.parent) + b'/\xfe')
    after = folder.find(ten.parent / '\udcfe').title
    assert after.startswith(r'\udcfe (') and after.split()[-1] != before.split()[-1]


def unusable(place):
    yield place / 'nowhere', {}, 'source=.* is not a folder'
    (place / 'empty').mkdir()
    yield place / 'empty', {}, 'does not contain images'
    yield fill(place / 'few', {'a': 2, 'b': 2, 'c': 2}), {}, 'need at least 6 classes, got 3'
    good = fill(place / 'good', dict.fromkeys('abcdef', 1))
    yield good, {'split': '0.5,0.5'}, 'split=0.5,0.5'
    yield good, {'split': 'nan,nan,nan'}, 'split=nan'
    yield good, {'split': 'half'}, '`split=half` is neither'
    (good / 'c' / '0.jpg').unlink()
    (good / 'c' / '0.jpg').symlink_to('nowhere')
    yield good, {}, "no image of class 'c'"
    Image.new('RGB', (9, 9)).save(good / 'x.png')
    yield good, {}, r'x\.png is not in a class'
    (good / 'x.png').unlink()
    (good / 'g').mkdir()
    yield good, {}, 'good/g does not contain images'


def test_what_cannot_be_used_is_told_with_the_way_out(tmp_path):
    for source, options, message in unusable(tmp_path):
        with pytest.raises(DataError, match=message):
            folder.load(source, **options)
