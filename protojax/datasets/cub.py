"""CUB-200-2011 for zero-shot learning: 200 birds with 312 attributes each, split 100 / 50 / 50.

Inputs are image features, which are not part of CUB; `source` is a folder with features, attributes and lists of
classes. If no list names the validation classes among the 150 training classes, they are every third class in the
order of their names. The layouts are

- `features.npy` beside the text files of CUB-200-2011: [images, D] or [images, crops, D] in the order of images.txt;
- `images/<class>.t7`, Torch tensors [images, D, crops], with lists of classes or ids, as published by Reed et al.;
- `res101.mat` and `att_splits.mat`, as in later work on zero-shot learning.

If there are several crops, the first must be the middle one, which Reed et al. evaluate on.
"""

import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from absl import logging

from protojax.datasets import Splits, prepared, readers, sources
from protojax.datasets.synthetic.birds import birds
from protojax.errors import DataError

CLASSES = (100, 50, 50)  # number of train, validation and test classes (Reed et al.)
FOLDERS = ('.', 'attributes', 'CUB_200_2011', 'CUB_200_2011/attributes', 'CUB', 'xlsa17/data/CUB')
ATTRIBUTES = 'class_attribute_labels_continuous.txt'
FEATURES = {
    'items': tfds.features.Tensor(shape=(None, None, None), dtype=np.float32, encoding='bytes'),
    'attributes': tfds.features.Tensor(shape=(None,), dtype=np.float32),
}
TRAINVAL, VALIDATION, TEST = 'trainval_loc', 'val_loc', 'test_unseen_loc'  # indices of images, in att_splits.mat
ClassNames = dict[str, list[str]]  # split -> class names


class Layout(NamedTuple):
    """All classes of a source; features are not read yet."""

    names: list[str]
    attributes: np.ndarray  # [classes, A]
    features: Callable[[str], np.ndarray]  # class name -> [images, crops, D]
    splits: ClassNames


def load(
    *, data: str = 'auto', source: str | os.PathLike | None = None, data_dir: str | os.PathLike | None = None
) -> Splits:
    """Load CUB, items float32 [classes, images, crops, D], attributes float32 [classes, A].

    Args:
        data: 'real', 'synthetic' (invented birds) or 'auto', which is synthetic if real data are unavailable.
        source: Folder to prepare from, which is not needed after the first time.
        data_dir: Folder of the prepared data.
    """
    plan = prepared.Plan('CUB-200-2011', 'cub_features/1.0.0', FEATURES, lambda source: [source], records)
    return prepared.load(plan, data=data, source=source, data_dir=data_dir, synthetic=birds)


def records(folders: list[pathlib.Path]) -> dict[str, Iterator[dict]]:
    """Make one record per class of each split."""
    (source,) = folders
    with readers.attempt(source, 'cannot be read'):
        found = layout(source)
        shape = found.features(found.splits['train'][0]).shape[1:]
    counts = tuple(map(len, found.splits.values()))
    logging.info('CUB: %d training, %d validation and %d test classes in %s', *counts, source)
    if counts != CLASSES:
        logging.warning('CUB: expected %s classes; results are not comparable with the paper', CLASSES)
    attributes = dict(zip(found.names, found.attributes, strict=True))

    def record(name):
        items = np.ascontiguousarray(found.features(name), np.float32)
        if not len(items) or items.shape[1:] != shape or not np.isfinite(items).all():
            raise DataError(f'{source}: features of class {name!r} must be finite [n, {shape}], got {items.shape}')
        return {'name': name, 'items': items, 'attributes': attributes[name].astype(np.float32)}

    return {split: map(record, names) for split, names in found.splits.items()}


def layout(source: pathlib.Path) -> Layout:
    """Read the first of the three layouts whose features exist."""
    if search(source, 'features.npy').exists():
        found = from_text(source)
    elif search(source, 'res101.mat').exists():
        found = from_matlab(source)
    elif any((source / 'images').glob('*.t7')):
        found = from_torch(source)
    else:
        raise DataError(f'{source} does not contain features.npy, images/*.t7 or res101.mat; choose another `source`')
    names, attributes = found.names, found.attributes
    if len(set(names)) < len(names) or attributes.shape[:-1] != (len(names),) or not np.isfinite(attributes).all():
        raise DataError(f'{source}: expected finite attributes [{len(names)}, A], got {attributes.shape}')
    sources.check_disjoint(found.splits, source)
    return found


def from_text(source: pathlib.Path) -> Layout:
    """Read features.npy and the text files of CUB-200-2011."""
    names = numbered(need(source, 'classes.txt'))
    of_image = labels(np.array(numbered(need(source, 'image_class_labels.txt')), np.int64), len(names), source)
    features = readers.array(search(source, 'features.npy'))
    if len(features) != len(of_image) or features.ndim not in (2, 3) or features.dtype.kind != 'f':
        wanted = f'floats [{len(of_image)}, D] or [{len(of_image)}, crops, D]'
        raise DataError(f'{source}: expected features {wanted}, got {features.dtype} {features.shape}')
    features = features[:, None] if features.ndim == 2 else features
    own = by_class(of_image, names)
    return Layout(names, attribute_list(source), lambda name: features[own[name]], read_splits(source, names))


