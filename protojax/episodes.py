"""Data sets on the device, and the episodes that are drawn from them there.

Nothing random is stored: a key names the episode. All functions run inside jit.

Axis letters: L classes in the data set, I items per class.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Dataset(NamedTuple):
    """Items by class; class l has its items in items[l, :counts[l]], the rest is padding."""

    items: jax.Array  # [L, I, ...], uint8 images or float embeddings
    counts: jax.Array  # int32 [L]
    attributes: jax.Array | None = None  # [L, A], where classes come with meta-data


class Episode(NamedTuple):
    """One few-shot task. Support and query examples stand class by class."""

    support: jax.Array  # [way * shot, ...]
    support_labels: jax.Array  # int32 [way * shot], in 0 .. way - 1
    query: jax.Array  # [way * query, ...]
    query_labels: jax.Array  # int32 [way * query]
    classes: jax.Array  # int32 [way], the classes' places in the data set
    unlabeled: jax.Array | None = None  # [way * unlabeled, ...], where there are some
    attributes: jax.Array | None = None  # [way, A], where classes come with meta-data

    @property
    def way(self) -> int:
        """Number of classes."""
        return self.classes.shape[0]


class GatheredEpisode(NamedTuple):
    """The items of one episode, gathered before it is needed: for data sets that are not on the device."""

    items: jax.Array  # [way, shot + query + unlabeled, ...]
    classes: jax.Array  # int32 [way]
    attributes: jax.Array | None = None  # [way, A]


def sample_episode(
    key: jax.Array, dataset: Dataset | GatheredEpisode, *, way: int, shot: int, query: int, unlabeled: int = 0
) -> Episode:
    """Draw `way` classes and, of each, `shot` support, `query` query and `unlabeled` examples, all without replacement.

    Every chosen class must have at least shot + query + unlabeled items; whoever loads the data checks that.
    """
    drawn = dataset
    if isinstance(dataset, Dataset):
        drawn = gather_episode(dataset, *draw_episode(key, dataset.counts, way=way, items=shot + query + unlabeled))

    def flat(items):  # [way, n, ...] -> [way * n, ...]
        return items.reshape(-1, *items.shape[2:])

    labels = jnp.arange(way, dtype=jnp.int32)
    return Episode(
        support=flat(drawn.items[:, :shot]),
        support_labels=jnp.repeat(labels, shot),
        query=flat(drawn.items[:, shot : shot + query]),
        query_labels=jnp.repeat(labels, query),
        classes=drawn.classes,
        unlabeled=flat(drawn.items[:, shot + query :]) if unlabeled else None,
        attributes=drawn.attributes,
    )


def draw_episode(key: jax.Array, counts: jax.Array, *, way: int, items: int) -> tuple[jax.Array, jax.Array]:
    """Places of an episode in a data set with so many items in each class: [L] -> [way], [way, items]."""
    # All random bits at once: the generator is most of what has to be compiled.
    bits = jax.random.bits(key, (way, 1 + items), 'uint32')
    classes = _choose_for_episode(bits[:, 0], counts.shape[0])
    return classes, jax.vmap(_choose_for_episode)(bits[:, 1:], counts[classes])


def gather_episode(dataset: Dataset, classes: jax.Array, places: jax.Array) -> GatheredEpisode:
    """The items at those places, on the device or, for NumPy arrays, on the host: [way], [way, n]."""
    attributes = None if dataset.attributes is None else dataset.attributes[classes]
    return GatheredEpisode(dataset.items[classes[:, None], places], classes, attributes)


def _choose_for_episode(bits, count):
    """As many different integers below `count` as there are random words, every sequence of them equally likely.

    Floyd's algorithm: unlike that of sorting random ranks its cost does not grow with `count`, which may be traced. A
    remainder of 32 bits favours some integers over others by count / 2**32, which no experiment could notice.
    """
    number = len(bits)
    least = count - number
    draws = (bits % (least + 1 + jnp.arange(number)).astype(jnp.uint32)).astype(jnp.int32)
    places = jnp.arange(number)

    def insert(i, chosen):  # a new draw goes to the front; in place of a repeated one, least + i goes right behind it
        repeated = chosen == draws[i]
        value = jnp.where(repeated.any(), least + i, draws[i])
        place = jnp.where(repeated.any(), jnp.argmax(repeated) + 1, 0)
        return jnp.where(places < place, chosen, jnp.where(places == place, value, jnp.roll(chosen, 1)))

    return lax.fori_loop(0, number, insert, jnp.full_like(draws, -1))
