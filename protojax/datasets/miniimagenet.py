"""miniImageNet: 100 classes of 600 colour images of 84x84, split 64 / 16 / 20 (Ravi and Larochelle 2017).

The images may not be redistributed, so they are not downloaded: `source` is the user's copy. The layouts are

- train.csv, val.csv and test.csv (filename,label) beside the images or their folder images/;
- mini-imagenet-cache-train.pkl and similar pickles;
- folders train/<class>/, val/<class>/ and test/<class>/.

Any of the three splits may be missing, and classes may have fewer images, but a split must have all its classes.
"""

import csv
import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds

from protojax import images
from protojax.datasets import Splits, prepared, readers, sources
from protojax.datasets.synthetic.shapes import shapes
from protojax.errors import DataError

CLASSES = {'train': 64, 'validation': 16, 'test': 20}
SIZE = 84
PICTURES, PICKLES = ('.jpg', '.jpeg', '.png'), ('.pkl', '.pickle')
FEATURES = {'items': tfds.features.Tensor(shape=(None, SIZE, SIZE, 3), dtype=np.uint8, encoding='bytes')}
Classes = dict[str, Callable[[], np.ndarray]]  # name -> function that reads the images, uint8 [n, 84, 84, 3]


def load(
    *,
    data: str = 'auto',
    source: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    splits: Sequence[str] = prepared.SPLITS,
) -> Splits:
    """Load miniImageNet, items uint8 [classes, images, 84, 84, 3].

    Args:
        data: 'real', 'synthetic' (coloured shapes) or 'auto', which is synthetic if real data are unavailable.
        source: Folder, archive, folder of archives or pickle, which is not needed after the first time.
        data_dir: Folder of the prepared data.
        splits: Names of the splits to load; the others are None.
    """
    plan = prepared.Plan('miniImageNet', 'mini_image_net/1.0.0', FEATURES, find, records)
    found = prepared.load(plan, data=data, source=source, data_dir=data_dir, synthetic=shapes, splits=splits)
    return found._replace(**{name: None for name in CLASSES if name not in splits})


def find(source: pathlib.Path) -> list[pathlib.Path]:
    """Return the source and, if it is a folder, the archives in it."""
    if source.is_dir():
        return [source, *sorted(path for path in source.iterdir() if sources.is_archive(path))]
    if not sources.is_archive(source) and not split_of_pickle(source):
        raise DataError(f'`source={source}` must be a folder, an archive or mini-imagenet-cache-*.pkl')
    return [source]


def records(folders: list[pathlib.Path]) -> dict[str, Iterator[dict]]:
    """Make one record per class of each split found."""
    splits: dict[str, Classes] = {}
    for folder in folders:
        for split, where, classes in listed(folder) or pickled(folder) or in_folders(folder):
            if split in splits:
                raise DataError(f'{where} contains the {split} split a second time; keep only one in `source`')
            splits[split] = classes
    check(splits, folders[0])
    return {split: (dict(name=n, items=read()) for n, read in classes.items()) for split, classes in splits.items()}


Found = list[tuple[str, pathlib.Path, Classes]]  # split, where it was found, its classes


def listed(folder: pathlib.Path) -> Found:
    """Find the splits of train.csv, val.csv and test.csv."""
    lists = [file for file in sources.files([folder], '.csv') if file.stem in ('train', 'val', 'test')]
    present = set(sources.files([folder], *PICTURES)) if lists else set()
    return [(sources.SPLIT_NAMES[path.stem], path, classes_of_list(path, present)) for path in lists]


def classes_of_list(path: pathlib.Path, present: set[pathlib.Path]) -> Classes:
    """Read a list of filename,label; only images among `present` are opened."""
    paths: dict[str, list[pathlib.Path]] = {}
    with readers.attempt(path, 'is not a list of filename,label'):
        for row in csv.DictReader(readers.lines(path), strict=True):
            candidates = [path.parent / 'images' / row['filename'], path.parent / row['filename']]
            file = next((candidate for candidate in candidates if candidate in present), None)
            if file is None or not row['label']:
                raise DataError(f'{path} lists {row["filename"]!r}, which has no label or is not in images/ beside it')
            paths.setdefault(row['label'], []).append(file)
    return {label: functools.partial(decoded, own) for label, own in paths.items()}


