"""CUB from the three layouts in which people have its features, and everything that can be wrong with them."""

import numpy as np
import pytest
import scipy.io

from protojax.datasets import cub
from protojax.errors import DataError
from tests.fuzz.seeds import npy
from tests.fuzz.seeds import torch_file as torch

NAMES = [f'{k:03}.Bird_{k}' for k in range(1, 11)]
LABELS = np.repeat(np.arange(1, 11), [3, 2, 4, 3, 3, 3, 3, 3, 3, 3])
LABELS = np.concatenate([LABELS[5:], LABELS[:5]])  # not in the order of the classes
ATTRIBUTES = np.random.default_rng(0).uniform(0, 100, (10, 312)).astype(np.float32)
FEATURES = np.random.default_rng(1).normal(size=(30, 10, 6)).astype(np.float32)
TEST = NAMES[:3]
TRAINVAL = NAMES[3:]
RULE = [NAMES[5], NAMES[8]]  # every third of the sorted seven
ATTRIBUTE_FILE = 'class_attribute_labels_continuous.txt'


def write(folder, **lists):
    """Write lists of lines as text files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        (folder / f'{name}.txt').write_text(''.join(f'{line}\n' for line in lines))


def numbered(values):
    return [f'{k} {value}' for k, value in enumerate(values, 1)]


def write_text(folder, features=FEATURES, inner=''):
    """The text files, those of CUB in an inner folder."""
    write(folder / inner, classes=numbered(NAMES), image_class_labels=numbered(LABELS))
    rows = [' '.join(map(str, row)) for row in ATTRIBUTES]
    write(folder / inner / ('attributes' if inner else ''), **{ATTRIBUTE_FILE.removesuffix('.txt'): rows})
    write(folder, trainvalclasses=TRAINVAL, testclasses=TEST)
    np.save(folder / 'features.npy', features)


def write_torch(folder):
    write(folder, trainvalclasses=TRAINVAL, testclasses=TEST)
    (folder / 'images').mkdir()
    for k, name in enumerate(NAMES, 1):
        tensor = np.ascontiguousarray(FEATURES[k == LABELS].transpose(0, 2, 1))
        (folder / 'images' / f'{name}.t7').write_bytes(torch(tensor))
    (folder / 'attributes.t7').write_bytes(torch(ATTRIBUTES))


def locations(names):
    return np.flatnonzero(np.isin(LABELS, [NAMES.index(name) + 1 for name in names]))[:, None] + 1.0


def write_mat(folder, **changes):
    """res101.mat and att_splits.mat with changed values; None removes one."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = {
        'allclasses_names': np.array(NAMES, object),
        'original_att': ATTRIBUTES.T,
        'att': ATTRIBUTES.T / 100,
        'trainval_loc': locations(TRAINVAL)[1:],  # without one that is kept for test_seen_loc
        'test_unseen_loc': locations(TEST),
        'val_loc': locations(TRAINVAL[:2]),
    }
    features = {'features': FEATURES[:, 0].T.astype(np.float64), 'labels': LABELS[:, None].astype(np.uint8)}
    for name, values in (('res101', features), ('att_splits', splits)):
        values = {key: changes.get(key, value) for key, value in values.items()}
        values = {key: value for key, value in values.items() if value is not None}
        scipy.io.savemat(folder / f'{name}.mat', values, do_compression=True)


def check(source, validation, features=FEATURES):
    """All features and attributes are where they belong."""
    found = {split: list(records) for split, records in cub.records([source]).items()}
    splits = {'train': [n for n in TRAINVAL if n not in validation], 'validation': validation, 'test': TEST}
    assert {split: [record['name'] for record in records] for split, records in found.items()} == splits
    for record in (record for records in found.values() for record in records):
        number = NAMES.index(record['name'])
        assert record['items'].dtype == record['attributes'].dtype == np.float32
        np.testing.assert_allclose(record['items'], features[number + 1 == LABELS], rtol=1e-6)
        np.testing.assert_allclose(record['attributes'], ATTRIBUTES[number], rtol=1e-6)


def test_text_with_ten_crops(tmp_path, caplog):
    write_text(tmp_path / 'source')
    data = cub.load(data='real', source=tmp_path / 'source', data_dir=tmp_path / 'prepared')
    assert data.title == 'CUB-200-2011' and not data.synthetic
    assert data.validation.names == tuple(RULE) and data.test.counts.tolist() == [3, 2, 4]
    np.testing.assert_array_equal(data.test.items[1, :2], FEATURES[LABELS == 2])
    np.testing.assert_allclose(data.test.attributes, ATTRIBUTES[:3], rtol=1e-6)
    assert 'expected (100, 50, 50) classes; results are not comparable' in caplog.text


@pytest.mark.parametrize('dtype, inner', [(np.float16, ''), (np.float64, 'CUB_200_2011')])
def test_one_crop_in_other_types_and_places(dtype, inner, tmp_path):
    features = FEATURES[:, 0].astype(dtype)
    write_text(tmp_path, features, inner)
    check(tmp_path, RULE, features[:, None].astype(np.float32))


