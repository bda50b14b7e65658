"""Reads features, attributes and divisions of CUB from the three forms in which people have them.

- `features.npy` beside the text files of CUB-200-2011: [images, D] or [images, crops, D] in the order of images.txt;
- `images/<class>.t7`, Torch tensors [images, D, crops], with lists of classes or ids, as Reed et al. published them;
- `res101.mat` and `att_splits.mat`, as in later work on zero-shot learning.

Where there are several crops, the first is the middle one: it is what Reed et al. evaluate on.
"""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from protojax.datasets.formats import matlab, torch7
from protojax.datasets.sources.cub_lists import (
    Division,
    attributes,
    check_attributes,
    check_labels,
    class_names,
    divide,
    division,
    find,
    labels,
    lines,
    need,
    numbered,
)
from protojax.errors import DataError

MAT_NAMES = ('allclasses_names', 'original_att', 'att', 'trainval_loc', 'train_loc', 'val_loc', 'test_unseen_loc')


class Birds(NamedTuple):
    """All classes of a source, with features not read yet."""

    form: str
    attributes: dict[str, np.ndarray]  # class name -> [A]
    features: Callable[[str], np.ndarray]  # class name -> [images, crops, D]
    division: Division


def read(source: pathlib.Path) -> Birds:
    """What the source holds, in the first of the three forms that is there."""
    if find(source, 'features.npy'):
        return from_text(source)
    if find(source, 'res101.mat'):
        return from_matlab(source)
    if any((source / 'images').glob('*.t7')):
        return from_torch(source)
    raise DataError(f'{source} holds no features.npy, images/*.t7 or res101.mat; give --source a folder that does')


def from_text(source: pathlib.Path) -> Birds:
    names = class_names(need(source, 'classes.txt'))
    of_image = labels(need(source, 'image_class_labels.txt'), len(names))
    images, path = find(source, 'images.txt'), need(source, 'features.npy')
    listed = len(numbered(images)) if images else len(of_image)
    if listed != len(of_image):
        raise DataError(f'{images} lists {listed} images, image_class_labels.txt {len(of_image)}; get both again')
    features = map_features(path)
    if len(features) != len(of_image):
        raise DataError(f'{path} has {len(features)} rows, but there are {len(of_image)} images; make it again')
    values = attributes(need(source, 'class_attribute_labels_continuous.txt'), len(names))
    features = features[:, None] if features.ndim == 2 else features
    return Birds(
        'features.npy',
        dict(zip(names, values, strict=True)),
        lambda name: features[of_image == names.index(name)],
        division(source, names),
    )


def map_features(path: pathlib.Path) -> np.ndarray:
    """The array of a .npy file, mapped: a header that promises more than the file holds is refused."""
    try:
        features = np.lib.format.open_memmap(path, mode='r')
    except Exception as error:  # NumPy reads the header as Python, which can fail in any way
        raise DataError(f'{path} is not a whole .npy file of numbers; make it again') from error
    if features.dtype.kind != 'f' or features.ndim not in (2, 3) or 0 in features.shape:
        found = f'{features.dtype} {features.shape}'
        raise DataError(f'{path} holds {found}, not floats [images, D] or [images, crops, D]; make it again')
    return features


def from_torch(source: pathlib.Path) -> Birds:
    names = sorted(path.stem for path in (source / 'images').glob('*.t7'))
    if path := find(source, 'attributes.t7'):
        values = torch7.load(path)
        if not isinstance(values, np.ndarray):
            raise DataError(f'{path} holds no tensor; get it again')
        values = check_attributes(values, len(names), path)
    else:
        values = attributes(need(source, 'class_attribute_labels_continuous.txt'), len(names))
    order = find(source, 'manifest.txt')  # ids count its lines, which name the files
    numbers = [line.removesuffix('.t7') for line in lines(order)] if order else names
    if sorted(numbers) != names:
        raise DataError(f'{order} does not list the files of images/; get both again')
    return Birds(
        'images/*.t7',
        dict(zip(names, values, strict=True)),
        lambda name: torch_features(source / 'images' / f'{name}.t7'),
        division(source, numbers),
    )


def torch_features(path: pathlib.Path) -> np.ndarray:
    tensor = torch7.load(path)
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind != 'f' or tensor.ndim != 3:
        raise DataError(f'{path} holds no tensor [images, D, crops]; get it again')
    return tensor.transpose(0, 2, 1)


def from_matlab(source: pathlib.Path) -> Birds:
    """Every image of a class counts, also those that generalised zero-shot learning puts aside (test_seen_loc)."""
    path, splits_path = find(source, 'res101.mat'), need(source, 'att_splits.mat')
    found = variables(path, ('features', 'labels'), ('features', 'labels'))
    splits = variables(splits_path, MAT_NAMES, ('allclasses_names', 'test_unseen_loc', 'trainval_loc'))
    names = splits['allclasses_names']
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
        raise DataError(f'{splits_path}: allclasses_names is no list of different names; get it again')
    values = splits.get('original_att', splits.get('att'))
    if not isinstance(values, np.ndarray):
        raise DataError(f'{splits_path} holds neither original_att nor att; get it again')
    values = check_attributes(values.T, len(names), splits_path)
    of_image = check_labels(vector(found, 'labels', path), len(names), path)
    features = found['features']
    if not isinstance(features, np.ndarray) or features.shape[1:] != of_image.shape:
        raise DataError(f'{path}: features are not numbers [D, {len(of_image)}], one column per label; get it again')

    def classes(location: str) -> list[str] | None:
        if location not in splits:
            return None
        images = check_labels(vector(splits, location, splits_path), len(of_image), f'{splits_path}: {location}')
        return sorted({names[k] for k in of_image[images]})

    return Birds(
        'res101.mat',
        dict(zip(names, values, strict=True)),
        lambda name: features[:, of_image == names.index(name)].T[:, None],
        divide(classes('trainval_loc'), classes('val_loc'), classes('test_unseen_loc')),
    )


def variables(path: pathlib.Path, names: tuple[str, ...], needed: tuple[str, ...]) -> dict:
    found = matlab.load(path, names)
    for name in needed:
        if name not in found:
            raise DataError(f'{path} holds no variable {name}; get it again')
    return found


def vector(found: dict, name: str, path: pathlib.Path) -> np.ndarray:
    value = found[name]
    if not isinstance(value, np.ndarray) or value.size != max(value.shape):
        raise DataError(f'{path}: {name} is no vector of numbers; get it again')
    return value.reshape(-1)
