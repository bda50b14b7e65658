"""Training by ordinary batches and other losses, for systems that do not learn from episodes by cross-entropy."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from protojax import classifiers
from protojax.augmentation import Augmentation, augmented
from protojax.devices import spread_over_devices
from protojax.encoders import encode
from protojax.episodes import Dataset, Episode
from protojax.tasks import Task

Draw = Callable[[jax.Array, Dataset], Episode]


def sample_batch(key: jax.Array, dataset: Dataset, *, size: int) -> Episode:
    """Items drawn from all items alike, as the queries of an episode of all classes without support examples."""
    if not isinstance(dataset, Dataset):
        raise ValueError('batches of all classes are drawn from data on the device, not from episodes of the host')
    ends = jnp.cumsum(dataset.counts)
    drawn = jax.random.randint(key, (size,), 0, ends[-1])
    labels = jnp.searchsorted(ends, drawn, side='right').astype(jnp.int32)
    items = dataset.items[labels, drawn - (ends - dataset.counts)[labels]]
    every_class = jnp.arange(dataset.counts.shape[0], dtype=jnp.int32)
    return Episode(items[:0], labels[:0], items, labels, every_class, attributes=dataset.attributes)


def trained_on_batches(
    task: Task,
    draw: Draw,
    losses: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    score: Callable[..., jax.Array] | None = None,
    augmentations: Sequence[Augmentation] = (),
) -> Task:
    """The task with another loss: the mean of losses(scores, labels) [N] over the queries that `draw` gives.

    Scores are those of task.classify, or `score(params, embedded episode)`.
    """

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = draw(key, dataset)
        labels = episode.query_labels
        items = augmented(augmentations, key, episode.query, labels, way=episode.way)
        embeddings, batch_stats = encode_batch(task.encoder, params['encoder'], batch_stats, items, axis_name)
        scores = (score or task.classify)(params, episode._replace(query=embeddings))
        value, accuracy = losses(scores, labels).mean(), classifiers.accuracies(scores, labels).mean()
        return value, (batch_stats, {'loss': value, 'accuracy': accuracy})

    return task._replace(loss=loss)


def encode_batch(encoder, params, batch_stats, items, axis_name):
    """A training batch, spread over the devices of an axis if there is one -> embeddings, batch_stats."""

    def one_pass(part):
        return encode(encoder, params, batch_stats, part, train=True, axis_name=axis_name)

    return spread_if_even(one_pass, items, axis_name)


def spread_if_even(encode: Callable, items: jax.Array, axis_name: str | None) -> tuple[jax.Array, Any]:
    """As spread_over_devices if there is an axis whose devices can share the items evenly; else encode(items)."""
    even = axis_name is not None and items.shape[0] % lax.axis_size(axis_name) == 0
    return spread_over_devices(encode, items) if even else encode(items)
