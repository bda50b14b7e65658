"""Sample clustering (Liao et al. 2016, "Learning deep parsimonious representations") for zero-shot learning.

A layer on the features learns to classify the training classes, with a second loss term that pulls each representation
towards the nearest of K centres. The centres are running averages of the nearest representations, assigned again in
each step. SJE maps this representation to the attributes. The authors train one after the other; here both learn at
once, but no gradient of SJE reaches the representation.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from optax import softmax_cross_entropy_with_integer_labels as cross_entropy

from experiments.methods import batches, zero_shot
from experiments.methods.compatibility import structured_hinge
from experiments.methods.options import Config, Method
from protojax import Learner, Splits, classifiers, few_shot_learner
from protojax.augmentation import random_crop
from protojax.distances import Parametric, pairwise, squared_euclidean, unit_length
from protojax.encoders.linear import MIDDLE_CROP


class Options(zero_shot.Scaled):
    """SJE on a clustered representation"""


def build(config: Config, data: Splits, encoder: None) -> Learner:
    options, batch = config.method, config.episodes.way * config.episodes.query
    images, classes = zero_shot.scaling(data, center=options.center_inputs, scale=options.scale_inputs)
    fields = {'dimensions': options.dimensions, 'attribute_mean': classes['mean'], **images}
    return learner(*zero_shot.shapes(data), batches.classes(data), batch=batch, **fields)


METHOD = Method(build, Options, {'learning_rate': 1e-3, 'episodes': 1000})


class Clustered(nn.Module):
    """Linear layer with ReLU, and running centres of its outputs: [N, D] or [N, crops, D] -> [N, dimensions]."""

    dimensions: int
    clusters: int = 100
    mean: Sequence[float] = (0.0,)  # mean of the features, which is subtracted
    scale: float = 1.0  # divides the centred features
    attribute_mean: Sequence[float] = (0.0,)  # mean of the attributes, which is subtracted before scoring
    momentum: float = 0.9  # weight of the centres' old values
    settings: ClassVar[tuple[str, ...]] = ('dimensions', 'clusters', 'mean', 'scale', 'attribute_mean')

    @nn.compact
    def __call__(self, x, *, train=False, axis_name=None):
        x = x[:, MIDDLE_CROP] if x.ndim == 3 else x
        x = (x.astype(jnp.float32) - jnp.asarray(self.mean, jnp.float32)[None]) / self.scale
        z = nn.relu(nn.Dense(self.dimensions, kernel_init=nn.initializers.he_normal())(x))
        shape = (self.clusters, self.dimensions)
        centers = self.variable('batch_stats', 'centers', lambda: jax.random.uniform(self.make_rng('params'), shape))
        if train and not self.is_initializing():
            centers.value = moved_centers(lax.stop_gradient(z), centers.value, self.momentum, axis_name)
        return z


def moved_centers(z: jax.Array, centers: jax.Array, momentum: float, axis_name: str | None = None) -> jax.Array:
    """Move each centre towards the mean of its nearest points, if it has any: -> [K, D]."""
    if axis_name is not None:
        z = lax.all_gather(z, axis_name, tiled=True)
    nearest = jnp.argmin(pairwise(squared_euclidean)(z, centers), 1)
    means = classifiers.prototypes(z, nearest, way=len(centers))
    taken = classifiers.counts(nearest, way=len(centers))[:, None] > 0
    return jnp.where(taken, momentum * centers + (1 - momentum) * means, centers)


def learner(
    item_shape: Sequence[int], attributes: int, classes: int, *, batch: int, weight: float = 1e-3, **fields: Any
) -> Learner:
    """Build a learner from mini-batches; `classes`: maximum number of training classes; `fields` of Clustered."""
    encoder = Clustered(**fields)
    center = jnp.asarray(encoder.attribute_mean, jnp.float32)[None]

    def init_classifier(key, size):
        keys, start = jax.random.split(key), nn.initializers.lecun_normal()
        return {'head': start(keys[0], (size, classes)), 'to_attributes': start(keys[1], (size, attributes))}

    def scores(params, episode):
        return unit_length(episode.query) @ params['to_attributes'] @ unit_length(episode.attributes - center).T

    tested = few_shot_learner(encoder, item_shape, way=2, shot=0, query=1, classify=Parametric(init_classifier, scores))

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = batches.sample(key, dataset, size=batch)
        labels = episode.query_labels
        items = random_crop(jax.random.fold_in(key, 1), episode.query, labels, way=episode.way)
        z, batch_stats = batches.embed(encoder, params['encoder'], batch_stats, items, axis_name)
        logits = (z @ params['classifier']['head'])[:, : episode.way]
        to_center = pairwise(squared_euclidean)(z, batch_stats['centers']).min(1)
        compatible = tested.classify(params, batch_stats, episode._replace(query=lax.stop_gradient(z)))
        terms = cross_entropy(logits, labels) + weight * to_center + structured_hinge(compatible, labels)
        accuracy = classifiers.accuracies(compatible, labels).mean()
        return terms.mean(), (batch_stats, {'loss': terms.mean(), 'accuracy': accuracy})

    return tested._replace(loss=loss, zero_shot=True, in_batches=True)