def from_torch(source: pathlib.Path) -> Layout:
    """Read a tensor per class; ids count the lines of manifest.txt, which lists the files."""
    names = sorted(path.stem for path in (source / 'images').glob('*.t7'))
    path, order = search(source, 'attributes.t7'), search(source, 'manifest.txt')
    attributes = readers.torch_tensor(path) if path.exists() else attribute_list(source)
    numbers = [line.removesuffix('.t7') for line in readers.lines(order)] if order.exists() else names
    if sorted(numbers) != names:
        raise DataError(f'{order} does not list the files of images/; download both again')

    def features(name):
        with readers.attempt(path := source / 'images' / f'{name}.t7', 'is not a tensor [images, D, crops]'):
            return readers.torch_tensor(path).transpose(0, 2, 1)

    return Layout(names, attributes, features, read_splits(source, numbers))


def from_matlab(source: pathlib.Path) -> Layout:
    """Read all images of a class, including those that generalised zero-shot learning holds out (test_seen_loc)."""
    found = readers.matlab(need(source, 'res101.mat'), ('features', 'labels'))
    path = need(source, 'att_splits.mat')
    splits = readers.matlab(path, (TRAINVAL, VALIDATION, TEST, 'allclasses_names', 'original_att', 'att'))
    names, features = splits['allclasses_names'].tolist(), found['features']
    of_image = labels(found['labels'].reshape(-1), len(names), source)
    if features.ndim != 2 or features.shape[1] != len(of_image) or features.dtype.kind != 'f':
        raise DataError(f'{source}: expected features [D, {len(of_image)}], got {features.dtype} {features.shape}')

    def classes(location: str) -> list[str]:
        images = labels(splits[location].reshape(-1), len(of_image), f'{path}: {location}')
        return sorted({names[k] for k in of_image[images]})

    own = by_class(of_image, names)
    parts = divide(classes(TRAINVAL), classes(VALIDATION) if VALIDATION in splits else None, classes(TEST))
    attributes = splits['original_att' if 'original_att' in splits else 'att'].T
    return Layout(names, attributes, lambda name: features[:, own[name]].T[:, None], parts)


def search(source: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file in the usual folders of CUB; if no folder has it, its path in `source`."""
    paths = [source / folder / name for folder in FOLDERS]
    return next((path for path in paths if path.is_file()), paths[0])


def need(source: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file that must exist."""
    if (path := search(source, name)).exists():
        return path
    raise DataError(f'{source} does not contain {name} of CUB-200-2011; add it')


def numbered(path: pathlib.Path) -> list[str]:
    """Return the second words of lines '1 first', '2 second', ..."""
    with readers.attempt(path, 'is not a numbered list'):
        return [value for _, value in map(str.split, readers.lines(path))]


def attribute_list(source: pathlib.Path) -> np.ndarray:
    """Read the attributes of each class, one line of numbers each: float32 [classes, A]."""
    path = need(source, ATTRIBUTES)
    with readers.attempt(path, 'must have the same number of values in every line'):
        return np.array([line.split() for line in readers.lines(path)], np.float32)


def labels(values: np.ndarray, count: int, where: str | os.PathLike) -> np.ndarray:
    """Turn labels 1 .. count into 0 .. count - 1."""
    if values.dtype.kind not in 'iuf' or not np.isin(values, np.arange(1, count + 1)).all():
        raise DataError(f'{where}: expected integers from 1 to {count} as labels; download it again')
    return values.astype(np.int64) - 1


def by_class(of_image: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the indices of each class's images."""
    return {name: np.flatnonzero(of_image == k) for k, name in enumerate(names)}


def read_splits(source: pathlib.Path, names: Sequence[str]) -> ClassNames:
    """Read the classes of each split from lists of names (trainclasses.txt) or of ids from 1 (trainids.txt).

    If there are several splits, the first is read.
    """
    listed = {part: split_list(source, part, names) for part in ('train', 'val', 'trainval', 'test')}
    trainval = listed['trainval'] or (listed['train'] or []) + (listed['val'] or [])
    for part, classes in (('trainval', trainval), ('test', listed['test'])):
        if not classes:
            need(source, f'{part}classes.txt')
    if listed['val'] is None and listed['train'] is not None:
        listed['val'] = [name for name in trainval if name not in listed['train']]
    return divide(trainval, listed['val'], listed['test'])


def split_list(source: pathlib.Path, part: str, names: Sequence[str]) -> list[str] | None:
    """Read the list of one split, if there is one."""
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    for ending in ('classes.txt', 'classes1.txt', 'ids.txt'):
        if (path := search(source, part + ending)).exists():
            listed = readers.lines(path)
            if ending == 'ids.txt':
                listed = [numbers.get(line.lstrip('0'), line) for line in listed]
            if unknown := sorted(set(listed) - set(names)):
                raise DataError(f'{path}: {unknown[0]!r} is not one of the {len(names)} classes')
            return listed
    return None


def divide(trainval: list[str], validation: list[str] | None, test: list[str]) -> ClassNames:
    """Return the splits; without a list, validation is every third class of trainval in the order of their names."""
    validation = sorted(trainval)[2::3] if validation is None else validation
    splits = {'train': set(trainval) - set(validation), 'validation': set(validation), 'test': set(test)}
    return {split: sorted(names) for split, names in splits.items()}
