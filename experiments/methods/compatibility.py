"""Zero-shot learning by a bilinear compatibility: ALE (Akata et al. 2013) and SJE (Akata et al. 2015).

The score of an image and a class is F(x, y) = x^T W a_y, with features x and attributes a_y of unit norm. Both methods
learn W by a hinge loss with margin 1 over all training classes, with one update per example: SJE from the worst class,
ALE from all classes that violate the margin, weighted by the rank of the true class.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.methods import batches, zero_shot
from experiments.methods.options import Config, Method
from protojax import Learner, Splits, few_shot_learner
from protojax.augmentation import random_crop
from protojax.distances import Parametric, no_params, unit_length
from protojax.encoders.linear import MIDDLE_CROP

Losses = Callable[[jax.Array, jax.Array], jax.Array]  # scores [N, classes], labels [N] -> [N]


class Compatibility(nn.Module):
    """x^T W for features x of unit norm, of the middle crop if there are several: [N, D] -> [N, attributes]."""

    attributes: int
    mean: Sequence[float] = (0.0,)  # mean of the features, which is subtracted before scaling
    attribute_mean: Sequence[float] = (0.0,)  # mean of the attributes, which is subtracted before scoring
    settings: ClassVar[tuple[str, ...]] = ('attributes', 'mean', 'attribute_mean')

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        x = x[:, MIDDLE_CROP] if x.ndim == 3 else x
        x = unit_length(x.astype(jnp.float32) - jnp.asarray(self.mean, jnp.float32)[None])
        return nn.Dense(self.attributes, use_bias=False)(x)


def learner(
    losses: Losses, item_shape: Sequence[int], attributes: int, *, batch: int = 1, **means: Sequence[float]
) -> Learner:
    """Build ALE or SJE, depending on `losses`, with `batch` examples per update; `means`: see Compatibility."""
    encoder = Compatibility(attributes, **means)
    center = jnp.asarray(encoder.attribute_mean, jnp.float32)[None]

    def classify(params, episode):
        return episode.query @ unit_length(episode.attributes - center).T

    classifier = Parametric(no_params, classify)
    tested = few_shot_learner(encoder, item_shape, way=2, shot=0, query=1, classify=classifier)
    draw = partial(batches.sample, size=batch)
    return batches.trained(tested._replace(zero_shot=True, in_batches=True), draw, losses, augmentations=(random_crop,))


def structured_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute SJE's loss, the largest of 1(y != y_n) + F(x_n, y) - F(x_n, y_n), at least 0: [N, L], [N] -> [N]."""
    return jnp.max(violations(scores, labels), 1)


def weighted_rank(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute ALE's loss, the sum of r violations of the margin times l_r / r, with l_r = 1 + 1/2 + ... + 1/r."""
    hinges = violations(scores, labels)
    rank = jnp.sum(hinges > 0, 1)
    harmonic = jnp.concatenate([jnp.zeros(1), jnp.cumsum(1 / jnp.arange(1, scores.shape[1] + 1))])
    return hinges.sum(1) * harmonic[rank] / jnp.maximum(rank, 1)


def violations(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the violation of the margin by each class, max(0, 1(y != y_n) + F(x_n, y) - F(x_n, y_n)): -> [N, L]."""
    margin = 1 - jax.nn.one_hot(labels, scores.shape[1])
    return jax.nn.relu(margin + scores - jnp.take_along_axis(scores, labels[:, None], 1))


def build(config: Config, data: Splits, encoder: None, *, losses: Losses) -> Learner:
    images, classes = zero_shot.scaling(data, center=config.method.center_inputs)
    means = {'mean': images['mean'], 'attribute_mean': classes['mean']}
    return learner(losses, *zero_shot.shapes(data), batch=config.episodes.query, **means)


class Ale(zero_shot.Centered):
    """ALE: a bilinear score, learned from all classes"""


class Sje(zero_shot.Centered):
    """SJE: a bilinear score, learned from the highest-scoring wrong class"""


DEFAULTS = {'optimizer': 'sgd', 'query': 1, 'learning_rate': 0.3, 'weight_decay': 0.0, 'episodes': 30_000}
ALE = Method(partial(build, losses=weighted_rank), Ale, {**DEFAULTS, 'learning_rate': 0.1})
SJE = Method(partial(build, losses=structured_hinge), Sje, DEFAULTS)
