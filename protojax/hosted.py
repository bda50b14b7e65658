"""Data sets that stay on the host, in memory or memory-mapped, because they do not fit on a device.

The same key draws the same episode as on the device. A background thread prefetches the items of the next episodes.
"""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from protojax.episodes import Dataset, Gathered, draw, gather

AHEAD = 3  # prefetched episodes


class Joined:
    """Arrays of classes [L_i, I_i, ...] as one array [sum L_i, max I_i, ...], for `gather` only, without a copy."""

    def __init__(self, arrays: Sequence):
        self.arrays = arrays
        self.starts = np.cumsum([0, *(array.shape[0] for array in arrays)])
        self.shape = (int(self.starts[-1]), max(a.shape[1] for a in arrays), *arrays[0].shape[2:])
        self.dtype = arrays[0].dtype

    def __getitem__(self, index: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return items by class [way, 1] and item index [way, n]: -> [way, n, ...]."""
        classes, indices = index
        owners = np.searchsorted(self.starts, classes[:, 0], side='right') - 1
        rows = zip(owners, classes[:, 0], indices, strict=True)
        return np.stack([self.arrays[owner][k - self.starts[owner], row] for owner, k, row in rows])


def episodes(
    dataset: Dataset, key: jax.Array, first: int, *, way: int, items: int, per_step: int = 1
) -> Iterator[Gathered]:
    """Yield the items that `train_step` draws at steps first, first + 1, ...; stacked if `per_step` > 1."""
    cpu = jax.local_devices(backend='cpu')[0]
    key, counts = jax.device_put((key, np.asarray(dataset.counts)), cpu)
    indices = jax.jit(lambda number: draw(jax.random.fold_in(key, number), counts, way=way, items=items))

    def fetch(step):
        with jax.default_device(cpu):
            found = [map(np.asarray, indices(np.int32(step * per_step + k))) for k in range(per_step)]
        drawn = [gather(dataset, *part) for part in found]
        return drawn[0] if per_step == 1 else jax.tree.map(lambda *parts: np.stack(parts), *drawn)

    with ThreadPoolExecutor(1) as thread:
        pending = [thread.submit(fetch, first + k) for k in range(AHEAD)]
        for step in itertools.count(first + AHEAD):
            yield pending.pop(0).result()
            pending.append(thread.submit(fetch, step))


def chunks(items: Any, size: int) -> Iterator[Any]:
    """Yield all items [L, I, ...] in order as chunks [size, ...]; the last one is padded with the first item."""
    classes, per_class = items.shape[:2]
    for start in range(0, classes * per_class, size):
        flat = np.arange(start, start + size)
        flat[flat >= classes * per_class] = 0
        yield items[(flat // per_class)[:, None], (flat % per_class)[:, None]][:, 0]
