"""miniImageNet: 100 classes of 600 colour images of 84x84, divided 64 / 16 / 20 (Ravi and Larochelle 2017).

The images may not be passed on, so there is no download: `source` names what the user has. Fewer images per class and
any of the three splits will do; the classes of a split must be complete.
"""

import functools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds

from protojax.datasets import Data
from protojax.datasets.preparing import Paths, PreparedBuilder, load_prepared, prepared_or_synthetic
from protojax.datasets.sources import announce
from protojax.datasets.sources.miniimagenet_files import open_miniimagenet_files
from protojax.datasets.sources.miniimagenet_forms import Classes
from protojax.datasets.synthetic.shapes import shapes
from protojax.errors import DataError, Missing

CLASSES = {'train': 64, 'validation': 16, 'test': 20}


def load_miniimagenet(
    *,
    data: str = 'auto',
    source: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    splits: Sequence[str] = tuple(CLASSES),
) -> Data:
    """miniImageNet in memory, items uint8 [classes, images, 84, 84, 3]; splits not asked for or not there are None.

    data: 'real', 'synthetic' (coloured shapes) or 'auto', which is synthetic where no real data were given.
    source: folder, archive, folder of archives or pickle to prepare from; afterwards it is not needed.
    """
    load_real = functools.partial(_real_miniimagenet, source, data_dir, splits)
    found = prepared_or_synthetic(data, real=load_real, synthetic=shapes)
    return found._replace(**{name: None for name in CLASSES if name not in splits})


def _real_miniimagenet(source, data_dir, splits: Sequence[str]) -> Data:
    """miniImageNet as prepared, or prepared now from source."""
    path = pathlib.Path(source).expanduser() if source else None
    if path and not path.exists():
        raise DataError(f'`source={source}` does not exist')
    paths = [path] if path else None
    found = load_prepared(MiniImageNet, source=paths, data_dir=data_dir, fetch=_fetch_miniimagenet, wanted=splits)
    return Data('miniImageNet', False, *(found.get(name) for name in CLASSES))


def _fetch_miniimagenet(root: pathlib.Path) -> Paths:
    raise Missing(f'miniImageNet is not prepared in {root} and has no public address; give yours as `source`')


class MiniImageNet(PreparedBuilder):
    """One record per class."""

    VERSION = tfds.core.Version('1.0.0')
    FEATURES = {'items': tfds.features.Tensor(shape=(None, 84, 84, 3), dtype=np.uint8, encoding='bytes')}

    def download_and_prepare(self, **kwargs):
        """As of every builder; the source is opened once and stays open until the last image is read."""
        with open_miniimagenet_files(self.source[0]) as (self.classes, place):
            _check_miniimagenet_classes(self.classes, self.source[0])
            announce(f'miniImageNet: {", ".join(map(_describe_split, self.classes, self.classes.values()))}; {place}')
            super().download_and_prepare(**kwargs)
        self.classes = {}  # let go of the source's memory, before the records are read

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(classes) for split, classes in self.classes.items()}

    def _generate_examples(self, classes: Classes) -> Iterator[tuple[str, dict]]:
        for name, own in classes.items():
            yield name, {'name': name, 'items': own.images()}


def _check_miniimagenet_classes(splits: dict[str, Classes], source) -> None:
    """A class lies in one split, and a split has all its classes: results on others are not comparable."""
    owner = {}
    for split, classes in splits.items():
        if len(classes) != CLASSES[split]:
            raise DataError(
                f'{source} has {len(classes)} classes in {split}, not {CLASSES[split]}; complete it. '
                'Other images than those of miniImageNet can be loaded with protojax.datasets.folder'
            )
        for name in classes:
            if owner.setdefault(name, split) != split:
                raise DataError(f'{source}: class {name!r} is in both {owner[name]} and {split}; take it out of one')


def _describe_split(split: str, classes: Classes) -> str:
    """'train 64 classes of 150 images', for the user to see what there is."""
    counts = sorted({own.count for own in classes.values()})
    return f'{split} {len(classes)} classes of {"-".join(map(str, counts[:: max(1, len(counts) - 1)]))} images'
