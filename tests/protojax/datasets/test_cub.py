"""CUB from the three forms in which people have its features, and everything that can be wrong with them."""

import shutil

import numpy as np
import pytest
import scipy.io

from experiments.fuzzing.seeds import seed_torch7 as torch
from protojax.datasets import cub
from protojax.datasets.cub import load_cub
from protojax.datasets.sources.cub_forms import read_cub_form
from protojax.errors import DataError

NAMES = [f'{k:03}.Bird_{k}' for k in range(1, 11)]
LABELS = np.repeat(np.arange(1, 11), [3, 2, 4, 3, 3, 3, 3, 3, 3, 3])
LABELS = np.concatenate([LABELS[5:], LABELS[:5]])  # not in the order of the classes
ATTRIBUTES = np.random.default_rng(0).uniform(0, 100, (10, 312)).astype(np.float32)
FEATURES = np.random.default_rng(1).normal(size=(30, 10, 6)).astype(np.float32)
TEST = NAMES[:3]
TRAINVAL = NAMES[3:]
RULE = [NAMES[5], NAMES[8]]  # every third of the sorted seven


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(f'{line}\n' for line in lines))


def write_lists(folder, **lists):
    for name, lines in lists.items():
        write_lines(folder / f'{name}.txt', lines)


def write_text(folder, features=FEATURES, places=('', '')):
    """The text files, in two places: those of CUB and its attributes."""
    birds, attributes = (folder / place for place in places)
    write_lines(birds / 'classes.txt', (f'{k} {name}' for k, name in enumerate(NAMES, 1)))
    write_lines(birds / 'images.txt', (f'{k} {NAMES[label - 1]}/x.jpg' for k, label in enumerate(LABELS, 1)))
    write_lines(birds / 'image_class_labels.txt', (f'{k} {label}' for k, label in enumerate(LABELS, 1)))
    write_lines(attributes / 'class_attribute_labels_continuous.txt', (' '.join(map(str, row)) for row in ATTRIBUTES))
    write_lists(folder, trainvalclasses=TRAINVAL, testclasses=TEST)
    np.save(folder / 'features.npy', features)


def write_torch(folder):
    (folder / 'images').mkdir(parents=True)
    for k, name in enumerate(NAMES, 1):
        tensor = np.ascontiguousarray(FEATURES[k == LABELS].transpose(0, 2, 1))
        (folder / 'images' / f'{name}.t7').write_bytes(torch(tensor))
    (folder / 'attributes.t7').write_bytes(torch(ATTRIBUTES))
    write_lists(folder, trainvalclasses=TRAINVAL, testclasses=TEST)


def locations(names):
    return np.flatnonzero(np.isin(LABELS, [NAMES.index(name) + 1 for name in names]))[:, None] + 1.0


def mat_variables():
    return (
        {'features': FEATURES[:, 0].T.astype(np.float64), 'labels': LABELS[:, None].astype(np.uint8)},
        {
            'allclasses_names': np.array([[name] for name in NAMES], object),
            'original_att': ATTRIBUTES.T,
            'att': ATTRIBUTES.T / 100,
            'trainval_loc': locations(TRAINVAL)[1:],  # without one that is kept for test_seen_loc
            'test_unseen_loc': locations(TEST),
            'train_loc': locations(TRAINVAL[2:]),
            'val_loc': locations(TRAINVAL[:2]),
        },
    )


def write_mat(folder, variables=None):
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(('res101', 'att_splits'), variables or mat_variables(), strict=True):
        scipy.io.savemat(folder / f'{name}.mat', values, do_compression=True)


def load(folder):
    return load_cub(data='real', source=folder, data_dir=folder.with_name('prepared'))


def check(data, validation, features=FEATURES):
    splits = {'train': [n for n in TRAINVAL if n not in validation], 'validation': validation, 'test': TEST}
    assert not data.synthetic and data.title == 'CUB-200-2011'
    for split, names in splits.items():
        found = getattr(data, split)
        assert found.names == tuple(names)
        assert found.items.dtype == found.attributes.dtype == np.float32
        for k, name in enumerate(names):
            number = NAMES.index(name)
            own = features[number + 1 == LABELS]
            assert found.counts[k] == len(own)
            np.testing.assert_allclose(found.items[k, : len(own)], own, rtol=1e-6)
            assert not found.items[k, len(own) :].any()
            np.testing.assert_allclose(found.attributes[k], ATTRIBUTES[number], rtol=1e-6)


