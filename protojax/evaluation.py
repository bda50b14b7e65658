"""Evaluation: embed every item once, then score any number of episodes on the embeddings.

With running statistics, the embedding of an item does not depend on its episode, so no item is embedded twice. Both
stages are sharded across the devices.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from protojax import classifiers, hosted
from protojax.devices import AXIS, parallelize, place, shard
from protojax.episodes import Dataset, Episode, sample_episode

EPISODES_AT_ONCE = 32  # per device: enough to fill the vector units, few enough to stay in the cache
EPISODES_PER_DISPATCH = 1024  # per device: about one second, after which progress is reported
DISPATCHES_AHEAD = 2  # in flight before the host waits, so that devices are never idle
Progress = Callable[[float], None]  # callback; receives the completed fraction


class Score(NamedTuple):
    """Accuracy of a classifier in one setting."""

    accuracy: float  # percent
    ci95: float  # percent, half-width of the 95 % confidence interval
    loss: float  # mean cross-entropy of the queries
    episodes: int  # number of scored episodes


def embedder(
    embed: Callable[..., jax.Array], devices: Sequence[jax.Device], *, batch_size: int = 128
) -> Callable[..., Dataset]:
    """Make a function that embeds a data set: params, batch_stats, Dataset[, progress] -> Dataset of embeddings.

    `embed(params, batch_stats, items)` is pure; each device embeds `batch_size` items at a time. Items may be on the
    devices, in NumPy arrays or in memory-mapped files.
    """

    def embed_chunk(variables, items):
        return lax.all_gather(embed(*variables, shard(items, batch_size)), AXIS, tiled=True)

    embed_chunk = parallelize(embed_chunk, devices)

    def embed_all(params, batch_stats, dataset, progress: Progress = lambda fraction: None):
        (classes, size), at_once = dataset.items.shape[:2], batch_size * len(devices)
        parts = (embed_chunk((params, batch_stats), chunk) for chunk in hosted.chunks(dataset.items, at_once))
        embeddings = np.concatenate(_collect(parts, math.ceil(classes * size / at_once), progress))
        return dataset._replace(items=embeddings[: classes * size].reshape(classes, size, -1), names=())

    return embed_all


def episode_scorer(
    classify: Callable[..., jax.Array],
    devices: Sequence[jax.Device],
    *,
    way: int,
    shot: int,
    query: int,
    episodes: int,
    unlabeled: int = 0,
    one_by_one: bool = False,
) -> Callable[..., Score]:
    """Make a function that scores episodes: params, batch_stats, Dataset of embeddings, key[, progress] -> Score.

    Args:
        classify: Pure function params, batch_stats, embedded episode -> logits, e.g. `learner.classify`.
        devices: Devices to use.
        way: Classes per episode.
        shot: Support examples per class.
        query: Queries per class.
        episodes: Number of episodes.
        unlabeled: Unlabelled examples per class.
        one_by_one: Score one episode per dispatch, for learners that adapt to the support set (`learner.adapts`):
            a batch of episodes would need too much memory, and XLA compiles convolution gradients in loops badly.
    """
    at_once = min(EPISODES_AT_ONCE, math.ceil(episodes / len(devices)))
    dispatches = math.ceil(episodes / (EPISODES_PER_DISPATCH * len(devices)))
    # Episodes per device and dispatch: a multiple of at_once, or XLA compiles the remainder separately.
    per_device = 1 if one_by_one else at_once * math.ceil(episodes / (dispatches * at_once * len(devices)))

    def score_shard(variables, dataset, key, start):
        def score(index):
            sizes = {'way': way, 'shot': shot, 'query': query, 'unlabeled': unlabeled}
            episode = sample_episode(jax.random.fold_in(key, index), dataset, **sizes)
            losses, correct = _losses_and_accuracies(classify(*variables, episode), episode.query_labels)
            return losses.mean(), correct.mean()

        indices = start + lax.axis_index(AXIS) * per_device + jnp.arange(per_device)
        if one_by_one:
            return lax.all_gather(score(indices[0]), AXIS)
        return lax.all_gather(lax.map(score, indices, batch_size=at_once), AXIS, tiled=True)

    score_shard = parallelize(score_shard, devices)

    def score_all(params, batch_stats, dataset, key, progress: Progress = lambda fraction: None):
        starts = range(0, episodes, per_device * len(devices))
        variables = params, batch_stats
        if len(starts) > 1:
            variables, dataset = place((variables, dataset), devices)
        shards = (score_shard(variables, dataset, key, np.int32(start)) for start in starts)
        parts = _collect(shards, len(starts), progress)
        losses, correct = (np.concatenate(p).astype(np.float64)[:episodes] for p in zip(*parts, strict=True))
        return Score(100 * float(correct.mean()), 100 * confidence(correct), float(losses.mean()), episodes)

    return score_all


def zero_shot_scorer(
    classify: Callable[..., jax.Array], devices: Sequence[jax.Device]
) -> Callable[..., tuple[Score, Score]]:
    """Make a function that scores all items: params, batch_stats, Dataset of embeddings -> Score per image, per class.

    `classify(params, batch_stats, episode)` is called with an episode of all classes, without support examples and with
    the items of one class as queries. The second score is the mean over classes.
    """

    def score_classes(variables, dataset):
        every_class = jnp.arange(dataset.counts.shape[0])

        def score(label):
            queries = dataset.items[label]
            labels = jnp.full(queries.shape[0], label)
            episode = Episode(queries[:0], labels[:0], queries, labels, every_class, attributes=dataset.attributes)
            return _losses_and_accuracies(classify(*variables, episode), labels)

        return lax.map(score, every_class)

    score_classes = parallelize(score_classes, devices)

    def score_all(params, batch_stats, dataset):
        losses, correct = (np.asarray(x, np.float64) for x in score_classes((params, batch_stats), dataset))
        valid = np.arange(losses.shape[1])[None] < np.asarray(dataset.counts)[:, None]  # [classes, items]
        loss, images = float(losses[valid].mean()), correct[valid]
        classes = np.array([row[:count].mean() for row, count in zip(correct, np.asarray(dataset.counts), strict=True)])
        return tuple(Score(100 * float(v.mean()), 100 * confidence(v), loss, 1) for v in (images, classes))

    return score_all


def confidence(values: np.ndarray) -> float:
    """Return the half-width of the 95 % confidence interval of the mean of independent values: [N] -> []."""
    return float(1.96 * np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def _losses_and_accuracies(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels), classifiers.accuracies(logits, labels)


def _collect(parts: Iterable, number: int, progress: Progress) -> list:
    """Collect the results of `number` dispatches, keeping DISPATCHES_AHEAD of them in flight."""
    found: list = []
    for part in parts:
        found.append(part)
        if len(found) > DISPATCHES_AHEAD:
            jax.block_until_ready(found[-DISPATCHES_AHEAD - 1])
        progress(max(len(found) - DISPATCHES_AHEAD, 0) / number)
    return found
