"""Any folder of images as a data set: division of the classes, unequal classes, and what cannot be used."""

import os

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import folder
from protojax.datasets.folder import load_folder
from protojax.errors import DataError
from protojax.images import ImageForm


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
    data = load_folder(ten, split=(0.5, 0.2, 0.3), seed=1)
    sizes = {split: len(own) for split, own in names(data).items()}
    assert sizes == {'train': 5, 'validation': 2, 'test': 3}
    assert set.union(*names(data).values()) == {f'class{k}' for k in range(10)}
    assert names(load_folder(ten, split=(0.5, 0.2, 0.3), seed=1)) == names(data)
    others = [names(load_folder(ten, split=(0.5, 0.2, 0.3), seed=seed)) for seed in range(2, 6)]
    assert any(other != names(data) for other in others)


def test_classes_of_unequal_size_are_padded(ten):
    data = load_folder(ten, form=ImageForm((8, 8, 3)))
    assert data.title.startswith('ten (29 images, ') and not data.synthetic
    for split in (data.train, data.validation, data.test):
        assert split.items.shape[1:] == (split.counts.max(), 8, 8, 3)
        for items, count, name in zip(split.items, split.counts, split.names, strict=True):
            assert count == 2 + int(name[-1]) % 3
            assert items[:count].any((1, 2, 3)).all() and not items[count:].any()


def test_folders_of_splits(tmp_path):
    for split, classes in {'train': 'abcd', 'val': 'ef', 'test': 'gh'}.items():
        fill(tmp_path / 'set' / split, dict.fromkeys(classes, 2))
    assert names(load_folder(tmp_path / 'set')) == {'train': set('abcd'), 'validation': set('ef'), 'test': set('gh')}
    fill(tmp_path / 'set' / 'test', {'a': 2})
    with pytest.raises(DataError, match="'a'.*both test and train"):
        load_folder(tmp_path / 'set')


def test_validation_classes_are_taken_from_train_where_there_are_none(tmp_path):
    for split, classes in {'train': 'abcdef', 'test': 'gh'}.items():
        fill(tmp_path / 'set' / split, dict.fromkeys(classes, 2))
    found = names(load_folder(tmp_path / 'set'))
    assert found['test'] == set('gh') and len(found['validation']) == 2
    assert found['train'] | found['validation'] == set('abcdef')


def test_a_class_may_be_called_train(tmp_path):
    fill(tmp_path / 'set', {'train': 2, 'bus': 2, 'car': 2, 'bike': 2, 'tram': 2, 'ship': 2})
    assert set.union(*names(load_folder(tmp_path / 'set')).values()) == {'train', 'bus', 'car', 'bike', 'tram', 'ship'}


def test_kind_and_size_of_the_images(ten, tmp_path):
    assert load_folder(ten).train.items.shape[2:] == (84, 84, 3)
    assert load_folder(ten, image_size=16).train.items.shape[2:] == (16, 16, 3)
    assert load_folder(ten, kind='drawings').train.items.shape[2:] == (28, 28, 1)
    for k in range(6):
        (tmp_path / 'drawn' / f'class{k}').mkdir(parents=True)
        drawing = np.full((40, 40), 255, np.uint8)
        drawing[10:20, 5 : 10 + 3 * k] = 0
        Image.fromarray(drawing).save(tmp_path / 'drawn' / f'class{k}' / 'a.png')
    data = load_folder(tmp_path / 'drawn')
    assert data.train.items.shape[2:] == (28, 28, 1) and data.train.items[0, 0, 0, 0, 0] == 0  # paper


def test_unreadable_files_are_named_and_left_out(ten, capsys):
    (ten / 'class2' / '1.jpg').write_bytes(b'broken')
    data = load_folder(ten, form=ImageForm((8, 8, 3)))
    assert 'class2/1.jpg' in capsys.readouterr().err
    split = next(split for split in (data.train, data.validation, data.test) if 'class2' in split.names)
    assert split.counts[split.names.index('class2')] == 3


def test_names_that_are_no_text(ten):
    before = load_folder(ten).title
    os.rename(ten / 'class0', os.fsencode(ten) + b'/\xff\x1b')
    os.rename(ten, os.fsencode(ten.parent) + b'/\xfe')
    after = load_folder(ten.parent / '\udcfe').title
    assert after.startswith(r'\udcfe (') and after.split()[-1] != before.split()[-1]


def test_another_title_for_other_files(ten):
    before = load_folder(ten, form=ImageForm((8, 8, 3))).title
    assert load_folder(ten, form=ImageForm((8, 8, 3))).title == before
    assert load_folder(ten, form=ImageForm((8, 8, 3)), seed=5).title != before  # other classes in the splits
    fill(ten, {'class10': 2})
    assert load_folder(ten, form=ImageForm((8, 8, 3))).title != before


def unusable(place):
    yield place / 'nowhere', {}, 'source=.* is no folder'
    (place / 'empty').mkdir()
    yield place / 'empty', {}, 'has no PNG'
    yield fill(place / 'few', {'a': 2, 'b': 2, 'c': 2}), {}, '3 classes are too few.*6 are the least'
    hollow = fill(place / 'hollow', dict.fromkeys('abcdef', 1))
    (hollow / 'g').mkdir()
    yield hollow, {}, 'hollow/g has no PNG'
    loose = fill(place / 'loose', dict.fromkeys('abcdef', 1))
    Image.new('RGB', (9, 9)).save(loose / 'x.png')
    yield loose, {}, r'x\.png is in no class'
    good = fill(place / 'good', dict.fromkeys('abcdef', 1))
    yield good, {'split': (0.5, 0.5)}, 'split=0.5,0.5'
    yield good, {'split': (0.9, 0.2, -0.1)}, 'split='
    yield good, {'kind': 'maps'}, 'kind=maps'
    broken = fill(place / 'broken', dict.fromkeys('abcdef', 1))
    (broken / 'c' / '0.jpg').write_bytes(b'x')
    yield broken, {}, "no image of class 'c'"


def test_what_cannot_be_used_is_told_with_the_way_out(tmp_path):
    for source, options, message in unusable(tmp_path):
        with pytest.raises(DataError, match=message):
            load_folder(source, **options)


def test_padding_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, 'MOST_PADDING', 1000)
    fill(tmp_path / 'set', {**dict.fromkeys('abcdefghijklmnop', 1), 'large': 30})
    with pytest.raises(DataError, match="'large' has 30 images"):
        load_folder(tmp_path / 'set', form=ImageForm((8, 8, 3)), split=(0.8, 0.1, 0.1))
