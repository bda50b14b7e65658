"""Training on mini-batches or with other losses, for methods that do not learn from episodes by cross-entropy."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from protojax import Dataset, Episode, Learner, Splits, augmentation, classifiers, devices
from protojax.augmentation import Augmentation
from protojax.encoders import encode

Draw = Callable[[jax.Array, Dataset], Episode]


def classes(data: Splits) -> int:
    """Count the classes that a training set can have: with --retrain, validation classes are among them."""
    return sum(len(split.names) for split in (data.train, data.validation) if split is not None)


def sample(key: jax.Array, dataset: Dataset, *, size: int) -> Episode:
    """Draw uniformly from all examples; they are the queries of an episode of all classes without support set."""
    ends = jnp.cumsum(dataset.counts)
    drawn = jax.random.randint(key, (size,), 0, ends[-1])
    labels = jnp.searchsorted(ends, drawn, side='right').astype(jnp.int32)
    items = dataset.items[labels, drawn - (ends - dataset.counts)[labels]]
    every_class = jnp.arange(dataset.counts.shape[0], dtype=jnp.int32)
    return Episode(items[:0], labels[:0], items, labels, every_class, attributes=dataset.attributes)


def trained(
    learner: Learner,
    draw: Draw,
    losses: Callable[[jax.Array, jax.Array], jax.Array],
    *,
    score: Callable[..., jax.Array] | None = None,
    augmentations: Sequence[Augmentation] = (),
) -> Learner:
    """Replace the loss of a learner by the mean of losses(scores, labels) [N] over the queries from `draw`.

    Scores are `score(params, batch_stats, embedded episode)`, by default `learner.classify`.
    """

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = draw(key, dataset)
        labels = episode.query_labels
        items = augmentation.apply(augmentations, key, episode.query, labels, way=episode.way)
        embeddings, batch_stats = embed(learner.encoder, params['encoder'], batch_stats, items, axis_name)
        scores = (score or learner.classify)(params, batch_stats, episode._replace(query=embeddings))
        value, accuracy = losses(scores, labels).mean(), classifiers.accuracies(scores, labels).mean()
        return value, (batch_stats, {'loss': value, 'accuracy': accuracy})

    return learner._replace(loss=loss)


def embed(
    encoder: nn.Module, params: Any, batch_stats: Any, items: jax.Array, axis_name: str | None
) -> tuple[jax.Array, Any]:
    """Embed a training batch, sharded across the devices of an axis if there is one -> embeddings, batch_stats."""
    one_pass = partial(encode, encoder, params, batch_stats, train=True, axis_name=axis_name)
    return devices.spread(one_pass, items, axis_name)
