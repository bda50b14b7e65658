"""Prototypes: one point in embedding space that stands for a class.

Axis letters: N support examples, D dimensions, K prototypes per class; way is the number of classes.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from protojax.distances import pairwise, squared_euclidean


def prototypes(embeddings: ArrayLike, labels: ArrayLike, *, way: int) -> Array:
    """Mean embedding of each class (eq. 1): [N, D], [N] -> [way, D].

    Classes may have different numbers of examples; the prototype of a class without any is the origin.
    """
    sums = jax.ops.segment_sum(jnp.asarray(embeddings), jnp.asarray(labels), way)
    return sums / jnp.maximum(class_sizes(labels, way=way), 1)[:, None].astype(sums.dtype)


def class_sizes(labels: ArrayLike, *, way: int) -> Array:
    """Number of support examples of each class: [N] -> [way]."""
    labels = jnp.asarray(labels)
    return jax.ops.segment_sum(jnp.ones_like(labels), labels, way)


def linear_classifier(prototypes: Array) -> tuple[Array, Array]:
    """Weights 2c and biases -c.c (eq. 8), whose scores are -|z - c|^2 but for |z|^2: [way, D] -> [way, D], [way]."""
    return 2 * prototypes, -jnp.sum(jnp.square(prototypes), -1)


def several_prototypes(
    embeddings: ArrayLike, labels: ArrayLike, *, way: int, per_class: int, iterations: int = 10
) -> Array:
    """Several prototypes of each class, by k-means on its support points: [N, D], [N] -> [way, K, D].

    The clusters start at points far from each other and are settled after a few iterations, as a class has few points.
    A class with fewer than K distinct points has some of its prototypes twice.
    """

    points = jnp.asarray(embeddings)

    def one_class(label):
        members = labels == label
        return _k_means(points, members, _spread_points(points, members, per_class), iterations)

    return jax.vmap(one_class)(jnp.arange(way))


def _spread_points(points, members, count):
    """The member nearest to the members' mean, then each time the one farthest from those chosen: -> [count, D]."""
    mean = jnp.sum(points * members[:, None], 0) / jnp.maximum(members.sum(), 1)
    to_mean = pairwise(squared_euclidean)(points, mean[None])[:, 0]
    chosen = [points[jnp.argmin(jnp.where(members, to_mean, jnp.inf))]]
    for _ in range(count - 1):
        nearest = pairwise(squared_euclidean)(points, jnp.stack(chosen)).min(1)
        chosen.append(points[jnp.argmax(jnp.where(members, nearest, -jnp.inf))])
    return jnp.stack(chosen)


def _k_means(points, members, centers, iterations):
    """Lloyd's algorithm on the points marked as members; a centre that loses all its points stays: -> [K, D]."""
    count = centers.shape[0]

    def improve(_, centers):
        nearest = jnp.argmin(pairwise(squared_euclidean)(points, centers), 1)
        labels = jnp.where(members, nearest, count)  # everybody else goes to a segment that is dropped
        means = prototypes(points, labels, way=count + 1)[:count]
        taken = class_sizes(labels, way=count + 1)[:count] > 0
        return jnp.where(taken[:, None], means, centers)

    # The gradient reaches the embeddings through the last mean; which cluster a point belongs to has none.
    settled = lax.fori_loop(0, iterations, improve, lax.stop_gradient(centers))
    return improve(iterations, lax.stop_gradient(settled))