def test_torch_and_with_attributes_as_text_and_ids(tmp_path):
    write_torch(tmp_path)
    check(tmp_path, RULE)
    write_text(tmp_path)
    for name in ('features.npy', 'attributes.t7', 'trainvalclasses.txt'):
        (tmp_path / name).unlink()
    ids = {name: NAMES[::-1].index(name) + 1 for name in NAMES}
    manifest = [f'{name}.t7' for name in reversed(NAMES)]
    write(tmp_path, manifest=manifest, trainvalids=map(ids.get, TRAINVAL), trainids=map(ids.get, TRAINVAL[:4]))
    check(tmp_path, TRAINVAL[4:])


@pytest.mark.parametrize('lists', [{'valclasses1': TRAINVAL[:2]}, {'trainclasses': TRAINVAL[2:]}])
def test_division_of_the_source_is_taken(lists, tmp_path):
    write_text(tmp_path)
    write(tmp_path, **lists)
    check(tmp_path, TRAINVAL[:2])


def test_matlab(tmp_path):
    write_mat(tmp_path / 'one')
    check(tmp_path / 'one', TRAINVAL[:2], FEATURES[:, :1])
    write_mat(tmp_path / 'two/xlsa17/data/CUB', val_loc=None)
    check(tmp_path / 'two', RULE, FEATURES[:, :1])


def edit(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def overwrite(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def changed(**changes):
    return lambda folder: write_mat(folder, **changes)


NAN = np.where(np.arange(30)[:, None, None] == 4, np.nan, FEATURES)
LABEL_FILE = 'image_class_labels.txt'
FIRST, SECOND = f'images/{NAMES[3]}.t7', f'images/{NAMES[4]}.t7'


@pytest.mark.parametrize(
    'make, spoil, message',
    [
        (write_text, overwrite('features.npy', npy(NAN)), "features of class '0.*' must be finite"),
        (write_text, overwrite('features.npy', npy(FEATURES[:29])), r'expected features floats \[30, D\] .* got'),
        (write_text, lambda f: (f / 'features.npy').unlink(), 'does not contain features.npy, images/'),
        (write_text, lambda f: (f / 'testclasses.txt').unlink(), 'does not contain testclasses.txt'),
        (write_text, edit('testclasses.txt', NAMES[1], '999.Dodo'), "'999.Dodo' is not one of the 10 classes"),
        (write_text, edit('testclasses.txt', NAMES[1], NAMES[4]), "class '005.Bird_5' is in both train and test"),
        (write_text, edit(LABEL_FILE, '\n5 4', '\n5 11'), 'expected integers from 1 to 10 as labels'),
        (write_text, edit(LABEL_FILE, '\n5 4', '\n5 x'), 'cannot be read'),
        (write_text, edit(LABEL_FILE, '\n5 4', '\n5'), f'{LABEL_FILE} is not a numbered list'),
        (write_text, edit(ATTRIBUTE_FILE, ' ', ' 5 '), 'same number of values in every line'),
        (write_text, overwrite(ATTRIBUTE_FILE, b'1 2\n' * 9), r'finite attributes \[10, A\], got \(9, 2\)'),
        (write_text, overwrite(ATTRIBUTE_FILE, b'1 nan\n' * 10), 'expected finite attributes'),
        (write_text, overwrite('classes.txt', b'\xff'), 'is not a text file'),
        (write_torch, overwrite(FIRST, torch(FEATURES[0])), r'is not a tensor \[images, D, crops\]'),
        (write_torch, overwrite(SECOND, torch(FEATURES[:3])), r'finite \[n, \(10, 6\)\], got \(3, 6, 10\)'),
        (write_torch, lambda f: write(f, manifest=NAMES[:-1]), 'does not list the files of images/'),
        (changed(features=FEATURES[:29, 0].T), None, r'expected features \[D, 30\], got'),
        (changed(test_unseen_loc=np.array([[31.0]])), None, 'test_unseen_loc: expected integers from 1 to 30'),
        (changed(val_loc=locations(NAMES[:5])), None, "class '001.Bird_1' is in both validation and test"),
    ],
)
def test_what_can_be_wrong(make, spoil, message, tmp_path):
    make(tmp_path)
    if spoil:
        spoil(tmp_path)
    with pytest.raises(DataError, match=message) as error:
        for records in cub.records([tmp_path]).values():
            list(records)
    assert str(error.value).isprintable()


def test_real_data(real_data, tmp_path):
    data = cub.load(data='real', source=real_data('cub'), data_dir=tmp_path)
    assert [len(split.names) for split in data[2:]] == [100, 50, 50]
    assert data.train.items.shape[2] in (1, 10) and data.train.items.shape[3] == 1024
    assert data.train.attributes.shape == (100, 312)
