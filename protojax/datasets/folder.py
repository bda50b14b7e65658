"""Any folder of images as a data set: a folder for each class, below train/, val/ and test/ or directly.

Without those three the classes themselves are divided by chance, as few-shot learning is tested on classes that were
never seen. Images are read anew at each start.
"""

import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from protojax.datasets import Data, Split
from protojax.datasets.sources import SPLIT_NAMES, announce
from protojax.errors import DataError, printable
from protojax.images import FoundImages, ImageForm, are_drawings, find_images, read_images

KINDS = ('auto', 'drawings', 'photos')
SIZES = {'drawings': (28, 28, 1), 'photos': (84, 84, 3)}  # as in the paper
AT_ONCE = 1024  # files
LEAST = 2  # classes of a split, where there are enough
MOST_PADDING = 1 << 31  # bytes

Classes = dict[str, list[pathlib.Path]]  # files by class


def load_folder(
    source: str | os.PathLike,
    *,
    form: ImageForm | None = None,
    kind: str = 'auto',
    image_size: int = 0,
    ink: str = 'auto',
    split: Sequence[float] = (0.64, 0.16, 0.2),
    seed: int = 0,
) -> Data:
    """The images of a folder in memory, uint8 [classes, images, height, width, channels].

    form: what images are to be made; else `kind` says whether they are 'drawings', of one channel, or 'photos', in
    colour ('auto' finds out), and `image_size` their side in pixels.
    split: shares of the classes in train, validation and test, where the folder does not tell; `seed` draws them.
    """
    source = pathlib.Path(source).expanduser()
    splits = find_folder_splits(source, split, seed)
    form = form or _folder_form([path for own in splits['train'].values() for path in own], kind, image_size)
    counts = ', '.join(f'{name} {len(classes)}' for name, classes in splits.items())
    height, width, channels = form.item_shape
    announce(f'{source}: classes {counts}; {"drawings" if channels == 1 else "colour images"} of {width}x{height}')
    found = {name: _read_folder(own, form, ink) for name, own in splits.items()}
    return Data(_folder_title(source, splits), False, **found)


def find_folder_splits(source: pathlib.Path, shares: Sequence[float], seed: int) -> dict[str, Classes]:
    """The files of train, validation and test."""
    if not source.is_dir():
        raise DataError(f'`source={source}` is no folder; give one with a folder of images for each class')
    return _divide_folder(_folder_files_by_split(find_images(source), source), shares, seed)


def _folder_files_by_split(found: FoundImages, source: pathlib.Path) -> dict[str, Classes]:
    """Files by split and class; the split is '' where no folder names it."""
    if found.empty:
        raise DataError(f'{source / found.empty[0]} has no PNG, JPEG or WebP images; put some there or remove it')
    tops = {name.split('/')[0] for name in found.classes if name}
    divided = {'train', 'test'} <= tops <= set(SPLIT_NAMES)
    splits = {}
    for path, name in zip(found.paths, found.classes, strict=True):
        top, _, rest = name.partition('/')
        split, name = (SPLIT_NAMES[top], rest) if divided and top else ('', name)
        if not name:
            raise DataError(f'{path} is in no class; put each image into the folder of its class')
        splits.setdefault(split, {}).setdefault(name, []).append(path)
    if not splits:
        raise DataError(f'{source} has no PNG, JPEG or WebP images; give a folder with a folder for each class')
    owner = {}
    for split, classes in splits.items():
        for name in classes:
            if owner.setdefault(name, split) != split:
                raise DataError(f'class {name!r} of {source} is in both {owner[name]} and {split}; remove one')
    return splits


def _divide_folder(splits: Mapping[str, Classes], shares: Sequence[float], seed: int) -> dict[str, Classes]:
    """Train, validation and test classes: as given, or drawn. Validation classes are taken from train if need be."""
    if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f'`split={",".join(map(str, shares))}` must be three shares above 0 that add up to 1')
    if '' in splits:
        return _draw_folder_splits(splits[''], dict(zip(('train', 'validation', 'test'), shares, strict=True)), seed)
    if 'validation' in splits:
        return {name: splits[name] for name in ('train', 'validation', 'test')}
    known = shares[0] + shares[1]
    parts = {'train': shares[0] / known, 'validation': shares[1] / known}
    return {**_draw_folder_splits(splits['train'], parts, seed), 'test': splits['test']}


def _draw_folder_splits(classes: Classes, shares: Mapping[str, float], seed: int) -> dict[str, Classes]:
    """Classes divided by chance, the same way for the same names and seed."""
    if len(classes) < LEAST * len(shares):
        raise DataError(
            f'{len(classes)} classes are too few to be divided into {", ".join(shares)}; {LEAST * len(shares)} '
            'are the least. To tell few classes apart, classify with trained weights instead'
        )
    names = sorted(classes)
    order = np.random.default_rng(seed).permutation(len(names))
    # As near to the shares as whole numbers come, with the fewest classes that make sense in each part.
    sizes = {part: max(LEAST, round(share * len(names))) for part, share in shares.items()}
    largest = max(sizes, key=sizes.get)
    sizes[largest] += len(names) - sum(sizes.values())
    ends = np.cumsum(list(sizes.values()))
    parts = np.split(order, ends[:-1])
    return {part: {names[k]: classes[names[k]] for k in sorted(own)} for part, own in zip(sizes, parts, strict=True)}


def _folder_form(paths: Sequence[pathlib.Path], kind: str, image_size: int) -> ImageForm:
    """What images are made of the files."""
    if kind not in KINDS:
        raise DataError(f'`kind={kind}` is unknown; choose {", ".join(KINDS)}')
    if kind == 'auto':
        kind = 'drawings' if are_drawings(paths) else 'photos'
    height, width, channels = SIZES[kind]
    return ImageForm((image_size or height, image_size or width, channels))


def _read_folder(classes: Classes, form: ImageForm, ink: str) -> Split:
    """The images of classes; a file that cannot be read is named and left out."""
    most = max(map(len, classes.values()))
    size, images = int(np.prod(form.item_shape)), sum(map(len, classes.values()))
    if most * len(classes) * size > max(MOST_PADDING, 4 * images * size):
        large = max(classes, key=lambda name: len(classes[name]))
        raise DataError(f'class {large!r} has {most} images, far more than the others; leave some of them out')
    items = np.zeros((len(classes), most, *form.item_shape), np.uint8)
    counts = np.zeros(len(classes), np.int32)
    files = [(number, path) for number, own in enumerate(classes.values()) for path in own]
    for start in range(0, len(files), AT_ONCE):
        part = files[start : start + AT_ONCE]
        for (number, _), image in zip(part, read_images([path for _, path in part], form, ink=ink), strict=True):
            if isinstance(image, DataError):
                announce(f'warning: {image}; it is left out')
            else:
                items[number, counts[number]] = image
                counts[number] += 1
    for name, count in zip(classes, counts, strict=True):
        if not count:
            raise DataError(f'no image of class {name!r} can be read; put others there')
    return Split(items, counts, tuple(classes))


def _folder_title(source: pathlib.Path, splits: Mapping[str, Classes]) -> str:
    """A name that is another one if the classes or their files are."""
    digest = hashlib.sha256()
    for split, classes in splits.items():
        for name, paths in classes.items():
            digest.update(os.fsencode(f'{split} {name}\n'))
            for path in paths:
                digest.update(os.fsencode(f'{path.name} {path.stat().st_size}\n'))
    images = sum(len(own) for classes in splits.values() for own in classes.values())
    return f'{printable(source.resolve().name)} ({images} images, {digest.hexdigest()[:8]})'
