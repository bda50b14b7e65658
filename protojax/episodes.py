"""Data sets on the device, and the episodes that are drawn from them there.

A random key determines an episode, so no random state is stored. All functions but `from_classes` can run inside jit.

Axis letters: L classes in the data set, I items per class.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = jax.Array | np.ndarray


class Dataset(NamedTuple):
    """Examples by class, on the host or on devices; class l has items[l, :counts[l]], the rest is padding."""

    items: Array  # [L, I, ...], uint8 images or float features
    counts: Array  # int32 [L]
    attributes: Array | None = None  # float32 [L, A], if classes have metadata (CUB)
    names: tuple[str, ...] = ()  # one per class; empty for a data set on devices, which hold arrays only

    @classmethod
    def from_classes(
        cls, classes: Mapping[str, np.ndarray], attributes: Mapping[str, np.ndarray] | None = None
    ) -> 'Dataset':
        """Build a data set on the host from {name: items [n, ...]}, padded to the size of the largest class."""
        counts, first = np.array([len(items) for items in classes.values()], np.int32), next(iter(classes.values()))
        items = np.zeros((len(classes), counts.max(), *np.shape(first)[1:]), np.asarray(first).dtype)
        for row, examples in zip(items, classes.values(), strict=True):
            row[: len(examples)] = examples
        known = None if attributes is None else np.stack([attributes[name] for name in classes]).astype(np.float32)
        return cls(items, counts, known, tuple(classes))


class Episode(NamedTuple):
    """One few-shot task. Support and query examples are ordered by class."""

    support: jax.Array  # [way * shot, ...]
    support_labels: jax.Array  # int32 [way * shot], in 0 .. way - 1
    query: jax.Array  # [way * query, ...]
    query_labels: jax.Array  # int32 [way * query]
    classes: jax.Array  # int32 [way], class indices in the data set
    unlabeled: jax.Array | None = None  # [way * unlabeled, ...], if there are any
    attributes: jax.Array | None = None  # [way, A], if classes have metadata

    @property
    def way(self) -> int:
        """Return the number of classes."""
        return self.classes.shape[0]


class Gathered(NamedTuple):
    """The items of one episode, gathered in advance from a data set that is not on the device."""

    items: jax.Array  # [way, shot + query + unlabeled, ...]
    classes: jax.Array  # int32 [way]
    attributes: jax.Array | None = None  # [way, A]


def sample_episode(
    key: jax.Array, dataset: Dataset | Gathered, *, way: int, shot: int, query: int, unlabeled: int = 0
) -> Episode:
    """Draw `way` classes and `shot` support, `query` query and `unlabeled` examples of each, without replacement.

    Every class must have at least shot + query + unlabeled items; the caller checks this.
    """
    if isinstance(dataset, Gathered):
        drawn = dataset
    else:
        drawn = gather(dataset, *draw(key, dataset.counts, way=way, items=shot + query + unlabeled))

    def flat(items):  # [way, n, ...] -> [way * n, ...]
        return items.reshape(-1, *items.shape[2:])

    labels = jnp.arange(way, dtype=jnp.int32)
    support, queries, others = (flat(part) for part in jnp.split(drawn.items, [shot, shot + query], 1))
    support_labels, query_labels = jnp.repeat(labels, shot), jnp.repeat(labels, query)
    others = others if unlabeled else None
    return Episode(support, support_labels, queries, query_labels, drawn.classes, others, drawn.attributes)


def draw(key: jax.Array, counts: Array, *, way: int, items: int) -> tuple[jax.Array, jax.Array]:
    """Draw class and item indices of an episode, given the number of items per class: [L] -> [way], [way, items]."""
    # All random bits at once: the generator dominates the compile time.
    bits = jax.random.bits(key, (way, 1 + items), 'uint32')
    classes = _choose(bits[:, 0], counts.shape[0])
    return classes, jax.vmap(_choose)(bits[:, 1:], counts[classes])


def gather(dataset: Dataset, classes: jax.Array, indices: jax.Array) -> Gathered:
    """Gather items by index, on the device or, for NumPy arrays, on the host: [way], [way, n]."""
    attributes = None if dataset.attributes is None else dataset.attributes[classes]
    return Gathered(dataset.items[classes[:, None], indices], classes, attributes)


def _choose(bits, count):
    """Choose distinct integers below `count`, one per random word, every sequence equally likely: [n] -> [n].

    Floyd's algorithm: unlike sorting random ranks, its cost does not grow with `count`, which may be traced. The
    remainder of 32 bits has a bias of count / 2**32, which is negligible.
    """
    number = len(bits)
    lowest = count - number
    draws = (bits % (lowest + 1 + jnp.arange(number)).astype(jnp.uint32)).astype(jnp.int32)
    indices = jnp.arange(number)

    def insert(i, chosen):  # at the front; if it repeats an earlier draw, insert lowest + i directly after that one
        repeated = chosen == draws[i]
        value = jnp.where(repeated.any(), lowest + i, draws[i])
        index = jnp.where(repeated.any(), jnp.argmax(repeated) + 1, 0)
        return jnp.where(indices < index, chosen, jnp.where(indices == index, value, jnp.roll(chosen, 1)))

    return lax.fori_loop(0, number, insert, jnp.full_like(draws, -1))