def in_folders(folder: pathlib.Path) -> Found:
    """Find the splits of the folders train/<class>/, val/<class>/ and test/<class>/."""
    paths: dict[pathlib.Path, dict[str, list]] = {}
    for file in sources.files([folder], *PICTURES):
        *_, split, name, _ = file.parts
        if split.lower() in sources.SPLIT_NAMES:
            paths.setdefault(file.parents[1], {}).setdefault(name, []).append(file)
    classes = {path: {k: functools.partial(decoded, own) for k, own in found.items()} for path, found in paths.items()}
    return [(sources.SPLIT_NAMES[path.name.lower()], path, found) for path, found in classes.items()]


def decoded(paths: Sequence[pathlib.Path]) -> np.ndarray:
    """Read images: uint8 [n, 84, 84, 3]."""
    return np.stack([np.asarray(images.read_exactly(path, size=(SIZE, SIZE), mode='RGB')) for path in paths])


def pickled(folder: pathlib.Path) -> Found:
    """Find the splits of mini-imagenet-cache-train.pkl and similar pickles in a folder, or the given pickle."""
    paths = [folder] if folder.is_file() else sources.files([folder], *PICKLES)
    found = [(split_of_pickle(path), path) for path in paths]
    return [(split, path, classes_of_pickle(path, split)) for split, path in found if split]


def split_of_pickle(path: pathlib.Path) -> str | None:
    """Return the split of a pickle whose name ends in train, val or test.

    train_phase_val and train_phase_test of the category split are further images of the training classes.
    """
    stem = path.stem.lower()
    if path.suffix.lower() not in PICKLES or stem.endswith(('train_phase_val', 'train_phase_test')):
        return None
    return next((sources.SPLIT_NAMES[end] for end in ('train', 'val', 'test') if stem.endswith(end)), None)


def classes_of_pickle(path: pathlib.Path, split: str) -> Classes:
    """Read {'image_data', 'class_dict': {name: indices}} or {'data', 'labels', ['catname2label']}."""
    contents = readers.pickled(path)
    with readers.attempt(path, 'does not contain images by class'):
        match contents:
            case {'image_data': np.ndarray() as pixels, 'class_dict': dict(indices)}:
                indices = {str(name): np.reshape(own, -1) for name, own in indices.items()}
            case {'data': np.ndarray() as pixels, 'labels': labels}:
                labels = np.asarray(labels)
                names = {label: str(name) for name, label in contents.get('catname2label', {}).items()}
                found = np.unique(labels).tolist()
                indices = {names.get(k, f'{split} {k:03}'): np.flatnonzero(labels == k) for k in found}
            case _:
                raise ValueError('neither image_data and class_dict nor data and labels')
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (SIZE, SIZE, 3):
            raise ValueError(f'expected uint8 images of {SIZE}x{SIZE}x3, got {pixels.dtype} {pixels.shape[1:]}')
        np.empty(len(pixels))[np.concatenate(list(indices.values()))]  # IndexError if an index is out of range
    return {name: functools.partial(pixels.__getitem__, own) for name, own in indices.items()}


def check(splits: dict[str, Classes], source: pathlib.Path) -> None:
    """Require all classes of a split, each in one split only: other results would not be comparable."""
    if not splits:
        hint = 'train.csv, val.csv or test.csv, mini-imagenet-cache-*.pkl, or folders train, val or test'
        raise DataError(f'{source} does not contain {hint}; choose another `source`')
    sources.check_disjoint(splits, source)
    for split, classes in splits.items():
        if len(classes) != CLASSES[split]:
            hint = 'complete it, or load other images with protojax.datasets.folder'
            raise DataError(f'{source}: expected {CLASSES[split]} classes in {split}, got {len(classes)}; {hint}')
