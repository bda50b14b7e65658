"""The forms in which people have the images of miniImageNet: lists of files, folders of files, pickled arrays."""

import csv
import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from protojax.datasets.formats import Budget, reading_format
from protojax.datasets.formats.pickle import read_pickle
from protojax.datasets.formats.pictures import read_picture
from protojax.datasets.sources import SPLIT_NAMES
from protojax.datasets.sources.files import Files
from protojax.errors import DataError

SIZE = 84
IMAGES = ('.jpg', '.jpeg', '.png')
LONGEST = 4 << 20  # bytes of a list or image; the list of the training images, with 1.2 MB, is the largest honest file


class _UnreadClass(NamedTuple):
    """The images of a class, not read yet."""

    count: int
    images: Callable[[], np.ndarray]  # () -> uint8 [count, 84, 84, 3]


Classes = dict[str, _UnreadClass]


def miniimagenet_form_of_lists(files: Files) -> dict[str, Classes]:
    """Splits of train.csv, val.csv and test.csv (filename,label); images are beside the list or in images/ there."""
    present = frozenset(files.names)
    return {split: _listed_classes(files, name, present) for split, name in _split_files(_split_of_list, files).items()}


def _listed_classes(files: Files, name: str, present: frozenset[str]) -> Classes:
    where, beside, images, seen = files.path / name, name[: name.rfind('/') + 1], {}, set()
    with reading_format(where, 'is no list of filename,label'):
        rows = csv.reader(io.StringIO(str(files.contents(name, LONGEST), 'utf-8')), strict=True)
        header = next(rows)
        columns = [header.index(column) for column in ('filename', 'label')]
        for row in filter(None, rows):
            file, label = (row[column] for column in columns)
            path = next((path for path in (f'{beside}images/{file}', f'{beside}{file}') if path in present), None)
            if path is None:
                raise DataError(f'{where} lists {file!r}, which is not in images/ beside it; unpack all of the images')
            if path in seen or not label:
                raise DataError(f'{where} lists {file!r} twice or without a label; get it again')
            seen.add(path)
            images.setdefault(label, []).append(path)
    return _unread(files, images)


def miniimagenet_form_of_folders(files: Files) -> dict[str, Classes]:
    """Splits of the folders train/<class>/, val/<class>/ and test/<class>/."""
    images, places = {}, {}
    for name in files.names:
        place, label, _ = ('', '', *name.rsplit('/', 2))[-3:]
        split = SPLIT_NAMES.get(place.rpartition('/')[2].lower())
        if split and name.lower().endswith(IMAGES):
            if places.setdefault(split, place) != place:
                raise _held_twice(files, place, split)
            images.setdefault(split, {}).setdefault(label, []).append(name)
    return {split: _unread(files, classes) for split, classes in images.items()}


def miniimagenet_form_of_arrays(files: Files) -> dict[str, Classes]:
    """Splits of mini-imagenet-cache-train.pkl and the like."""
    splits = {}
    for split, name in _split_files(split_in_form_of_arrays, files).items():
        path = files.path / name
        splits[split] = classes_in_form_of_arrays(read_pickle(files.contents(name), path), path, split)
    return splits


def classes_in_form_of_arrays(contents: dict, where, split: str) -> Classes:
    """Classes of {'image_data', 'class_dict': {name: indices}} or {'data', 'labels', ['catname2label']}."""
    with reading_format(where, 'holds no images by class'):
        match contents:
            case {'image_data': np.ndarray() as images, 'class_dict': dict(indices)}:
                _check_images(images, where)
                if sum(map(len, indices.values())) > len(images):  # they may all be one list
                    raise DataError(f'{where}: an image is listed twice; get it again')
                indices = {str(name): _numbers(own, f'{where}: class {name!r}') for name, own in indices.items()}
            case {'data': np.ndarray() as images, 'labels': list() | np.ndarray() as labels}:
                _check_images(images, where)
                indices = _indices_by_label(labels, len(images), contents.get('catname2label'), where, split)
            case _:
                raise DataError(f'{where} holds neither image_data and class_dict nor data and labels; get it again')
    _check_indices(indices, len(images), where)
    return {name: _UnreadClass(len(own), lambda own=own: images[own]) for name, own in indices.items()}


