"""Evaluation: embed every item once, then run any number of episodes on the embeddings.

With running statistics an embedding does not depend on the episode that it is drawn into, so nothing is embedded twice.
Both parts are spread over the devices.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from protojax import classifiers
from protojax.devices import AXIS, parallelize, place, share_of_device
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.hosted import hosted_chunks

EPISODES_AT_ONCE = 32  # per device: enough to fill the vector units, few enough to stay in the cache
EPISODES_IN_A_PART = 1024  # per device and dispatch: about a second, after which a caller can be told how far it is
PARTS_AHEAD = 2  # dispatched before the host waits, so that no device does
Tell = Callable[[float], None]  # is told the share of the work that is done


class Score(NamedTuple):
    """What a classifier reaches in one setting."""

    accuracy: float  # percent
    ci95: float  # percent, half the width of the 95 % confidence interval
    loss: float
    episodes: int


def embedder(
    embed: Callable[..., jax.Array], devices: Sequence[jax.Device], *, batch_size: int = 128
) -> Callable[..., Dataset]:
    """A function that embeds a whole data set: params, batch_stats, Dataset -> Dataset of embeddings.

    `embed(params, batch_stats, items)` is pure; each device embeds `batch_size` items at a time. Items that are NumPy
    arrays, or mapped files, are brought to the devices piece by piece. A fourth argument of the function is told the
    share that is done.
    """

    def embed_part(variables, items, start):
        flat = items.reshape(-1, *items.shape[2:])
        places = start + lax.axis_index(AXIS) * batch_size + jnp.arange(batch_size)
        embeddings = embed(*variables, flat[places % flat.shape[0]])  # the last part begins again at the front
        return lax.all_gather(embeddings, AXIS, tiled=True)

    def embed_chunk(variables, items):
        return lax.all_gather(embed(*variables, share_of_device(items, batch_size)), AXIS, tiled=True)

    embed_part, embed_chunk = (parallelize(function, devices) for function in (embed_part, embed_chunk))

    def embed_all(params, batch_stats, dataset, tell: Tell = lambda share: None):
        classes, size = dataset.items.shape[:2]
        at_once = batch_size * len(devices)
        starts = range(0, classes * size, at_once)
        if isinstance(dataset.items, jax.Array):
            parts = (embed_part((params, batch_stats), dataset.items, np.int32(start)) for start in starts)
        else:
            parts = (embed_chunk((params, batch_stats), chunk) for chunk in hosted_chunks(dataset.items, at_once))
        parts = _collected_evaluations(parts, len(starts), tell)
        embeddings = np.concatenate(parts)[: classes * size].reshape(classes, size, -1)
        return dataset._replace(items=embeddings)

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
    """A function that scores a classifier on episodes of embedded items: params, Dataset, key -> Score.

    `classify(params, episode)` gives the logits of an embedded episode. Classifiers that train an encoder on the
    support set want their episodes one by one: together they would need much memory, and on CPU XLA compiles
    convolution gradients in a loop badly. A fourth argument of the function is told the share that is done.
    """
    at_once = min(EPISODES_AT_ONCE, math.ceil(episodes / len(devices)))
    dispatches = math.ceil(episodes / (EPISODES_IN_A_PART * len(devices)))
    # Of each device in one dispatch, a multiple of at_once, or XLA compiles the rest apart.
    share = 1 if one_by_one else at_once * math.ceil(episodes / (dispatches * at_once * len(devices)))

    def score_part(params, dataset, key, start):
        def score(number):
            episode_key = jax.random.fold_in(key, number)
            episode = sample_episode(episode_key, dataset, way=way, shot=shot, query=query, unlabeled=unlabeled)
            logits, labels = classify(params, episode), episode.query_labels
            return classifiers.losses(logits, labels).mean(), classifiers.accuracies(logits, labels).mean()

        numbers = start + lax.axis_index(AXIS) * share + jnp.arange(share)
        if one_by_one:
            return lax.all_gather(score(numbers[0]), AXIS)
        return lax.all_gather(lax.map(score, numbers, batch_size=at_once), AXIS, tiled=True)

    score_part = parallelize(score_part, devices)

    def score_all(params, dataset, key, tell: Tell = lambda share: None):
        starts = range(0, episodes, share * len(devices))
        if len(starts) > 1:
            params, dataset = place((params, dataset), devices)
        parts = (score_part(params, dataset, key, np.int32(start)) for start in starts)
        parts = _collected_evaluations(parts, len(starts), tell)
        losses, accuracies = (np.concatenate(p).astype(np.float64)[:episodes] for p in zip(*parts, strict=True))
        return Score(100 * float(accuracies.mean()), 100 * confidence(accuracies), float(losses.mean()), episodes)

    return score_all


def zero_shot_scorer(
    classify: Callable[..., jax.Array], devices: Sequence[jax.Device]
) -> Callable[..., tuple[Score, Score]]:
    """A function that scores all items at once: params, Dataset of embeddings -> Score per image, Score per class.

    `classify(params, episode)` gives the logits of an embedded episode, here of one without support examples, with all
    classes of the data set and the items of one class as queries. The second score is the mean over classes.
    """

    def score_part(params, dataset):
        every_class = jnp.arange(dataset.counts.shape[0])

        def score(label):
            queries = dataset.items[label]
            labels = jnp.full(queries.shape[0], label)
            episode = Episode(queries[:0], labels[:0], queries, labels, every_class, attributes=dataset.attributes)
            logits = classify(params, episode)
            return classifiers.losses(logits, labels), classifiers.accuracies(logits, labels)

        return lax.map(score, every_class)

    score_part = parallelize(score_part, devices)

    def score_all(params, dataset):
        losses, correct = (np.asarray(x, np.float64) for x in score_part(params, dataset))  # [classes, items]
        real = np.arange(losses.shape[1])[None] < np.asarray(dataset.counts)[:, None]
        loss, images = float(losses[real].mean()), correct[real]
        classes = np.array([row[:count].mean() for row, count in zip(correct, dataset.counts, strict=True)])
        return tuple(Score(100 * float(v.mean()), 100 * confidence(v), loss, 1) for v in (images, classes))

    return score_all


def _collected_evaluations(parts: Iterable, number: int, tell: Tell) -> list:
    """The results of a number of dispatches, a few of which are always under way."""
    found = []
    for part in parts:
        found.append(part)
        if len(found) > PARTS_AHEAD:
            jax.block_until_ready(found[-PARTS_AHEAD - 1])
        tell(max(len(found) - PARTS_AHEAD, 0) / number)
    return found


def confidence(values: np.ndarray) -> float:
    """Half the width of the 95 % confidence interval of the mean of independent values: [N] -> []."""
    return float(1.96 * np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
