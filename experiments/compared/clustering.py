"""Sample clustering (Liao et al. 2016, "Learning deep parsimonious representations") for zero-shot learning.

A layer on the features learns to classify the training classes, with a second term that draws each representation to
the nearest of K centres. The centres are running averages of the representations that are nearest to them, assigned
anew in every step. From this representation to the attributes leads SJE. The authors train one after the other; here
both learn at once, but no gradient of SJE reaches the representation.
"""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from experiments.compared.batches import encode_batch, sample_batch
from experiments.compared.compatibility import structured_hinge
from protojax import classifiers
from protojax.augmentation import random_crop
from protojax.distances import Learned, pairwise, squared_euclidean, unit_length
from protojax.encoders.linear import MIDDLE_CROP
from protojax.prototypes import class_sizes, prototypes
from protojax.tasks import Task, few_shot_task


class Clustered(nn.Module):
    """A linear layer with ReLU whose outputs have running centres: [N, D] or [N, crops, D] -> [N, dimensions]."""

    dimensions: int
    clusters: int
    mean: Sequence[float] = (0.0,)  # of the features, taken away
    scale: float = 1.0  # of what is left, divided by
    attribute_mean: Sequence[float] = (0.0,)  # of the attributes, taken away before scores are computed
    momentum: float = 0.9  # of the centres' old values
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
    """Centres moved towards the mean of the points that are nearest to them; one without points stays: -> [K, D]."""
    if axis_name is not None:
        z = lax.all_gather(z, axis_name, tiled=True)
    nearest = jnp.argmin(pairwise(squared_euclidean)(z, centers), 1)
    means = prototypes(z, nearest, way=len(centers))
    taken = class_sizes(nearest, way=len(centers))[:, None] > 0
    return jnp.where(taken, momentum * centers + (1 - momentum) * means, centers)


def clustering_task(
    item_shape: Sequence[int],
    attributes: int,
    classes: int,
    *,
    batch: int,
    dimensions: int,
    clusters: int = 100,
    weight: float = 1e-3,
    **scaling,
) -> Task:
    """Learning from batches of that size; `classes` is how many a training set may have at most."""
    encoder = Clustered(dimensions, clusters, **scaling)
    center = jnp.asarray(encoder.attribute_mean, jnp.float32)[None]

    def init_classifier(key, size):
        keys, start = jax.random.split(key), nn.initializers.lecun_normal()
        return {'head': start(keys[0], (size, classes)), 'to_attributes': start(keys[1], (size, attributes))}

    def scores(params, episode):
        return unit_length(episode.query) @ params['to_attributes'] @ unit_length(episode.attributes - center).T

    task = few_shot_task(encoder, item_shape, way=2, shot=0, query=1, classify=Learned(init_classifier, scores))

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = sample_batch(key, dataset, size=batch)
        labels = episode.query_labels
        items = random_crop(jax.random.fold_in(key, 1), episode.query, labels, way=episode.way)
        z, batch_stats = encode_batch(encoder, params['encoder'], batch_stats, items, axis_name)
        logits = (z @ params['classifier']['head'])[:, : episode.way]
        to_center = pairwise(squared_euclidean)(z, batch_stats['centers']).min(1)
        compatible = task.classify(params, episode._replace(query=lax.stop_gradient(z)))
        terms = classifiers.losses(logits, labels) + weight * to_center + structured_hinge(compatible, labels)
        accuracy = classifiers.accuracies(compatible, labels).mean()
        return terms.mean(), (batch_stats, {'loss': terms.mean(), 'accuracy': accuracy})

    return task._replace(loss=loss)