def _check_images(images: np.ndarray, where) -> None:
    if images.dtype != np.uint8 or images.shape[1:] != (SIZE, SIZE, 3):
        raise DataError(f'{where}: images of {images.dtype} {images.shape[1:]}, not uint8 (84, 84, 3); get it again')


def _indices_by_label(labels, images: int, numbers_of_names, where, split: str) -> dict[str, np.ndarray]:
    """The images of each label, under its name where there is one."""
    labels = _numbers(labels, f'{where}: labels')
    if len(labels) != images:
        raise DataError(f'{where}: {len(labels)} labels for {images} images; get it again')
    known = numbers_of_names.items() if isinstance(numbers_of_names, dict) else ()
    names = {label: str(name) for name, label in known if isinstance(label, int)}
    order = np.argsort(labels, kind='stable')  # once, as there may be as many labels as images
    found, starts = np.unique(labels[order], return_index=True)
    own = np.split(order, starts[1:])
    return {names.get(k, f'{split} {k:03}'): indices for k, indices in zip(found.tolist(), own, strict=True)}


def _numbers(values, where) -> np.ndarray:
    """A list or vector of whole numbers as a vector."""
    if isinstance(values, list) and all(type(value) is int for value in values):  # nested lists can be huge as arrays
        values = np.array(values, np.int64 if not values else None)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in 'iu':
        raise DataError(f'{where} is not a list of whole numbers; get it again')
    return values


def _check_indices(indices: dict[str, np.ndarray], images: int, where) -> None:
    seen = np.zeros(images, bool)
    for name, own in indices.items():
        if not len(own) or own.min() < 0 or own.max() >= images:
            raise DataError(f'{where}: class {name!r} has no images, or some that are not there; get it again')
        if seen[own].any() or len(np.unique(own)) < len(own):
            raise DataError(f'{where}: an image of class {name!r} is listed twice; get it again')
        seen[own] = True


def _split_of_list(name: str) -> str | None:
    """The split of train.csv, val.csv or test.csv."""
    stem, _, ending = name.rpartition('/')[2].rpartition('.')
    return SPLIT_NAMES[stem] if ending == 'csv' and stem in ('train', 'val', 'test') else None


def split_in_form_of_arrays(name: str) -> str | None:
    """The split of a pickle whose name ends in train, val or test.

    In the category split, train_phase_val and train_phase_test hold further images of the training classes.
    """
    stem, _, ending = name.rpartition('/')[2].lower().rpartition('.')
    if ending not in ('pkl', 'pickle') or stem.endswith(('train_phase_val', 'train_phase_test')):
        return None
    return next((SPLIT_NAMES[split] for split in ('train', 'val', 'test') if stem.endswith(split)), None)


def _split_files(split_of: Callable[[str], str | None], files: Files) -> dict[str, str]:
    """The file of each split, by its name."""
    found = {}
    for name in files.names:
        if split := split_of(name):
            if split in found:
                raise _held_twice(files, name, split)
            found[split] = name
    return found


def _held_twice(files: Files, name: str, split: str) -> DataError:
    return DataError(f'{files.path / name} holds the {split} split a second time; leave just one in `source`')


def _unread(files: Files, images: dict[str, list[str]]) -> Classes:
    return {name: _UnreadClass(len(own), lambda own=own: _decoded(files, own)) for name, own in images.items()}


def _decoded(files: Files, names: list[str]) -> np.ndarray:
    """Images of the given names: uint8 [names, 84, 84, 3]."""
    with reading_format(files.path, 'has more images of a class than fit into memory'):
        Budget(files.size).spend(len(names) * SIZE * SIZE * 3)
    images = np.empty((len(names), SIZE, SIZE, 3), np.uint8)
    for image, name in zip(images, names, strict=True):
        contents, where = files.contents(name, LONGEST), files.path / name
        image[:] = read_picture(contents, where, size=(SIZE, SIZE), mode='RGB', formats=('JPEG', 'PNG'))
    return images
