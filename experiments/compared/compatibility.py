"""Zero-shot learning by a bilinear compatibility: ALE (Akata et al. 2013) and SJE (Akata et al. 2015).

An image scores F(x, y) = x^T W a_y with a class, features x and attributes a_y of unit length. Both learn W by a hinge
with margin 1 over all training classes, one update for each sample: SJE from the worst class, ALE from all that violate
the margin, weighted by the rank of the true one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.compared.batches import sample_batch, trained_on_batches
from protojax.augmentation import random_crop
from protojax.distances import unit_length
from protojax.encoders.linear import MIDDLE_CROP
from protojax.tasks import Task, few_shot_task

Losses = Callable[[jax.Array, jax.Array], jax.Array]  # scores [N, classes], labels [N] -> [N]


class Compatibility(nn.Module):
    """x^T W for features of unit length, of the middle crop where there are several: [N, D] -> [N, attributes]."""

    attributes: int
    mean: Sequence[float] = (0.0,)  # of the features, taken away before they are scaled
    attribute_mean: Sequence[float] = (0.0,)  # of the attributes, taken away before scores are computed
    settings: ClassVar[tuple[str, ...]] = ('attributes', 'mean', 'attribute_mean')

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        x = x[:, MIDDLE_CROP] if x.ndim == 3 else x
        x = unit_length(x.astype(jnp.float32) - jnp.asarray(self.mean, jnp.float32)[None])
        return nn.Dense(self.attributes, use_bias=False)(x)


def compatibility_task(
    losses: Losses,
    item_shape: Sequence[int],
    attributes: int,
    *,
    batch: int = 1,
    mean: Sequence[float] = (0.0,),
    attribute_mean: Sequence[float] = (0.0,),
) -> Task:
    """ALE or SJE, as `losses` says, with so many samples in each update."""
    encoder = Compatibility(attributes, mean=tuple(mean), attribute_mean=tuple(attribute_mean))
    center = jnp.asarray(attribute_mean, jnp.float32)[None]

    def classify(params, episode):
        return episode.query @ unit_length(episode.attributes - center).T

    task = few_shot_task(encoder, item_shape, way=2, shot=0, query=1, classify=classify)
    return trained_on_batches(task, partial(sample_batch, size=batch), losses, augmentations=(random_crop,))


def structured_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """SJE: the largest of 1(y != y_n) + F(x_n, y) - F(x_n, y_n), which is never below 0: [N, L], [N] -> [N]."""
    return jnp.max(compatibility_violations(scores, labels), 1)


def weighted_rank(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """ALE: the sum of the violations of the margin times l_r / r, r their number and l_r = 1 + 1/2 + ... + 1/r."""
    hinges = compatibility_violations(scores, labels)
    rank = jnp.sum(hinges > 0, 1)
    harmonic = jnp.concatenate([jnp.zeros(1), jnp.cumsum(1 / jnp.arange(1, scores.shape[1] + 1))])
    return hinges.sum(1) * harmonic[rank] / jnp.maximum(rank, 1)


def compatibility_violations(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """By how much each class violates the margin, max(0, 1(y != y_n) + F(x_n, y) - F(x_n, y_n)): -> [N, L]."""
    margin = 1 - jax.nn.one_hot(labels, scores.shape[1])
    return jax.nn.relu(margin + scores - jnp.take_along_axis(scores, labels[:, None], 1))
