"""Data sets that stay on the host, in memory or as a mapped file, because they do not fit on a device.

The same key draws the same episode as on the device. Items are gathered ahead of time in a thread of their own, while
the device works on the episodes before.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from protojax.episodes import Dataset, Drawn, draw, gather

AHEAD = 3  # episodes that are gathered before they are needed


class Joined:
    """Arrays of classes one after the other, as far as gathering needs it, without a copy: n x [L_i, I_i, ...]."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        self.begins = np.cumsum([0, *(len(array) for array in arrays)])
        self.shape = (int(self.begins[-1]), max(a.shape[1] for a in arrays), *arrays[0].shape[2:])
        self.dtype = arrays[0].dtype

    def __getitem__(self, index: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Items at classes [way, 1] and places [way, n] -> [way, n, ...]."""
        classes, places = index
        owners = np.searchsorted(self.begins, classes[:, 0], side='right') - 1
        rows = zip(owners, classes[:, 0], places, strict=True)
        return np.stack([self.arrays[owner][k - self.begins[owner], own] for owner, k, own in rows])


def episodes(
    dataset: Dataset, key: jax.Array, first: int, *, way: int, items: int, per_step: int = 1
) -> Iterator[Drawn]:
    """What `train_step` draws at steps `first`, `first` + 1 and so on, with a leading axis if several make a step."""
    cpu = jax.local_devices(backend='cpu')[0]
    key, counts = jax.device_put((key, np.asarray(dataset.counts)), cpu)
    places = jax.jit(lambda number: draw(jax.random.fold_in(key, number), counts, way=way, items=items))

    def fetch(step):
        with jax.default_device(cpu):
            found = [map(np.asarray, places(np.int32(step * per_step + k))) for k in range(per_step)]
        drawn = [gather(dataset, *part) for part in found]
        return drawn[0] if per_step == 1 else jax.tree.map(lambda *parts: np.stack(parts), *drawn)

    with ThreadPoolExecutor(1) as thread:
        coming = [thread.submit(fetch, first + k) for k in range(AHEAD)]
        try:
            while True:
                yield coming.pop(0).result()
                first += 1
                coming.append(thread.submit(fetch, first + AHEAD - 1))
        finally:
            for future in coming:
                future.cancel()


def chunks(items: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """All items [L, I, ...] class by class in pieces [size, ...], the last one filled up with the first item."""
    classes, per_class = items.shape[:2]
    for start in range(0, classes * per_class, size):
        flat = np.arange(start, start + size)
        flat[flat >= classes * per_class] = 0
        yield items[(flat // per_class)[:, None], (flat % per_class)[:, None]][:, 0]
