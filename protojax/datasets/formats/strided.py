"""Tensors as Torch stores them: a row of elements, and how many of them to go on for the next place of each axis."""

import math
from collections.abc import Sequence

import numpy as np

from protojax.datasets.formats import Damaged


def strided_view(storage: np.ndarray, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """A read-only view of a storage [n] as an array of given sizes; offset and strides are in elements.

    A stride of 0 shows few elements as many. An array of more elements than are stored is refused, as a copy of it
    could fill the memory.
    """
    if len(sizes) != len(strides) or min((offset, *sizes, *strides)) < 0:
        raise Damaged(f'a tensor has sizes {sizes}, strides {strides} and offset {offset}')
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if min(sizes, default=1) < 1 or last >= len(storage) or math.prod(sizes) > len(storage):
        raise Damaged(f'a tensor of sizes {sizes} does not fit its storage of {len(storage)} elements')
    steps = [stride * storage.itemsize if size > 1 else 0 for size, stride in zip(sizes, strides, strict=True)]
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps, writeable=False)
