"""Any images as a data set: a folder with one subfolder per class, or an image classification set of TFDS.

Few-shot learning is tested on unseen classes, so train, validation and test consist of different classes: those below
the folders train/, val/ and test/, those listed in a file, or classes drawn at random. Images are read again at each
start.
"""

import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from protojax import images
from protojax.datasets import Splits, catalog, readers, sources
from protojax.datasets.sources import SPLIT_NAMES
from protojax.episodes import Dataset
from protojax.errors import DataError, printable
from protojax.images import ImageForm

KINDS = ('auto', 'drawings', 'photos')
SIZES = {'drawings': (28, 28, 1), 'photos': (84, 84, 3)}  # height, width, channels, as in the paper
FRACTIONS = (0.64, 0.16, 0.2)  # fractions of the classes in train, validation and test, as in miniImageNet
SPLIT = ','.join(map(str, FRACTIONS))
TFDS = 'tfds:'  # prefix of a source that is the name of a data set
MIN_CLASSES = 2  # minimum number of classes in a split

Classes = dict[str, list]  # images by class: paths or other keys


class Found(NamedTuple):
    """The images of a source."""

    title: str
    splits: dict[str, Classes]  # train, validation and test
    read: Callable[[Any], bytes]  # bytes of an image


def load(
    source: str | os.PathLike,
    *,
    form: ImageForm | None = None,
    kind: str = 'auto',
    image_size: int = 0,
    ink: str = 'auto',
    **options: Any,
) -> Splits:
    """Load images, items uint8 [classes, images, height, width, channels].

    Args:
        form: Image spec; without it, `kind` ('drawings', 'photos' or 'auto') and `image_size` in pixels decide.
        ink: 'dark' on light, 'light' on dark, or 'auto'.
        options: Further arguments of `find`.
    """
    found = find(source, **options)
    form = form or _spec(found, kind, image_size)
    logging.info('%s: reading images as %dx%dx%d', found.title, *form.item_shape)
    return Splits(found.title, False, **{name: _read(own, found, form, ink) for name, own in found.splits.items()})


def find(
    source: str | os.PathLike,
    *,
    split: str | os.PathLike = SPLIT,
    seed: int = 0,
    data_dir: str | None = None,
    image_key: str = '',
    label_key: str = '',
) -> Found:
    """Find the images of a source, and divide its classes.

    Args:
        source: Folder, or 'tfds:NAME'.
        split: Three fractions of the classes for train, validation and test, drawn by `seed`; or a text file with the
            lines [train], [val] and [test], each followed by the names of its classes, one per line.
        data_dir, image_key, label_key: See `catalog.find`.
    """
    if str(source).startswith(TFDS):
        name, classes, read = catalog.find(str(source)[len(TFDS) :], data_dir, image_key, label_key)
        splits, mark = {'': classes}, str
    else:
        folder = pathlib.Path(source).expanduser()
        name, splits, read, mark = folder.resolve().name, _in_folder(folder), images.contents, _mark
    splits = _divide(splits, split, seed)
    digest = hashlib.sha256()  # changes with the classes and their files
    for part, classes in splits.items():
        for label, own in classes.items():
            digest.update(os.fsencode(''.join([f'{part} {label}\n', *(f'{mark(image)}\n' for image in own)])))
    count = sum(len(own) for classes in splits.values() for own in classes.values())
    return Found(f'{printable(name)} ({count} images, {digest.hexdigest()[:8]})', splits, read)


def _mark(path: pathlib.Path) -> str:
    return f'{path.name} {path.exists() and path.stat().st_size}'  # it may be a broken link


def _in_folder(source: pathlib.Path) -> dict[str, Classes]:
    """Return files by split and class; the split is '' if no folder names it."""
    if not source.is_dir():
        raise DataError(f'`source={source}` is not a folder; choose one with one subfolder of images per class')
    found = images.find_images(source)
    if found.empty or not found.paths:
        raise DataError(f'{source.joinpath(*found.empty[:1])} does not contain images; remove it or add some')
    tops = {name.split('/')[0] for name in found.classes if name}
    divided = {'train', 'test'} <= tops <= set(SPLIT_NAMES)
    splits: dict[str, Classes] = {}
    for path, name in zip(found.paths, found.classes, strict=True):
        top, _, rest = name.partition('/')
        split, name = (SPLIT_NAMES[top], rest) if divided and top else ('', name)
        if not name:
            raise DataError(f'{path} is not in a class; put each image into the subfolder of its class')
        splits.setdefault(split, {}).setdefault(name, []).append(path)
    return splits


