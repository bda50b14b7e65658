"""CUB-200-2011 for zero-shot learning: 200 birds with 312 attributes each, divided 100 / 50 / 50.

Inputs are features of the images, which are not part of CUB; `source` names a folder with features, attributes and
lists of classes. Where no list says which of the 150 training classes are for validation, these are every third class
in the order of their names.
"""

import functools
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from protojax.datasets import Data
from protojax.datasets.formats import reading_format
from protojax.datasets.preparing import Paths, PreparedBuilder, load_prepared, prepared_or_synthetic
from protojax.datasets.sources import announce
from protojax.datasets.sources.cub_forms import CubForm, read_cub_form
from protojax.datasets.synthetic.birds import birds
from protojax.errors import DataError, Missing

CLASSES = (100, 50, 50)  # of train, validation and test (Reed et al.)


def load_cub(
    *, data: str = 'auto', source: str | os.PathLike | None = None, data_dir: str | os.PathLike | None = None
) -> Data:
    """CUB in memory, items float32 [classes, images, crops, D], attributes float32 [classes, A].

    data: 'real', 'synthetic' (invented birds) or 'auto', which is synthetic where no real data were given.
    source: folder to prepare from; afterwards it is not needed.
    """
    return prepared_or_synthetic(data, real=functools.partial(_real_cub, source, data_dir), synthetic=birds)


def _real_cub(source, data_dir) -> Data:
    """CUB as prepared, or prepared now from source."""
    path = pathlib.Path(source).expanduser() if source else None
    if path and not path.is_dir():
        raise DataError(f'`source={source}` is not a folder')
    splits = load_prepared(CubFeatures, source=[path] if path else None, data_dir=data_dir, fetch=_fetch_cub)
    return Data('CUB-200-2011', False, **splits)


def _fetch_cub(root: pathlib.Path) -> Paths:
    raise Missing(f'CUB features are not prepared in {root} and have no public address; give yours as `source`')


class CubFeatures(PreparedBuilder):
    """One record per class."""

    VERSION = tfds.core.Version('1.0.0')
    FEATURES = {
        'items': tfds.features.Tensor(shape=(None, None, None), dtype=np.float32, encoding='bytes'),
        'attributes': tfds.features.Tensor(shape=(None,), dtype=np.float32),
    }

    def _split_generators(self, dl_manager):
        source = read_cub_form(self.source[0])
        counts = ', '.join(f'{split} {len(names)} classes' for split, names in source.division.items())
        announce(f'CUB: {counts}; {source.form} in {self.source[0]}')
        if tuple(map(len, source.division.values())) != CLASSES:
            announce(f"other numbers of classes than {CLASSES}: figures cannot be compared with the paper's")
        self.shape = None
        return {split: self._generate_examples(source, names) for split, names in source.division.items()}

    def _generate_examples(self, source: CubForm, names: list[str]) -> Iterator[tuple[str, dict]]:
        for name in names:
            where = f'{self.source[0]}: class {name!r}'
            with reading_format(where, 'cannot be read'):
                items = np.ascontiguousarray(source.features(name), np.float32)
            self.shape = self.shape or items.shape[1:]
            _check_cub_features(items, self.shape, where)
            yield name, {'name': name, 'items': items, 'attributes': source.attributes[name]}


def _check_cub_features(items: np.ndarray, shape: tuple[int, int], where: str) -> None:
    """All features are there, and of one shape [crops, D]."""
    if not len(items):
        raise DataError(f'{where} has no images; complete the source or take the class out of the lists')
    if items.shape[1:] != shape:
        raise DataError(f'{where} has features {items.shape[1:]}, others have {shape}; make them all alike')
    if not np.isfinite(items).all():
        raise DataError(f'{where} has features that are not finite numbers; make the features again')
