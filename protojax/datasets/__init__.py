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
        items, counts = padded_classes(list(map(np.asarray, classes.values())))
        known = None if attributes is None else np.stack([attributes[name] for name in classes]).astype(np.float32)
        return cls(items, counts, tuple(classes), known)


def padded_classes(classes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Classes as one array, padded to the size of the largest: n x [m, ...] -> [n, max m, ...], int32 [n].

    Empties the list, which frees what is copied: a large data set is not in memory twice.
    """
    counts = np.array([len(items) for items in classes], np.int32)
    padded = np.zeros((len(classes), counts.max(), *classes[0].shape[1:]), classes[0].dtype)
    for row, count in zip(padded, counts, strict=True):
        row[:count] = classes.pop(0)
    return padded, counts


class Data(NamedTuple):
    """A data set in memory. Splits that were not prepared are None."""

    title: str  # for tables and first lines; says so where the data are a stand-in
    synthetic: bool
    train: Split | None
    validation: Split | None = None
    test: Split | None = None
