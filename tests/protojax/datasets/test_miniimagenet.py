"""miniImageNet in every form in which people have it, and everything that can be wrong with it."""

import csv
import io
import pathlib
import pickle
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import formats
from protojax.datasets.miniimagenet import _check_miniimagenet_classes, load_miniimagenet
from protojax.datasets.sources import files
from protojax.datasets.sources.miniimagenet_files import open_miniimagenet_files
from protojax.errors import DataError

CLASSES = {'train': 64, 'val': 16, 'test': 20}


def colour(split, label, number):
    """Every image is of one colour of its own."""
    return (sorted(CLASSES).index(split) * 80 + 10, 3 * label, 40 * number)


def picture(split, label, number, size=(84, 84)):
    return Image.new('RGB', size, colour(split, label, number))


def name(split, label):
    return f'n{sorted(CLASSES).index(split)}{label:03}'


def encode(image, format='PNG'):
    file = io.BytesIO()
    image.save(file, format)
    return file.getvalue()


def write_lists(folder, splits=tuple(CLASSES), count=2):
    """train.csv, val.csv and test.csv beside images/."""
    (folder / 'images').mkdir(parents=True, exist_ok=True)
    for split in splits:
        with (folder / f'{split}.csv').open('w', newline='') as file:
            table = csv.writer(file)
            table.writerow(('filename', 'label'))
            for label in range(CLASSES[split]):
                for number in range(count):
                    image = f'{name(split, label)}{number:08}.png'
                    (folder / 'images' / image).write_bytes(encode(picture(split, label, number)))
                    table.writerow((image, name(split, label)))


def write_folders(folder, splits=tuple(CLASSES), count=2):
    for split in splits:
        for label in range(CLASSES[split]):
            place = folder / split / name(split, label)
            place.mkdir(parents=True)
            for number in range(count):
                (place / f'{number}.png').write_bytes(encode(picture(split, label, number)))


def cache(split, count=2):
    """The contents of mini-imagenet-cache-{split}.pkl."""
    images = [np.asarray(picture(split, label, number)) for label in range(CLASSES[split]) for number in range(count)]
    indices = {name(split, k): list(range(k * count, (k + 1) * count)) for k in range(CLASSES[split])}
    return {'image_data': np.stack(images), 'class_dict': indices}


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


def zipped(folder):
    return pathlib.Path(shutil.make_archive(str(folder.with_name('all')), 'zip', folder))


def tarred(folder):
    return pathlib.Path(shutil.make_archive(str(folder.with_name('all')), 'gztar', folder.parent, folder.name))


def plain_tar(folder):
    return pathlib.Path(shutil.make_archive(str(folder.with_name('all')), 'tar', folder))


def load(source, data_dir, **options):
    return load_miniimagenet(data='real', source=source, data_dir=data_dir, **options)


def check(data, splits=tuple(CLASSES), count=2):
    """All images are where they belong."""
    found = {'train': data.train, 'val': data.validation, 'test': data.test}
    for split, part in found.items():
        if split not in splits:
            assert part is None
            continue
        assert part.items.shape == (CLASSES[split], count, 84, 84, 3) and part.items.dtype == np.uint8
        assert part.names == tuple(name(split, label) for label in range(CLASSES[split]))
        assert part.counts.tolist() == [count] * CLASSES[split]
        expected = [[colour(split, label, number) for number in range(count)] for label in range(CLASSES[split])]
        np.testing.assert_array_equal(
            part.items, np.broadcast_to(np.array(expected)[:, :, None, None], part.items.shape)
        )


@pytest.mark.parametrize('pack', [lambda folder: folder, zipped, tarred, plain_tar])
@pytest.mark.parametrize('write', [write_lists, write_folders, write_arrays, write_labelled])
def test_every_form(write, pack, tmp_path, capsys):
    write(tmp_path / 'source')
    source = pack(tmp_path / 'source')
    data = load(source, tmp_path / 'prepared')
    check(data)
    assert data.title == 'miniImageNet' and not data.synthetic
    form = {write_lists: 'lists', write_folders: 'folders'}.get(write, 'arrays')
    assert 'train 64 classes of 2 images' in (said := capsys.readouterr().err) and f'{form} in {source}' in said


def test_prepared_data_need_no_source(tmp_path, capsys):
    write_lists(tmp_path / 'source')
    load(tmp_path / 'source', tmp_path / 'prepared')
    shutil.rmtree(tmp_path / 'source')
    capsys.readouterr()
    check(load(None, tmp_path / 'prepared'))
    assert capsys.readouterr().err == ''
    check(load(None, tmp_path / 'prepared', splits=('test',)), ('test',))


def test_folder_of_archives_and_missing_splits(tmp_path):
    (tmp_path / 'source').mkdir()
    for split in ('train', 'val'):
        write_lists(tmp_path / split, (split,))
        shutil.make_archive(str(tmp_path / 'source' / f'miniimagenet_{split}'), 'zip', tmp_path / split)
    check(load(tmp_path / 'source', tmp_path / 'prepared'), ('train', 'val'))


