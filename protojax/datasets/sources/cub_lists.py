"""The text files of CUB-200-2011 and of its zero-shot divisions, as published."""

import pathlib
from collections.abc import Sequence

import numpy as np

from protojax.datasets.formats import reading_format
from protojax.datasets.sources.files import read_file
from protojax.errors import DataError

LONGEST = 4 << 20  # bytes of a text file; the list of the images, with 0.7 MB, is the longest honest one
PLACES = ('.', 'attributes', 'CUB_200_2011', 'CUB_200_2011/attributes', 'CUB', 'xlsa17/data/CUB')
Division = dict[str, list[str]]  # split -> class names


def find_cub_file(source: pathlib.Path, name: str) -> pathlib.Path | None:
    """A file of the source, in any of the places where archives of CUB have it."""
    return next((path for place in PLACES if (path := source / place / name).is_file()), None)


def need_cub_file(source: pathlib.Path, name: str) -> pathlib.Path:
    if path := find_cub_file(source, name):
        return path
    raise DataError(f'{source} holds no {name}; put it there, as CUB-200-2011 has it')


def read_list_lines(path: pathlib.Path) -> list[str]:
    """The lines of a text file that are not empty."""
    with reading_format(path, 'is no text file'):
        text = read_file(path, LONGEST).decode()
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_numbered_list(path: pathlib.Path) -> list[str]:
    """The second words of lines '1 first', '2 second', ..."""
    rows = [line.split() for line in read_list_lines(path)]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or row[0] != str(number):
            raise DataError(f'{path}: line {number} is not "{number} <value>"; get it again')
    return [row[1] for row in rows]


def read_class_list(path: pathlib.Path) -> list[str]:
    names = read_numbered_list(path)
    if not names or len(set(names)) < len(names):
        raise DataError(f'{path} names no class or one of them twice; get it again')
    return names


def read_label_list(path: pathlib.Path, classes: int) -> np.ndarray:
    """The class of each image, from 0."""
    with reading_format(path, 'holds a label that is no number'):
        return check_cub_label_list(np.array([int(word) for word in read_numbered_list(path)]), classes, path)


def check_cub_label_list(values: np.ndarray, classes: int, where) -> np.ndarray:
    """Labels from 1 as labels from 0."""
    whole = values.dtype.kind in 'iuf' and (values == np.floor(values)).all()
    if not whole or not len(values) or not ((values >= 1) & (values <= classes)).all():
        raise DataError(f'{where}: labels are not all whole numbers from 1 to {classes}, the number of classes')
    return values.astype(np.int64) - 1


def read_attribute_list(path: pathlib.Path, classes: int) -> np.ndarray:
    """Attributes of each class, a line of numbers each: float32 [classes, A]."""
    rows = [line.split() for line in read_list_lines(path)]
    with reading_format(path, 'does not hold the same number of numbers in every line'):
        values = np.array(rows, np.float32)
    return check_attribute_list(values, classes, path)


def check_attribute_list(values: np.ndarray, classes: int, where) -> np.ndarray:
    if values.ndim != 2 or len(values) != classes or not np.isfinite(values).all():
        raise DataError(
            f'{where}: attributes {values.shape} are not numbers for each of {classes} classes; get it again'
        )
    return values.astype(np.float32)


def read_division_lists(source: pathlib.Path, names: Sequence[str]) -> Division:
    """Classes of each split, as lists in the source tell, or the rule of `divide_by_cub_lists` for validation.

    Lists hold names (trainclasses.txt) or numbers from 1 (trainids.txt); of several divisions the first is taken.
    """
    listed = {part: read_split_list(source, part, names) for part in ('train', 'val', 'trainval', 'test')}
    if listed['test'] is None:
        need_cub_file(source, 'testclasses.txt')
    trainval = listed['trainval'] or (listed['train'] or []) + (listed['val'] or [])
    if not trainval:
        need_cub_file(source, 'trainvalclasses.txt')
    if listed['val'] is None and listed['train'] is not None:
        train = set(listed['train'])
        listed['val'] = [name for name in trainval if name not in train]
    return divide_by_cub_lists(trainval, listed['val'], listed['test'])


def read_split_list(source: pathlib.Path, part: str, names: Sequence[str]) -> list[str] | None:
    numbers = {str(number): name for number, name in enumerate(names, 1)}
    for ending in ('classes.txt', 'classes1.txt', 'ids.txt'):
        if path := find_cub_file(source, part + ending):
            listed = read_list_lines(path)
            if ending == 'ids.txt':
                listed = [numbers.get(line.lstrip('0'), line) for line in listed]
            if unknown := sorted(set(listed) - set(names)):
                raise DataError(f'{path}: {unknown[0]!r} is none of the {len(names)} classes; get the list again')
            return listed
    return None


def divide_by_cub_lists(trainval: list[str], validation: list[str] | None, test: list[str]) -> Division:
    """Splits; where validation is not given, it is every third class of trainval in the order of their names."""
    validation = set(sorted(trainval)[2::3] if validation is None else validation)
    splits = {'train': [name for name in trainval if name not in validation], 'validation': validation, 'test': test}
    owner = {}
    for split, names in splits.items():
        for name in names:
            if owner.setdefault(name, split) != split:
                raise DataError(f'class {name!r} is in both {owner[name]} and {split}; take it out of one of the lists')
    return {split: sorted(set(names)) for split, names in splits.items()}