def _divide(splits: dict[str, Classes], split: str | os.PathLike, seed: int) -> dict[str, Classes]:
    """Return train, validation and test classes: as given, listed or drawn. Without validation, train is divided."""
    try:
        fractions = [float(part) for part in str(split).split(',')]
    except ValueError:
        splits, fractions = _listed(pathlib.Path(split).expanduser(), _together(splits)), FRACTIONS
    if len(fractions) != 3 or min(fractions) <= 0 or not abs(sum(fractions) - 1) <= 1e-6:
        raise DataError(f'`split={split}` must be three numbers above 0 with a sum of 1, or a file')
    unseen = {name for part, classes in splits.items() if part in ('validation', 'test') for name in classes}
    if unseen and unseen <= splits['train'].keys():
        logging.warning('train, val and test have the same classes, so images are merged and classes divided at random')
        splits = {'': _together(splits)}
    if '' in splits:
        return _draw(splits[''], dict(zip(('train', 'validation', 'test'), fractions, strict=True)), seed)
    sources.check_disjoint(splits, 'few-shot learning is tested on unseen classes')
    if 'validation' not in splits:
        known = {'train': fractions[0], 'validation': fractions[1]}
        splits |= _draw(splits['train'], {part: own / sum(known.values()) for part, own in known.items()}, seed)
    return {part: splits[part] for part in ('train', 'validation', 'test')}


def _together(splits: Mapping[str, Classes]) -> Classes:
    """Put the images of each class together."""
    names = dict.fromkeys(name for classes in splits.values() for name in classes)
    return {name: [image for classes in splits.values() for image in classes.get(name, ())] for name in names}


def _listed(path: pathlib.Path, classes: Classes) -> dict[str, Classes]:
    """Split classes by the names in a file."""
    if not path.is_file():
        raise DataError(f'`split={path}` is neither three fractions nor a file')
    splits: dict[str, Classes] = {}
    left, split = dict(classes), ''
    for line in readers.lines(path):
        if line[0] + line[-1] == '[]' and line[1:-1] in SPLIT_NAMES:
            split = SPLIT_NAMES[line[1:-1]]
        elif split and line in left:
            splits.setdefault(split, {})[line] = left.pop(line)
        else:
            problem = 'is listed twice' if line in classes else f'is not one of the {len(classes)} classes'
            raise DataError(f'{path}: {line!r} {problem if split else "does not follow [train], [val] or [test]"}')
    if not {'train', 'test'} <= splits.keys():
        raise DataError(f'{path} must list classes below [train] and [test]')
    if left:
        logging.warning('%s does not list %d classes, which are left out (first: %s)', path, len(left), min(left))
    return splits


def _draw(classes: Classes, fractions: Mapping[str, float], seed: int) -> dict[str, Classes]:
    """Divide classes at random, identically for the same names and seed."""
    if len(classes) < MIN_CLASSES * len(fractions):
        needed, hint = MIN_CLASSES * len(fractions), 'to distinguish few classes, classify with trained weights'
        raise DataError(f'{", ".join(fractions)} need at least {needed} classes, got {len(classes)}; {hint}')
    names = sorted(classes)
    order = np.random.default_rng(seed).permutation(len(names))
    sizes = {part: max(MIN_CLASSES, round(fraction * len(names))) for part, fraction in fractions.items()}
    largest = max(sizes, key=sizes.get)
    sizes[largest] += len(names) - sum(sizes.values())
    parts = np.split(order, np.cumsum(list(sizes.values()))[:-1])
    return {part: {names[k]: classes[names[k]] for k in sorted(own)} for part, own in zip(sizes, parts, strict=True)}


def _spec(found: Found, kind: str, image_size: int) -> ImageForm:
    """Return the image spec of a kind; 'auto' looks at some of the training images."""
    if kind == 'auto':
        paths = [path for own in found.splits['train'].values() for path in own]
        kind = 'drawings' if images.are_drawings(paths, read=found.read) else 'photos'
    height, width, channels = SIZES[kind]
    return ImageForm((image_size or height, image_size or width, channels))


def _read(classes: Classes, found: Found, form: ImageForm, ink: str) -> Dataset:
    """Read the images of classes; a file that cannot be read is logged and skipped."""
    items = {}
    for name, own in classes.items():
        loaded = images.read_images(own, form, ink=ink, read=found.read)
        good = [image for image in loaded if isinstance(image, np.ndarray)]
        for error in (image for image in loaded if isinstance(image, DataError)):
            logging.warning('%s; skipping it', error)
        if not good:
            raise DataError(f'no image of class {name!r} can be read; replace them')
        items[name] = np.stack(good)
    return Dataset.from_classes(items)
