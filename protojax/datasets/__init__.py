"""What every data set is loaded into, on the host."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from protojax.errors import DataError


class Split(NamedTuple):
    """The classes of one split; class k has its items in items[k, :counts[k]], the rest is padding."""

    items: np.ndarray  # [classes, items, ...], uint8 images or float features
    counts: np.ndarray  # int32 [classes]
    names: tuple[str, ...]  # one per class
    attributes: np.ndarray | None = None  # float32 [classes, A], where classes come with meta-data (CUB)

    @classmethod
    def from_classes(
        cls, classes: Mapping[str, np.ndarray], attributes: Mapping[str, np.ndarray] | None = None
    ) -> 'Split':
        """A split of classes by name, each an array of its items [n, ...], padded to the size of the largest."""
        if len({np.shape(items)[1:] for items in classes.values()}) != 1:
            raise DataError(f'items of different shapes: {sorted({np.shape(v)[1:] for v in classes.values()})}')
        counts = np.array([len(items) for items in classes.values()], np.int32)
        first = np.asarray(next(iter(classes.values())))
        items = np.zeros((len(classes), counts.max(), *first.shape[1:]), first.dtype)
        for row, own in zip(items, classes.values(), strict=True):
            row[: len(own)] = own
        known = None if attributes is None else np.stack([attributes[name] for name in classes]).astype(np.float32)
        return cls(items, counts, tuple(classes), known)


class Data(NamedTuple):
    """A data set in memory. Splits that were not prepared are None."""

    title: str  # for tables and first lines; says so where the data are a stand-in
    synthetic: bool
    train: Split | None
    validation: Split | None = None
    test: Split | None = None