def test_one_pickle(tmp_path):
    write_arrays(tmp_path / 'source')
    check(load(tmp_path / 'source' / 'mini-imagenet-cache-val.pkl', tmp_path / 'prepared'), ('val',))


def test_jpeg_grey_and_unequal_classes(tmp_path, capsys):
    write_folders(tmp_path / 'source', ('test',))
    place = tmp_path / 'source' / 'test' / name('test', 3)
    (place / '9.JPEG').write_bytes(encode(Image.new('L', (84, 84), 200), 'JPEG'))
    data = load(tmp_path / 'source', tmp_path / 'prepared')
    assert data.test.counts.tolist() == [2] * 3 + [3] + [2] * 16
    assert data.test.items.shape == (20, 3, 84, 84, 3)
    np.testing.assert_array_equal(data.test.items[3, 2], np.full((84, 84, 3), 200))
    assert 'test 20 classes of 2-3 images' in capsys.readouterr().err


def test_without_real_data(tmp_path, capsys):
    with pytest.raises(DataError, match='`source`'):
        load(None, tmp_path)
    data = load_miniimagenet(data='auto', data_dir=tmp_path, splits=('validation',))
    assert data.synthetic and data.train is None and data.validation.items.shape == (16, 40, 84, 84, 3)
    assert 'not miniImageNet' in capsys.readouterr().err


def spoil_csv(folder, old, new):
    text = (folder / 'val.csv').read_text()
    assert old in text
    (folder / 'val.csv').write_text(text.replace(old, new))


def one_class_less(folder):
    text = [line for line in (folder / 'val.csv').read_text().splitlines() if name('val', 5) not in line]
    (folder / 'val.csv').write_text('\n'.join(text))


def in_two_splits(folder):
    write_lists(folder, ('test',))
    spoil_csv(folder, f',{name("val", 5)}', f',{name("test", 5)}')


FIRST = f'images/{name("val", 0)}00000000.png'


@pytest.mark.parametrize(
    'spoil, message',
    [
        (one_class_less, 'has 15 classes in validation, not 16'),
        (in_two_splits, 'is in both'),
        (lambda f: (f / FIRST).unlink(), "lists 'n2000.*which is not in images/"),
        (lambda f: (f / FIRST).write_bytes(b'no image'), f'{FIRST} is not a whole JPEG or PNG'),
        (lambda f: (f / FIRST).write_bytes((f / FIRST).read_bytes()[:60]), f'{FIRST} is not a whole JPEG or PNG'),
        (lambda f: (f / FIRST).write_bytes(encode(picture('val', 0, 0, (500, 375)))), '500x375, not 84x84; bring all'),
        (lambda f: (f / FIRST).write_bytes(encode(picture('val', 0, 0), 'GIF')), f'{FIRST} is not a whole JPEG or PNG'),
        (lambda f: (f / FIRST).write_bytes(bytes(5 << 20)), 'has 5242880 bytes, far more than'),
        (lambda f: spoil_csv(f, 'filename', 'file'), "is no list of filename,label .'filename' is not in list"),
        (lambda f: spoil_csv(f, f'{name("val", 0)}00000000.png', '../../secret'), "lists '../../secret'"),
        (lambda f: (f / 'val.csv').write_bytes(b'filename,label\n\xff\xfe'), 'is no list of filename,label'),
        (lambda f: (f / 'val.csv').write_text('filename,label\n"a'), 'is no list of filename,label'),
        (lambda f: (f / 'val.csv').unlink(), 'holds no train.csv'),
        (lambda f: write_lists(f / 'again', ('val',)), 'the validation split a second time'),
    ],
)
def test_what_can_be_wrong_with_lists(spoil, message, tmp_path):
    write_lists(tmp_path / 'source', ('val',), count=1)
    spoil(tmp_path / 'source')
    with pytest.raises(DataError, match=message) as error:
        load(tmp_path / 'source', tmp_path / 'prepared')
    assert '\n' not in str(error.value)
    with pytest.raises(DataError, match='`source`'):  # nothing half prepared is left
        load(None, tmp_path / 'prepared')


@pytest.mark.parametrize('write', [write_folders, write_arrays])
def test_split_that_is_there_twice(write, tmp_path):
    (tmp_path / 'source').mkdir()
    for place in 'ab':
        write(tmp_path / 'source' / place, ('val',))
    with pytest.raises(DataError, match='the validation split a second time'):
        load(tmp_path / 'source', tmp_path / 'prepared')


def test_split_that_is_in_two_archives(tmp_path):
    write_lists(tmp_path / 'source' / 'val', ('val',))
    shutil.make_archive(str(tmp_path / 'source' / 'again'), 'zip', tmp_path / 'source' / 'val')
    with pytest.raises(DataError, match='again.zip holds the validation split a second time'):
        load(tmp_path / 'source', tmp_path / 'prepared')


