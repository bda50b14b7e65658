"""What every data set is loaded into, on the host."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """The classes of one split; class k has its items in items[k, :counts[k]], the rest is padding."""

    items: np.ndarray  # [classes, items, ...], uint8 images or float features
    counts: np.ndarray  # int32 [classes]
    names: tuple[str, ...]  # one per class
    attributes: np.ndarray | None = None  # float32 [classes, A], where classes come with meta-data (CUB)


class Data(NamedTuple):
    """A data set in memory. Splits that were not prepared are None."""

    title: str  # for tables and first lines; says so where the data are a stand-in
    synthetic: bool
    train: Split | None
    validation: Split | None
    test: Split | None
