"""Omniglot: 1,623 characters of 50 alphabets, 20 drawings each (Lake et al. 2015), as 28x28 greyscale images."""

import functools
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from PIL import Image

from protojax import errors, images
from protojax.datasets import Splits, prepared, sources
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.episodes import Dataset

VALIDATION = ('Armenian', 'Bengali', 'Early_Aramaic', 'Hebrew', 'Mkhedruli_(Georgian)')
TEST = ('Kannada', 'Keble', 'Malayalam', 'Manipuri', 'Mongolian', 'Old_Church_Slavonic_(Cyrillic)', 'Oriya', 'Sylheti',
        'Syriac_(Serto)', 'Tengwar', 'Tibetan', 'ULOG')  # fmt: skip
TEST_CHARACTERS = tuple(f'Gurmukhi/character{n}' for n in (42, 43, 44, 45))
CHARACTERS = {'train': 1028, 'validation': 172, 'test': 423}
DRAWINGS = 20  # per character

ADDRESS = 'https://github.com/brendenlake/omniglot/raw/master/python/'
SHA256 = {
    'images_background': 'ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640',
    'images_evaluation': '1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee',
}
HALVES = tuple(SHA256)
REMOTES = tuple(sources.Remote(f'{ADDRESS}{half}.zip', digest) for half, digest in SHA256.items())
FILTERS = {'antialias': Image.Resampling.BOX, 'nearest': Image.Resampling.NEAREST}
FEATURES = {'items': tfds.features.Tensor(shape=(None, 28, 28, 1), dtype=np.uint8)}


def load(
    *,
    data: str = 'auto',
    source: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    resize: str = 'antialias',
    rotations: bool = True,
    seed: int = 0,
) -> Splits:
    """Load Omniglot, items uint8 [classes, 20, 28, 28, 1] with foreground = 255.

    Args:
        data: 'real', 'synthetic' (drawn from `seed`) or 'auto', which is synthetic if real data are unavailable.
        source: Folder with both halves as folders or zips, one of the halves, or one archive of everything.
        data_dir: Folder of the prepared data.
        resize: Filter for 105x105 -> 28x28, 'antialias' or 'nearest'.
        rotations: Make four classes of every character, rotated by 0, 90, 180 and 270 degrees.
    """
    synthetic = functools.partial(handwriting, seed)
    found = prepared.load(plan(resize), data=data, source=source, data_dir=data_dir, synthetic=synthetic)
    return found.map(rotated) if rotations else found


def plan(resize: str = 'antialias') -> prepared.Plan:
    """Return how Omniglot is prepared with a filter for 105x105 -> 28x28."""
    if resize not in FILTERS:
        raise errors.DataError(f'unknown `resize={resize}`; choose {" or ".join(FILTERS)}')
    folder, read = f'omniglot_characters/{resize}/2.0.0', functools.partial(records, resize=resize)
    return prepared.Plan('Omniglot', folder, FEATURES, halves, read, REMOTES)


def rotated(split: Dataset) -> Dataset:
    """Rotate each class counter-clockwise into four classes: [L, I, H, W, C] -> [4 L, I, H, W, C]."""
    items = np.stack([np.rot90(split.items, k, (2, 3)) for k in range(4)], 1)
    names = tuple(f'{name}/rot{90 * k:03}' for name in split.names for k in range(4))
    return Dataset(items.reshape(-1, *split.items.shape[1:]), np.repeat(split.counts, 4), names=names)


def halves(source: pathlib.Path) -> list[pathlib.Path]:
    """Find both halves, as folders or zips: in `source`, beside `source` if it is one of them, or in one archive."""
    if source.is_file() and not source.name.startswith(HALVES):
        return [source]
    folder = source if source.is_dir() and source.name not in HALVES else source.parent
    found = [[path for path in (folder / f'{half}.zip', folder / half) if path.exists()] for half in HALVES]
    for half, paths in zip(HALVES, found, strict=True):
        if not paths:
            raise errors.DataError(f'`source={source}` does not contain {half} or {half}.zip; put both halves there')
    return [source if source in paths else paths[0] for paths in found]


def records(folders: list[pathlib.Path], *, resize: str) -> dict[str, Iterator[dict]]:
    """Make one record per character of each split."""
    drawings: dict[str, dict[str, pathlib.Path]] = {}  # character -> file name -> file
    for file in sources.files(folders, '.png'):
        drawings.setdefault('/'.join(file.parts[-3:-1]), {}).setdefault(file.name, file)
    splits = {split: [name for name in drawings if split_of(name) == split] for split in CHARACTERS}
    for split, names in splits.items():
        if len(names) != CHARACTERS[split]:
            where, expected = ' and '.join(map(str, folders)), f'{CHARACTERS[split]} characters in {split}'
            raise errors.DataError(f'{where}: expected {expected}, got {len(names)}; use the complete data set')
    if missing := sum(max(0, DRAWINGS - len(own)) for own in drawings.values()):
        logging.warning('Omniglot: %d drawings are missing', missing)

    def record(name):
        return {'name': name, 'items': np.stack([drawing(file, resize) for file in drawings[name].values()])}

    return {split: map(record, names) for split, names in splits.items()}


def drawing(file: pathlib.Path, resize: str) -> np.ndarray:
    """Read a drawing, 105x105 with foreground = 0 in its file -> uint8 [28, 28, 1] with foreground = 255."""
    picture = images.read_exactly(file, size=(105, 105), mode='L')
    return 255 - np.asarray(picture.resize((28, 28), FILTERS[resize]))[..., None]


def split_of(character: str) -> str:
    """Return the official split, which is by alphabet except for four characters of Gurmukhi."""
    alphabet = character.split('/')[0]
    if alphabet in TEST or character in TEST_CHARACTERS:
        return 'test'
    return 'validation' if alphabet in VALIDATION else 'train'
