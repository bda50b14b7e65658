"""Nearest neighbours on the features of a classifier (the baseline of Ravi and Larochelle 2017).

The encoder learns, with a linear layer on top, to tell all training classes apart: ordinary batches and cross-entropy,
no episodes. At test the layer is dropped, and a query takes the label of the nearest support example.
"""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.compared.batches import sample_batch, trained_on_batches
from protojax import classifiers
from protojax.augmentation import Augmentation
from protojax.distances import Distance, Learned, cosine, pairwise
from protojax.episodes import Episode
from protojax.tasks import Task, few_shot_task


def nearest_task(
    encoder: nn.Module,
    item_shape: Sequence[int],
    classes: int,
    *,
    batch: int,
    distance: Distance = cosine,
    augmentations: Sequence[Augmentation] = (),
) -> Task:
    """Learning from batches of that size; `classes` is how many a training set may have at most."""

    def init_layer(key, dimensions):
        kernel = nn.initializers.lecun_normal()(key, (dimensions, classes))
        return {'kernel': kernel, 'bias': jnp.zeros(classes)}

    def layer(params, episode):
        scores = episode.query @ params['classifier']['kernel'] + params['classifier']['bias'][None]
        return scores[:, : episode.way]

    nearest = Learned(init_layer, lambda params, episode: nearest_classifier(episode, distance))
    task = few_shot_task(encoder, item_shape, way=2, shot=1, query=1, classify=nearest)
    draw = partial(sample_batch, size=batch)
    return trained_on_batches(task, draw, classifiers.losses, score=layer, augmentations=augmentations)


def nearest_classifier(episode: Episode, distance: Distance = cosine) -> jax.Array:
    """Minus the distance to the nearest support example of each class, of an embedded episode -> [Q, way]."""
    distances = pairwise(distance)(episode.query, episode.support)  # [Q, N]
    return -jax.ops.segment_min(distances.T, episode.support_labels, episode.way).T