def test_text_with_ten_crops(tmp_path, capsys):
    write_text(tmp_path / 'source')
    check(load(tmp_path / 'source'), RULE)
    assert 'train 5 classes, validation 2 classes, test 3 classes; features.npy' in capsys.readouterr().err


def test_other_numbers_of_classes_are_announced(tmp_path, capsys, monkeypatch):
    line = "other numbers of classes than (100, 50, 50): figures cannot be compared with the paper's"
    write_text(tmp_path / 'source')
    load(tmp_path / 'source')
    assert line in capsys.readouterr().err
    monkeypatch.setattr(cub, 'CLASSES', (5, 2, 3))
    shutil.rmtree(tmp_path / 'prepared')
    load(tmp_path / 'source')
    assert 'other numbers of classes' not in capsys.readouterr().err


def test_text_in_the_original_layout(tmp_path):
    write_text(tmp_path / 'source', places=('CUB_200_2011', 'CUB_200_2011/attributes'))
    check(load(tmp_path / 'source'), RULE)


@pytest.mark.parametrize('dtype', [np.float16, np.float64])
def test_one_crop_in_other_types(dtype, tmp_path):
    features = FEATURES[:, 0].astype(dtype)
    write_text(tmp_path / 'source', features)
    check(load(tmp_path / 'source'), RULE, features[:, None].astype(np.float32))


def test_torch(tmp_path):
    write_torch(tmp_path / 'source')
    check(load(tmp_path / 'source'), RULE)


def test_torch_with_attributes_as_text_and_ids(tmp_path):
    write_torch(tmp_path / 'source')
    for name in ('attributes.t7', 'trainvalclasses.txt'):
        (tmp_path / 'source' / name).unlink()
    order = NAMES[::-1]
    write_lists(tmp_path / 'source', class_attribute_labels_continuous=(' '.join(map(str, row)) for row in ATTRIBUTES))
    write_lists(
        tmp_path / 'source',
        manifest=[f'{name}.t7' for name in order],
        trainvalids=[order.index(name) + 1 for name in TRAINVAL],
        trainids=[order.index(name) + 1 for name in TRAINVAL[:4]],
    )
    check(load(tmp_path / 'source'), TRAINVAL[4:])


@pytest.mark.parametrize(
    'lists', [{'valclasses': TRAINVAL[:2]}, {'valclasses1': TRAINVAL[:2]}, {'trainclasses': TRAINVAL[2:]}]
)
def test_division_of_the_source_is_taken(lists, tmp_path):
    write_text(tmp_path / 'source')
    write_lists(tmp_path / 'source', **lists)
    check(load(tmp_path / 'source'), TRAINVAL[:2])


def test_matlab(tmp_path):
    write_mat(tmp_path / 'source')
    check(load(tmp_path / 'source'), TRAINVAL[:2], FEATURES[:, :1])


def test_matlab_without_division(tmp_path):
    features, splits = mat_variables()
    write_mat(tmp_path / 'source' / 'xlsa17/data/CUB', (features, {k: v for k, v in splits.items() if k != 'val_loc'}))
    check(load(tmp_path / 'source'), RULE, FEATURES[:, :1])


def test_prepared_data_need_no_source(tmp_path, capsys):
    write_text(tmp_path / 'source')
    load(tmp_path / 'source')
    shutil.rmtree(tmp_path / 'source')
    capsys.readouterr()
    check(load_cub(data='real', data_dir=tmp_path / 'prepared'), RULE)
    assert capsys.readouterr().err == ''


def test_without_real_data(tmp_path, capsys):
    with pytest.raises(DataError, match='`source`'):
        load_cub(data='real', data_dir=tmp_path)
    data = load_cub(data='auto', data_dir=tmp_path)
    assert data.synthetic and data.test.items.shape[2:] == (10, 1024) and data.test.attributes.shape == (50, 312)
    assert 'not CUB' in capsys.readouterr().err


def refused(folder, message):
    with pytest.raises(DataError, match=message) as error:
        load(folder)
    assert '\n' not in str(error.value)


