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

from protojax.datasets.formats import reading_format
from protojax.datasets.formats.matlab import read_matlab
from protojax.datasets.formats.npy import read_npy
from protojax.datasets.formats.torch7 import read_torch7
from protojax.datasets.sources import cub_lists as lists
from protojax.datasets.sources.files import read_file
from protojax.errors import DataError

MAT_NAMES = ('allclasses_names', 'original_att', 'att', 'trainval_loc', 'train_loc', 'val_loc', 'test_unseen_loc')


class CubForm(NamedTuple):
    """All classes of a source, with features not read yet."""

    form: str
    attributes: dict[str, np.ndarray]  # class name -> [A]
    features: Callable[[str], np.ndarray]  # class name -> [images, crops, D]
    division: lists.Division


def read_cub_form(source: pathlib.Path) -> CubForm:
    """What the source holds, in the first of the three forms that is there."""
    with reading_format(source, 'cannot be read'):
        if lists.find_cub_file(source, 'features.npy'):
            return _cub_from_text(source)
        if lists.find_cub_file(source, 'res101.mat'):
            return _cub_from_matlab(source)
        if any((source / 'images').glob('*.t7')):
            return _cub_from_torch(source)
    raise DataError(f'{source} holds no features.npy, images/*.t7 or res101.mat; give a `source` that does')


def _cub_from_text(source: pathlib.Path) -> CubForm:
    names = lists.read_class_list(lists.need_cub_file(source, 'classes.txt'))
    of_image = lists.read_label_list(lists.need_cub_file(source, 'image_class_labels.txt'), len(names))
    images, path = lists.find_cub_file(source, 'images.txt'), lists.need_cub_file(source, 'features.npy')
    listed = len(lists.read_numbered_list(images)) if images else len(of_image)
    if listed != len(of_image):
        raise DataError(f'{images} lists {listed} images, image_class_labels.txt {len(of_image)}; get both again')
    features = read_cub_features(path)
    if len(features) != len(of_image):
        raise DataError(f'{path} has {len(features)} rows, but there are {len(of_image)} images; make it again')
    values = lists.read_attribute_list(lists.need_cub_file(source, 'class_attribute_labels_continuous.txt'), len(names))
    features = features[:, None] if features.ndim == 2 else features
    images_of = _cub_images_by_class(of_image, names)
    return CubForm(
        'features.npy',
        dict(zip(names, values, strict=True)),
        lambda name: features[images_of[name]],
        lists.read_division_lists(source, names),
    )


def read_cub_features(path: pathlib.Path) -> np.ndarray:
    """The array of features.npy: [images, D] or [images, crops, D]."""
    features = read_npy(read_file(path), path)
    if features.dtype.kind != 'f' or features.ndim not in (2, 3) or 0 in features.shape:
        found = f'{features.dtype} {features.shape}'
        raise DataError(f'{path} holds {found}, not floats [images, D] or [images, crops, D]; make it again')
    return features


def _cub_images_by_class(of_image: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    """The numbers of each class's images, in their order, from the number of each image's class."""
    order, counts = np.argsort(of_image, stable=True), np.bincount(of_image, minlength=len(names))
    return dict(zip(names, np.split(order, np.cumsum(counts)[:-1]), strict=True))


def _cub_from_torch(source: pathlib.Path) -> CubForm:
    names = sorted(path.stem for path in (source / 'images').glob('*.t7'))
    if path := lists.find_cub_file(source, 'attributes.t7'):
        values = read_torch7(read_file(path), path)
        if not isinstance(values, np.ndarray):
            raise DataError(f'{path} holds no tensor; get it again')
        values = lists.check_attribute_list(values, len(names), path)
    else:
        values = lists.read_attribute_list(
            lists.need_cub_file(source, 'class_attribute_labels_continuous.txt'), len(names)
        )
    order = lists.find_cub_file(source, 'manifest.txt')  # ids count its lines, which name the files
    numbers = [line.removesuffix('.t7') for line in lists.read_list_lines(order)] if order else names
    if sorted(numbers) != names:
        raise DataError(f'{order} does not list the files of images/; get both again')
    return CubForm(
        'images/*.t7',
        dict(zip(names, values, strict=True)),
        lambda name: _cub_torch_features(source / 'images' / f'{name}.t7'),
        lists.read_division_lists(source, numbers),
    )


def _cub_torch_features(path: pathlib.Path) -> np.ndarray:
    tensor = read_torch7(read_file(path), path)
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind != 'f' or tensor.ndim != 3:
        raise DataError(f'{path} holds no tensor [images, D, crops]; get it again')
    return tensor.transpose(0, 2, 1)


def _cub_from_matlab(source: pathlib.Path) -> CubForm:
    """Every image of a class counts, also those that generalised zero-shot learning puts aside (test_seen_loc)."""
    path, splits_path = lists.find_cub_file(source, 'res101.mat'), lists.need_cub_file(source, 'att_splits.mat')
    found = _read_cub_variables(path, ('features', 'labels'), ('features', 'labels'))
    splits = _read_cub_variables(splits_path, MAT_NAMES, ('allclasses_names', 'test_unseen_loc', 'trainval_loc'))
    names = splits['allclasses_names']
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
        raise DataError(f'{splits_path}: allclasses_names is no list of different names; get it again')
    values = splits.get('original_att', splits.get('att'))
    if not isinstance(values, np.ndarray):
        raise DataError(f'{splits_path} holds neither original_att nor att; get it again')
    values = lists.check_attribute_list(values.T, len(names), splits_path)
    of_image = lists.check_cub_label_list(_bird_vector(found, 'labels', path), len(names), path)
    features = found['features']
    if not isinstance(features, np.ndarray) or features.shape[1:] != of_image.shape:
        raise DataError(f'{path}: features are not numbers [D, {len(of_image)}], one column per label; get it again')

    def classes(location: str) -> list[str] | None:
        if location not in splits:
            return None
        listed = _bird_vector(splits, location, splits_path)
        images = lists.check_cub_label_list(listed, len(of_image), f'{splits_path}: {location}')
        return sorted({names[k] for k in of_image[images]})

    images_of = _cub_images_by_class(of_image, names)
    return CubForm(
        'res101.mat',
        dict(zip(names, values, strict=True)),
        lambda name: features[:, images_of[name]].T[:, None],
        lists.divide_by_cub_lists(classes('trainval_loc'), classes('val_loc'), classes('test_unseen_loc')),
    )


def _read_cub_variables(path: pathlib.Path, names: tuple[str, ...], needed: tuple[str, ...]) -> dict:
    found = read_matlab(read_file(path), names, path)
    for name in needed:
        if name not in found:
            raise DataError(f'{path} holds no variable {name}; get it again')
    return found


def _bird_vector(found: dict, name: str, path: pathlib.Path) -> np.ndarray:
    value = found[name]
    if not isinstance(value, np.ndarray) or value.size != max(value.shape):
        raise DataError(f'{path}: {name} is no vector of numbers; get it again')
    return value.reshape(-1)
