"""Data sets that stay on the host, in memory or as a mapped file, because they do not fit on a device.

The same key draws the same episode as on the device. Items are gathered ahead of time in a thread of their own, while
the device works on the episodes before.
"""

import mmap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from protojax.episodes import Dataset, GatheredEpisode, draw_episode, gather_episode

AHEAD = 3  # episodes that are gathered before they are needed


class JoinedHostedItems:
    """Arrays of classes one after the other, as far as gathering needs it, without a copy: n x [L_i, I_i, ...]."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        self.begins = np.cumsum([0, *(array.shape[0] for array in arrays)])
        self.shape = (int(self.begins[-1]), max(a.shape[1] for a in arrays), *arrays[0].shape[2:])
        self.dtype = arrays[0].dtype

    def __getitem__(self, index: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Items at classes [way, 1] and places [way, n] -> [way, n, ...]."""
        classes, places = index
        owners = np.searchsorted(self.begins, classes[:, 0], side='right') - 1
        rows = zip(owners, classes[:, 0], places, strict=True)
        return np.stack([self.arrays[owner][k - self.begins[owner], own] for owner, k, own in rows])


class _MappedItems:
    """A mapped file, as far as gathering needs it, that reads the items it is asked for, no others, and keeps none.

    Left to itself the system would read on after each item, and the process would seem to grow up to the size of the
    file.
    """

    def __init__(self, array: np.memmap):
        self.array, self.shape, self.dtype, self.file = array, array.shape, array.dtype, array._mmap
        self.begin = array.ctypes.data - np.frombuffer(self.file, np.uint8).ctypes.data
        self.file.madvise(mmap.MADV_RANDOM)

    def __getitem__(self, index: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Items at these classes and places, which are broadcast against each other."""
        classes, places = index
        size = self.array[0, 0].nbytes
        for number in np.ravel(classes * self.shape[1] + places).tolist():
            begin = self.begin + number * size
            page = begin - begin % mmap.PAGESIZE
            self.file.madvise(mmap.MADV_WILLNEED, page, begin + size - page)
        found = np.array(self.array[index])
        self.file.madvise(mmap.MADV_DONTNEED)  # the system may still keep what was read for the next time
        return found


def hosted_items(items: np.ndarray | JoinedHostedItems) -> np.ndarray | JoinedHostedItems | _MappedItems:
    """The items in the form that is fastest to read; writable or non-contiguous maps are left as they are."""
    if isinstance(items, JoinedHostedItems):
        return JoinedHostedItems([hosted_items(array) for array in items.arrays])
    whole = isinstance(items, np.memmap) and items.flags.c_contiguous and not items.flags.writeable
    return _MappedItems(items) if whole and items.size and hasattr(mmap, 'MADV_DONTNEED') else items


def hosted_episodes(
    dataset: Dataset, key: jax.Array, first: int, *, way: int, items: int, per_step: int = 1
) -> Iterator[GatheredEpisode]:
    """What `train_step` draws at steps `first`, `first` + 1 and so on, with a leading axis if several make a step."""
    cpu = jax.local_devices(backend='cpu')[0]
    key, counts = jax.device_put((key, np.asarray(dataset.counts)), cpu)
    dataset = dataset._replace(items=hosted_items(dataset.items))
    places = jax.jit(lambda number: draw_episode(jax.random.fold_in(key, number), counts, way=way, items=items))

    def fetch(step):
        with jax.default_device(cpu):
            found = [map(np.asarray, places(np.int32(step * per_step + k))) for k in range(per_step)]
        drawn = [gather_episode(dataset, *part) for part in found]
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


def hosted_chunks(items: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """All items [L, I, ...] class by class in pieces [size, ...], the last one filled up with the first item."""
    items, (classes, per_class) = hosted_items(items), items.shape[:2]
    for start in range(0, classes * per_class, size):
        flat = np.arange(start, start + size)
        flat[flat >= classes * per_class] = 0
        yield items[(flat // per_class)[:, None], (flat % per_class)[:, None]][:, 0]
