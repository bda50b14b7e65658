"""miniImageNet in every form in which people have it, and everything that can be wrong with it."""

import itertools
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import miniimagenet
from protojax.errors import DataError

CLASSES = {'train': 64, 'val': 16, 'test': 20}


def colour(split, label, number):
    """Every image is of another colour."""
    return (sorted(CLASSES).index(split) * 80 + 10, 3 * label, 40 * number)


def save(path, split, label, number, size=(84, 84)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', size, colour(split, label, number)).save(path)


def name(split, label):
    return f'n{sorted(CLASSES).index(split)}{label:03}'


def write_lists(folder, splits=tuple(CLASSES), count=2):
    """train.csv, val.csv and test.csv beside images/."""
    for split in splits:
        rows = ['filename,label']
        for label, number in itertools.product(range(CLASSES[split]), range(count)):
            image = f'{name(split, label)}{number:08}.png'
            save(folder / 'images' / image, split, label, number)
            rows.append(f'{image},{name(split, label)}')
        (folder / f'{split}.csv').write_text('\n'.join(rows))


def write_folders(folder, splits=tuple(CLASSES), count=2):
    for split in splits:
        for label, number in itertools.product(range(CLASSES[split]), range(count)):
            save(folder / split / name(split, label) / f'{number}.png', split, label, number)


def cache(split, count=2):
    """The contents of mini-imagenet-cache-{split}.pkl."""
    colours = [[colour(split, label, number) for number in range(count)] for label in range(CLASSES[split])]
    images = np.broadcast_to(np.reshape(colours, (-1, 1, 1, 3)).astype(np.uint8), (count * CLASSES[split], 84, 84, 3))
    indices = {name(split, k): list(range(k * count, (k + 1) * count)) for k in range(CLASSES[split])}
    return {'image_data': images.copy(), 'class_dict': indices}


def write_arrays(folder, splits=tuple(CLASSES)):
    folder.mkdir()
    for split in splits:
        (folder / f'mini-imagenet-cache-{split}.pkl').write_bytes(pickle.dumps(cache(split), 2))


def write_labelled(folder, splits=tuple(CLASSES)):
    folder.mkdir()
    for split in splits:
        images, indices = cache(split).values()
        labels = [k for k in range(CLASSES[split]) for _ in range(2)]
        contents = {'data': images, 'labels': labels, 'catname2label': {n: k for k, n in enumerate(indices)}}
        stem = 'miniImageNet_category_split_'
        (folder / f'{stem}{"train_phase_" * (split == "train")}{split}.pickle').write_bytes(pickle.dumps(contents, 4))
        if split != 'train':  # held-out images of the training classes, which are none of ours
            (folder / f'{stem}train_phase_{split}.pickle').write_bytes(b'to be left alone')


def load(source, data_dir, **options):
    return miniimagenet.load(data='real', source=source, data_dir=data_dir, **options)


def check(data, splits=tuple(CLASSES), count=2):
    """All images are where they belong."""
    found = {'train': data.train, 'val': data.validation, 'test': data.test}
    for split, part in found.items():
        assert (part is not None) == (split in splits)
        if part is None:
            continue
        assert part.items.shape == (CLASSES[split], count, 84, 84, 3) and part.items.dtype == np.uint8
        assert part.names == tuple(name(split, label) for label in range(CLASSES[split]))
        assert part.counts.tolist() == [count] * CLASSES[split]
        np.testing.assert_array_equal(part.items.reshape(-1, 84, 84, 3), cache(split, count)['image_data'])


@pytest.mark.parametrize(
    'write, pack', [(write_lists, 'zip'), (write_folders, 'gztar'), (write_arrays, ''), (write_labelled, '')]
)
def test_every_layout(write, pack, tmp_path):
    source = tmp_path / 'source'
    write(source)
    data = load(shutil.make_archive(str(source), pack, tmp_path, 'source') if pack else source, tmp_path / 'prepared')
    check(data)
    assert data.title == 'miniImageNet' and not data.synthetic


def test_folder_of_archives_and_missing_splits(tmp_path):
    (tmp_path / 'source').mkdir()
    for split in ('train', 'val'):
        write_lists(tmp_path / split, (split,))
        shutil.make_archive(str(tmp_path / 'source' / f'miniimagenet_{split}'), 'zip', tmp_path / split)
    check(load(tmp_path / 'source', tmp_path / 'prepared'), ('train', 'val'))


def test_jpeg_grey_and_unequal_classes(tmp_path):
    write_folders(tmp_path / 'source', ('test',))
    Image.new('L', (84, 84), 200).save(tmp_path / 'source' / 'test' / name('test', 3) / '9.JPEG')
    data = load(tmp_path / 'source', tmp_path / 'prepared')
    assert data.test.counts.tolist() == [2] * 3 + [3] + [2] * 16
    assert data.test.items.shape == (20, 3, 84, 84, 3)
    np.testing.assert_array_equal(data.test.items[3, 2], np.full((84, 84, 3), 200))


def spoil_csv(folder, old, new):
    text = (folder / 'val.csv').read_text()
    assert old in text
    (folder / 'val.csv').write_text(text.replace(old, new))


def in_two_splits(folder):
    write_lists(folder, ('test',))
    spoil_csv(folder, f',{name("val", 5)}', f',{name("test", 5)}')


FIRST = f'images/{name("val", 0)}00000000.png'


@pytest.mark.parametrize(
    'spoil, message',
    [
        (lambda f: spoil_csv(f, f',{name("val", 5)}', f',{name("val", 6)}'), 'expected 16 classes in .*, got 15'),
        (in_two_splits, 'is in both'),
        (lambda f: (f / FIRST).unlink(), "lists 'n2000.*is not in images/"),
        (lambda f: (f / FIRST).write_bytes(b'no image'), f'{FIRST} is not a usable image'),
        (lambda f: save(f / FIRST, 'val', 0, 0, (500, 375)), 'expected 84x84 pixels, got 500x375'),
        (lambda f: spoil_csv(f, 'filename', 'file'), "is not a list of filename,label .'filename'"),
        (lambda f: spoil_csv(f, f'{name("val", 0)}00000000.png', '../../secret'), "lists '../../secret'"),
        (lambda f: (f / 'val.csv').unlink(), 'does not contain train.csv'),
        (lambda f: write_lists(f / 'again', ('val',)), 'the validation split a second time'),
    ],
)
def test_what_can_be_wrong_with_lists(spoil, message, tmp_path):
    write_lists(tmp_path / 'source', ('val',), count=1)
    spoil(tmp_path / 'source')
    with pytest.raises(DataError, match=message) as error:
        load(tmp_path / 'source', tmp_path / 'prepared')
    assert str(error.value).isprintable()


def change(**changes):
    return lambda contents: {**contents, **changes}


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda c: {'image_data': c['image_data']}, 'neither image_data and class_dict nor data and labels'),
        (change(image_data=np.zeros((32, 64, 64, 3), np.uint8)), r'expected uint8 images .* got uint8 \(64, 64, 3\)'),
        (change(class_dict={str(k): [0, 32] for k in range(16)}), 'images by class .*index 32 is out of bounds'),
        (change(class_dict={'a': [[1], [2, 3]]}), 'does not contain images by class'),
    ],
)
def test_what_can_be_wrong_with_arrays(change, message, tmp_path):
    path = tmp_path / 'mini-imagenet-cache-val.pkl'
    path.write_bytes(pickle.dumps(change(cache('val')), 4))
    with pytest.raises(DataError, match=message):
        load(path, tmp_path / 'prepared')


def test_labels_without_names(tmp_path):
    path = tmp_path / 'val.pickle'
    path.write_bytes(pickle.dumps({'data': cache('val')['image_data'], 'labels': np.arange(32) // 2}, 5))
    assert load(path, tmp_path / 'prepared').validation.names[:2] == ('validation 000', 'validation 001')


def test_real_data(real_data, tmp_path):
    data = load(real_data('miniimagenet'), tmp_path, splits=('validation',))
    assert data.validation.items.shape == (16, 600, 84, 84, 3) and 'n01855672' in data.validation.names