def change(**changes):
    return lambda contents: {**contents, **changes}


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda c: {'image_data': c['image_data']}, 'neither image_data and class_dict nor data and labels'),
        (change(image_data=np.zeros((32, 84, 84, 3), np.float32)), r'images of float32 \(84, 84, 3\), not uint8'),
        (change(image_data=np.zeros((32, 64, 64, 3), np.uint8)), r'images of uint8 \(64, 64, 3\), not uint8 \(84'),
        (change(class_dict={'a': [0, 32]}), "class 'a' has no images, or some that are not there"),
        (change(class_dict={'a': [-1]}), "class 'a' has no images"),
        (change(class_dict={'a': []}), "class 'a' has no images"),
        (change(class_dict={'a': [1, 1]}), "image of class 'a' is listed twice"),
        (change(class_dict={'a': [1], 'b': [1]}), "image of class 'b' is listed twice"),
        (change(class_dict={'a': [[1]]}), 'not a list of whole numbers'),
        (change(class_dict={'a': ['1']}), 'not a list of whole numbers'),
        (change(class_dict={'a': [1 << 70]}), 'not a list of whole numbers'),
        (change(class_dict={'a': [1]}), 'has 1 classes in validation, not 16'),
        (lambda c: {'data': c['image_data'], 'labels': [1, 2]}, '2 labels for 32 images'),
        (lambda c: {'data': c['image_data'], 'labels': ['a'] * 32}, 'labels is not a list of whole numbers'),
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


@pytest.mark.parametrize('source, message', [('nowhere', 'does not exist'), ('x.txt', 'is no folder')])
def test_other_sources(source, message, tmp_path):
    (tmp_path / 'x.txt').touch()
    with pytest.raises(DataError, match=message):
        load(tmp_path / source, tmp_path / 'prepared')


def link(entry, kind):
    entry.type, entry.linkname = kind, '/etc/passwd'


def rename(entry, name):
    entry.name = name


@pytest.mark.parametrize(
    'spoil, message',
    [
        (lambda e: rename(e, '../val.csv'), 'points outside'),
        (lambda e: rename(e, '/val.csv'), 'points outside'),
        (lambda e: link(e, tarfile.SYMTYPE), 'val.csv is a link, device or sparse'),
        (lambda e: link(e, tarfile.LNKTYPE), 'val.csv is a link, device or sparse'),
        (lambda e: link(e, tarfile.CHRTYPE), 'val.csv is a link, device or sparse'),
        (lambda e: setattr(e, 'size', 100 << 30), 'a number in a header is damaged'),
        (lambda e: setattr(e, 'size', 50_000), 'is not a whole tar archive'),
        (lambda e: (setattr(e, 'type', tarfile.XHDTYPE), setattr(e, 'size', 6 << 30)), 'is not a whole tar archive'),
        (lambda e: (setattr(e, 'type', tarfile.GNUTYPE_LONGNAME), setattr(e, 'size', 6 << 30)), 'is not a whole tar'),
    ],
)
@pytest.mark.parametrize('mode', ['w', 'w:gz'])
def test_odd_tar_archives_are_refused(spoil, message, mode, tmp_path):
    path, entry = tmp_path / 'x.tar.gz', tarfile.TarInfo('val.csv')
    entry.size = 14
    spoil(entry)
    with tarfile.open(path, mode) as archive:  # written by hand, as tarfile itself refuses some of it
        archive.fileobj.write(entry.tobuf(tarfile.GNU_FORMAT) + b'filename,label'.ljust(1024, b'\0'))
    with pytest.raises(DataError, match=message), files.open_files(path):
        pass


def test_damaged_archives_are_refused(tmp_path):
    write_lists(tmp_path / 'source', ('val',), count=1)
    for source in (zipped(tmp_path / 'source'), tarred(tmp_path / 'source'), plain_tar(tmp_path / 'source')):
        whole = source.read_bytes()
        for data in (
            b'',
            b'no archive' * 100,
            whole[: len(whole) // 2],
            whole[: len(whole) // 3] + whole[len(whole) // 2 :],
        ):
            source.write_bytes(data)
            with pytest.raises(DataError) as error:
                load(source, tmp_path / 'prepared')
            assert str(source) in str(error.value) and '\n' not in str(error.value)


def test_zip_bomb_is_refused(tmp_path):
    path = tmp_path / 'x.zip'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('val.csv', bytes(64 << 20))
    with pytest.raises(DataError, match='val.csv has 67108864 bytes'):
        load(path, tmp_path / 'prepared')


def test_tar_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, 'CONSTANT', 1 << 20)
    monkeypatch.setattr(formats, 'FACTOR', 1)
    write_arrays(tmp_path / 'source', ('val',))  # 0.7 MB each
    shutil.copy(
        tmp_path / 'source' / 'mini-imagenet-cache-val.pkl', tmp_path / 'source' / 'mini-imagenet-cache-test.pkl'
    )
    with pytest.raises(DataError, match='far more memory'):
        load(tarred(tmp_path / 'source'), tmp_path / 'prepared')


def test_real_data(real_data):
    with open_miniimagenet_files(real_data('miniimagenet')) as (splits, _):
        _check_miniimagenet_classes(splits, 'source')
        assert splits['validation']['n01855672'].count == 600
        assert splits['validation']['n01855672'].images().shape == (600, 84, 84, 3)
