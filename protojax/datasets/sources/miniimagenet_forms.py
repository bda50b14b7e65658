"""The forms in which people have the images of miniImageNet: lists of files, folders of files, pickled arrays."""

import csv
import io
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from protojax.datasets.formats import pickle as pickles
from protojax.datasets.sources.archives import DAMAGE, Files
from protojax.errors import DataError

SIZE = 84
SPLITS = {'train': 'train', 'val': 'validation', 'valid': 'validation', 'validation': 'validation', 'test': 'test'}
FILE_LIMIT = 4 << 20  # bytes; the list of the training images, with 1.2 MB, is the largest honest file
LIST = re.compile(r'(?:.*/)?(train|val|test)\.csv')
FOLDER = re.compile(r'(?:.*/)?(train|val|valid|validation|test)/([^/]+)/[^/]+\.(?:jpe?g|png)', re.IGNORECASE)
# In the category split, train_phase_val and train_phase_test hold further images of the training classes.
ARRAYS = re.compile(r'(?:.*/)?(?!.*train_phase_(?:val|test))[^/]*?(train|val|test)\.(?:pkl|pickle)', re.IGNORECASE)


class Class(NamedTuple):
    """The images of a class, not read yet."""

    count: int
    images: Callable[[], np.ndarray]  # () -> uint8 [count, 84, 84, 3]


Classes = dict[str, Class]


def from_lists(files: Files) -> dict[str, Classes]:
    """Splits of train.csv, val.csv and test.csv (filename,label); images are beside the list or in images/ there."""
    present = frozenset(files.names)
    return {split: listed(files, name, present) for split, name in split_files(LIST, files).items()}


def listed(files: Files, name: str, present: frozenset[str]) -> Classes:
    where, images = files.path / name, {}
    try:
        rows = list(csv.DictReader(io.StringIO(read(files, name).decode()), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f'{where} is no list of filename,label ({error}); get it again') from error
    beside = name[: name.rfind('/') + 1]
    for row in rows:
        file, label = row.get('filename'), row.get('label')
        if not file or not label:
            raise DataError(f'{where} has a row without filename or label; get it again')
        path = next((path for path in (f'{beside}images/{file}', f'{beside}{file}') if path in present), None)
        if path is None:
            raise DataError(f'{where} lists {file!r}, which is not in images/ beside it; unpack all of the images')
        images.setdefault(label, []).append(path)
    return unread(files, images)


def from_folders(files: Files) -> dict[str, Classes]:
    """Splits of the folders train/<class>/, val/<class>/ and test/<class>/."""
    images, places = {}, {}
    for name in files.names:
        if match := FOLDER.fullmatch(name):
            split, place = SPLITS[match[1].lower()], name[: match.end(1)]
            if places.setdefault(split, place) != place:
                raise DataError(
                    f'{files.path / place} holds the {split} split a second time; leave just one in --source'
                )
            images.setdefault(split, {}).setdefault(match[2], []).append(name)
    return {split: unread(files, classes) for split, classes in images.items()}


def from_arrays(files: Files) -> dict[str, Classes]:
    """Splits of mini-imagenet-cache-train.pkl and the like; in a folder they are mapped, not read."""
    splits = {}
    for split, name in split_files(ARRAYS, files).items():
        path = files.path / name
        contents = pickles.load(path) if files.path.is_dir() else pickles.loads(files.read(name), path)
        splits[split] = arrays(contents, path, split)
    return splits


def arrays(contents: dict, where, split: str) -> Classes:
    """Classes of {'image_data', 'class_dict': {name: indices}} or {'data', 'labels', ['catname2label']}."""
    match contents:
        case {'image_data': np.ndarray() as images, 'class_dict': dict(indices)}:
            indices = {str(name): numbers(own, f'{where}: class {name!r}') for name, own in indices.items()}
        case {'data': np.ndarray() as images, 'labels': list() | np.ndarray() as labels}:
            labels = numbers(labels, f'{where}: labels')
            if labels.shape != images.shape[:1]:
                raise DataError(f'{where}: {len(labels)} labels for {len(images)} images; get it again')
            known = contents.get('catname2label', {}).items() if isinstance(contents.get('catname2label'), dict) else ()
            names = {label: str(name) for name, label in known if isinstance(label, int)}
            indices = {names.get(k, f'{split} {k:03}'): np.flatnonzero(labels == k) for k in np.unique(labels).tolist()}
        case _:
            raise DataError(f'{where} holds neither image_data and class_dict nor data and labels; get it again')
    if images.dtype != np.uint8 or images.shape[1:] != (SIZE, SIZE, 3):
        raise DataError(f'{where}: images of {images.dtype} {images.shape[1:]}, not uint8 (84, 84, 3); get it again')
    check_indices(indices, len(images), where)
    return {name: Class(len(own), lambda own=own: images[own]) for name, own in indices.items()}


def numbers(values, where) -> np.ndarray:
    """A list or vector of whole numbers as a vector."""
    if isinstance(values, list) and all(type(value) is int for value in values):  # nested lists can be huge as arrays
        values = np.array(values, np.int64 if not values else None)
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in 'iu':
        raise DataError(f'{where} is not a list of whole numbers; get it again')
    return values


def check_indices(indices: dict[str, np.ndarray], images: int, where) -> None:
    seen = np.zeros(images, bool)
    for name, own in indices.items():
        if not len(own) or own.min() < 0 or own.max() >= images:
            raise DataError(f'{where}: class {name!r} has no images, or some that are not there; get it again')
        if seen[own].any() or len(np.unique(own)) < len(own):
            raise DataError(f'{where}: an image of class {name!r} is listed twice; get it again')
        seen[own] = True


def split_of(pattern: re.Pattern, name: str) -> str:
    """The split that a file name tells."""
    return SPLITS[pattern.fullmatch(name)[1].lower()]


def split_files(pattern: re.Pattern, files: Files) -> dict[str, str]:
    """The file of each split, by its name."""
    found = {}
    for name in files.names:
        if pattern.fullmatch(name):
            split = split_of(pattern, name)
            if split in found:
                raise DataError(
                    f'{files.path / name} holds the {split} split a second time; leave just one in --source'
                )
            found[split] = name
    return found


def unread(files: Files, images: dict[str, list[str]]) -> Classes:
    return {name: Class(len(own), lambda own=own: decoded(files, own)) for name, own in images.items()}


def decoded(files: Files, names: list[str]) -> np.ndarray:
    """Images of the given names: uint8 [names, 84, 84, 3]."""
    images = np.empty((len(names), SIZE, SIZE, 3), np.uint8)
    for image, name in zip(images, names, strict=True):
        image[:] = decode(read(files, name), files.path / name)
    return images


def decode(contents: bytes, where) -> Image.Image:
    """A JPEG or PNG of 84x84 in colour; the size is looked at before anything is decoded."""
    try:
        with Image.open(io.BytesIO(contents), formats=['JPEG', 'PNG']) as picture:
            size = picture.size
            image = picture.convert('RGB') if size == (SIZE, SIZE) else None
    except (*DAMAGE, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f'{where} is no whole JPEG or PNG image; get it again') from error
    if image is None:
        raise DataError(f'{where} is {size[0]}x{size[1]}, not 84x84; shrink all images to 84x84 first')
    return image


def read(files: Files, name: str) -> bytes:
    contents = files.read(name)
    if len(contents) > FILE_LIMIT:
        raise DataError(
            f'{files.path / name} has {len(contents)} bytes, too many for 84x84; shrink all images to 84x84 first'
        )
    return contents