def spoiled(index, value):
    features = FEATURES.copy()
    features[index] = value
    return features


def edit(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def save(features):
    return lambda folder: np.save(folder / 'features.npy', features, allow_pickle=True)


def header_of(shape):
    """A .npy file whose header promises more than follows."""

    def change(folder):
        data = (folder / 'features.npy').read_bytes()
        old = b'(30, 10, 6), }'
        assert old in data
        (folder / 'features.npy').write_bytes(data.replace(old + b' ' * (len(shape) - len(old)), shape.encode()))

    return change


ATTRIBUTE_FILE = 'class_attribute_labels_continuous.txt'


@pytest.mark.parametrize(
    'spoil, message',
    [
        (save(spoiled((4, 3, 2), np.nan)), "class '0.*' has features that are not finite"),
        (save(spoiled((4, 3, 2), np.inf)), 'features that are not finite'),
        (save(FEATURES[:29]), 'has 29 rows, but there are 30 images'),
        (save(FEATURES[..., None]), r'float32 \(30, 10, 6, 1\), not floats'),
        (save(np.ones((30, 6), np.int32)), r'int32 \(30, 6\), not floats'),
        (save(np.array([{}], object)), 'is not a whole .npy file'),
        (header_of('(30, 10, 600000000000), }'), 'is not a whole .npy file'),
        (header_of('(30, 10, -6), }'), 'is not a whole .npy file'),
        (lambda f: (f / 'features.npy').write_bytes(b''), 'is not a whole .npy file'),
        (lambda f: (f / 'features.npy').write_bytes(b'\x93NUMPY\x01\x00\xff\xff{'), 'is not a whole .npy file'),
        (lambda f: (f / 'features.npy').unlink(), 'holds no features.npy, images/'),
        (lambda f: (f / 'classes.txt').unlink(), 'holds no classes.txt'),
        (lambda f: (f / 'testclasses.txt').unlink(), 'holds no testclasses.txt'),
        (lambda f: (f / 'trainvalclasses.txt').unlink(), 'holds no trainvalclasses.txt'),
        (lambda f: (f / ATTRIBUTE_FILE).unlink(), 'holds no class_attribute_labels_continuous.txt'),
        (edit('testclasses.txt', NAMES[1], '999.Dodo'), "'999.Dodo' is none of the 10 classes"),
        (edit('testclasses.txt', NAMES[1], NAMES[4]), "class '005.Bird_5' is in both train and test"),
        (edit('image_class_labels.txt', '\n5 4', '\n5 11'), 'labels are not all whole numbers from 1 to 10'),
        (edit('image_class_labels.txt', '\n5 4', '\n5 0'), 'labels are not all whole numbers from 1 to 10'),
        (edit('image_class_labels.txt', '\n5 4', '\n5 x'), 'a label that is no number'),
        (edit('image_class_labels.txt', '\n5 4', '\n4 4'), 'line 5 is not "5 <value>"'),
        (edit('image_class_labels.txt', '30 2\n', ''), 'lists 30 images, image_class_labels.txt 29'),
        (edit('classes.txt', NAMES[1], NAMES[2]), 'one of them twice'),
        (edit('classes.txt', '2 002.Bird_2', '2 002.Bird 2'), 'line 2 is not "2 <value>"'),
        (edit(ATTRIBUTE_FILE, ' ', ' 5 '), 'same number of numbers in every line'),
        (edit(ATTRIBUTE_FILE, ' ', ' nan '), 'same number of numbers in every line'),
        (lambda f: write_lines(f / ATTRIBUTE_FILE, ['1 2'] * 9), r'attributes \(9, 2\) are not numbers for each of 10'),
        (lambda f: write_lines(f / ATTRIBUTE_FILE, ['1 nan'] * 10), 'are not numbers for each of 10'),
        (lambda f: (f / 'classes.txt').write_bytes(b'\xff'), 'is no text file'),
        (
            lambda f: write_lists(f, image_class_labels=[f'{k} {max(2, x)}' for k, x in enumerate(LABELS, 1)]),
            'has no images',
        ),
    ],
)
def test_what_can_be_wrong_with_text(spoil, message, tmp_path):
    write_text(tmp_path / 'source')
    spoil(tmp_path / 'source')
    refused(tmp_path / 'source', message)


FIRST, SECOND = f'images/{NAMES[3]}.t7', f'images/{NAMES[4]}.t7'


@pytest.mark.parametrize(
    'spoil, message',
    [
        (lambda f: (f / FIRST).write_bytes(b'no torch'), f'{FIRST} is not a whole .t7 file'),
        (lambda f: (f / FIRST).write_bytes((f / FIRST).read_bytes()[:-1]), f'{FIRST} is not a whole .t7 file'),
        (lambda f: (f / FIRST).write_bytes(torch({'a': 1.0})), f'{FIRST} holds no tensor'),
        (lambda f: (f / FIRST).write_bytes(torch(FEATURES[0])), f'{FIRST} holds no tensor'),
        (
            lambda f: (f / f'images/{NAMES[4]}.t7').write_bytes(torch(FEATURES[:3])),
            r'has features \(6, 10\), others have \(10, 6\)',
        ),
        (lambda f: (f / FIRST).write_bytes(torch(np.full((2, 6, 10), np.nan))), 'features that are not finite'),
        (lambda f: (f / FIRST).unlink(), 'are not numbers for each of 9 classes'),
        (lambda f: (f / 'attributes.t7').write_bytes(torch(1.0)), 'attributes.t7 holds no tensor'),
        (lambda f: (f / 'attributes.t7').unlink(), 'holds no class_attribute_labels_continuous.txt'),
        (lambda f: write_lists(f, manifest=NAMES[:-1]), 'does not list the files of images/'),
        (lambda f: write_lists(f, valids=['99']), "'99' is none of the 10 classes"),
    ],
)
def test_what_can_be_wrong_with_torch_files(spoil, message, tmp_path):
    write_torch(tmp_path / 'source')
    spoil(tmp_path / 'source')
    refused(tmp_path / 'source', message)


@pytest.mark.parametrize(
    'file, changes, message',
    [
        (0, {'features': None}, 'res101.mat holds no variable features'),
        (0, {'features': FEATURES[:29, 0].T}, r'features are not numbers \[D, 30\]'),
        (0, {'features': 'text'}, 'features are not numbers'),
        (0, {'labels': LABELS[:, None] + 1}, 'labels are not all whole numbers from 1 to 10'),
        (0, {'labels': np.where(LABELS == 3, np.nan, LABELS)}, 'labels are not all whole numbers from 1 to 10'),
        (0, {'labels': np.ones((5, 6))}, 'labels is no vector'),
        (1, {'allclasses_names': None}, 'holds no variable allclasses_names'),
        (1, {'allclasses_names': np.ones(10)}, 'allclasses_names is no list'),
        (1, {'original_att': None, 'att': None}, 'neither original_att nor att'),
        (1, {'original_att': ATTRIBUTES}, 'are not numbers for each of 10 classes'),
        (1, {'test_unseen_loc': np.array([[31.0]])}, 'test_unseen_loc: labels are not all whole numbers from 1 to 30'),
        (1, {'val_loc': locations(TRAINVAL[:2] + TEST[:1])}, "class '001.Bird_1' is in both validation and test"),
    ],
)
def test_what_can_be_wrong_with_matlab_files(file, changes, message, tmp_path):
    variables = mat_variables()
    variables[file].update(changes)
    for values in variables:
        for name in [name for name, value in values.items() if value is None]:
            del values[name]
    write_mat(tmp_path / 'source', variables)
    refused(tmp_path / 'source', message)


def test_missing_matlab_splits(tmp_path):
    write_mat(tmp_path / 'source')
    (tmp_path / 'source' / 'att_splits.mat').unlink()
    refused(tmp_path / 'source', 'holds no att_splits.mat')


def test_source_that_is_no_folder(tmp_path):
    refused(tmp_path / 'nowhere', 'is not a folder')


def test_real_data(real_data):
    source = read_cub_form(real_data('cub'))
    assert [len(names) for names in source.division.values()] == [100, 50, 50]
    images, crops, dimensions = source.features('001.Black_footed_Albatross').shape
    assert images == 60 and crops in (1, 10) and dimensions == 1024
    assert source.attributes['001.Black_footed_Albatross'].shape == (312,)
