"""Few-shot classifiers on embeddings: prototypes (eq. 1) and the logits of prototypical and matching networks.

`prototypical`, `matching` and `gaussian` are functions of embedded queries, the embedded support set and its labels;
they return log probabilities up to a constant per query: [Q, D], [N, D], [N] -> [Q, way].

Training and evaluation classify embedded episodes. `by_distance` turns one of these functions, or a custom one with the
same arguments, into such a classifier: a `Parametric`, whose `apply(params, episode)` returns logits [Q, way].

Axis letters: N support examples, Q queries, D dimensions, K prototypes per class; way is the number of classes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from protojax.distances import Distance, Parametric, bind, no_params, pairwise, squared_euclidean
from protojax.episodes import Episode

Logits = Callable[..., Array]  # queries [Q, D], support [N, D], labels [N], *, way -> [Q, way]


def prototypes(embeddings: ArrayLike, labels: ArrayLike, *, way: int) -> Array:
    """Compute the mean embedding of each class (eq. 1): [N, D], [N] -> [way, D].

    Classes may have different numbers of examples; the prototype of an empty class is the origin.
    """
    sums = jax.ops.segment_sum(jnp.asarray(embeddings), jnp.asarray(labels), way)
    return sums / jnp.maximum(counts(labels, way=way), 1)[:, None].astype(sums.dtype)


def counts(labels: ArrayLike, *, way: int) -> Array:
    """Count the examples of each class: [N] -> [way]."""
    labels = jnp.asarray(labels)
    return jax.ops.segment_sum(jnp.ones_like(labels), labels, way)


def linear_classifier(prototypes: Array) -> tuple[Array, Array]:
    """Return weights 2c and biases -c.c (eq. 8): [way, D] -> [way, D], [way].

    The linear scores differ from -|z - c|^2 only by |z|^2, which is the same for all classes.
    """
    return 2 * prototypes, -jnp.sum(jnp.square(prototypes), -1)


def prototypical(
    queries: ArrayLike,
    support: ArrayLike,
    labels: ArrayLike,
    *,
    way: int,
    distance: Distance = squared_euclidean,
    temperature: float = 1.0,
    per_class: int = 1,
    priors: ArrayLike | None = None,
) -> Array:
    """Compute the negative distances to the prototypes (eq. 2): [Q, D], [N, D], [N] -> [Q, way].

    With `per_class` > 1, a class is an equally weighted mixture of its prototypes. `priors` [way] are the mixture
    weights of the classes (section 2.3), equal by default. An empty class is never predicted.
    """
    queries, support, labels = _checked(queries, support, labels, way)
    if per_class == 1:
        logits = -pairwise(distance)(queries, prototypes(support, labels, way=way)) / temperature
    else:
        centers = several_prototypes(support, labels, way=way, per_class=per_class)
        to_centers = jax.vmap(pairwise(distance), (None, 0), 1)(queries, centers)  # [Q, way, K]
        logits = jax.nn.logsumexp(-to_centers / temperature, axis=-1)
    if priors is not None:
        logits = logits + jnp.log(jnp.asarray(priors))[None]
    return _mask_empty(logits, labels)


def matching(
    queries: ArrayLike,
    support: ArrayLike,
    labels: ArrayLike,
    *,
    way: int,
    distance: Distance = squared_euclidean,
    temperature: float = 1.0,
) -> Array:
    """Compute the log attention on the support points of each class: [Q, D], [N, D], [N] -> [Q, way].

    These are matching networks: the attention is a softmax over support points of the negative distance. With one
    point per class, they are prototypical networks.
    """
    queries, support, labels = _checked(queries, support, labels, way)
    attention = jax.nn.log_softmax(-pairwise(distance)(queries, support) / temperature)  # [Q, N]
    belongs = labels[None, :] == jnp.arange(way)[:, None]  # [way, N]
    per_class = jnp.where(belongs[None], attention[:, None, :], -jnp.inf)
    # The logsumexp of an empty class would have a NaN gradient, so its row is replaced by zeros.
    occupied = belongs.any(1)[None, :, None]
    return _mask_empty(jax.nn.logsumexp(jnp.where(occupied, per_class, 0), axis=-1), labels)


def gaussian(
    queries: ArrayLike, support: ArrayLike, labels: ArrayLike, variance: Array, *, way: int, prior: float = 5.0
) -> Array:
    """Compute the log-likelihood under one Gaussian per class with a variance per dimension: -> [Q, way].

    The variance of a class is estimated from its support points and shrunk towards the shared `variance` [D], which has
    the weight of `prior` points. This is our interpretation of "a variance per dimension for each class" (section 5).
    """
    queries, support, labels = _checked(queries, support, labels, way)
    means = prototypes(support, labels, way=way)
    spread = jax.ops.segment_sum(jnp.square(support - means[labels]), labels, way)
    variances = (spread + prior * variance[None]) / (counts(labels, way=way)[:, None] + prior)

    def log_likelihood(z, mean, var):
        return -0.5 * (jnp.sum(jnp.square(z - mean) / var) + jnp.sum(jnp.log(var)))

    scores = jax.vmap(jax.vmap(log_likelihood, (None, 0, 0)), (0, None, None))(queries, means, variances)
    return _mask_empty(scores, labels)


def by_distance(logits: Logits = prototypical, distance: Distance | Parametric | None = None, **options) -> Parametric:
    """Make a classifier of episodes from `logits`, such as `prototypical` or `matching`.

    Args:
        logits: Function of queries, support and labels; called with `way`, `options` and, if given, `distance`.
        distance: Distance; its parameters, if any, become parameters of the classifier. None: the default of `logits`.
        **options: Further keyword arguments of `logits`.
    """

    def classify(params: Any, episode: Episode) -> Array:
        bound = {} if distance is None else {'distance': bind(distance, params)}
        return logits(episode.query, episode.support, episode.support_labels, way=episode.way, **bound, **options)

    return Parametric(distance.init if isinstance(distance, Parametric) else no_params, classify)


def by_gaussians(*, temperature: float = 1.0, **options) -> Parametric:
    """Make a classifier of episodes with a learned shared variance; `options` are arguments of `gaussian`."""

    def init(key, dimensions):
        # its softplus is 1/2, the variance at which the log-likelihood is the negative squared distance
        return {'variance': jnp.full((dimensions,), jnp.log(jnp.expm1(0.5)))}

    def classify(params, episode):
        points = episode.query, episode.support, episode.support_labels
        return gaussian(*points, jax.nn.softplus(params['variance']), way=episode.way, **options) / temperature

    return Parametric(init, classify)


def accuracies(logits: Array, labels: ArrayLike) -> Array:
    """Return 1 if the true class has the highest score, else 0: [Q, way], [Q] -> [Q]."""
    return (jnp.argmax(logits, -1) == jnp.asarray(labels)).astype(logits.dtype)


def several_prototypes(
    embeddings: ArrayLike, labels: ArrayLike, *, way: int, per_class: int, iterations: int = 10
) -> Array:
    """Compute cluster centres of each class by k-means on its support points: [N, D], [N] -> [way, K, D].

    Initial centres are far apart, so few iterations suffice for the few points of a class. If a class has fewer than
    `per_class` distinct points, some of its prototypes are equal.
    """
    points = jnp.asarray(embeddings)

    def one_class(label):
        members = labels == label
        return _k_means(points, members, _farthest_points(points, members, per_class), iterations)

    return jax.vmap(one_class)(jnp.arange(way))


def _farthest_points(points, members, count):
    """Choose the member nearest to the mean, then repeatedly the one farthest from all chosen: -> [count, D]."""
    mean = jnp.sum(points * members[:, None], 0) / jnp.maximum(members.sum(), 1)
    to_mean = pairwise(squared_euclidean)(points, mean[None])[:, 0]
    chosen = [points[jnp.argmin(jnp.where(members, to_mean, jnp.inf))]]
    for _ in range(count - 1):
        nearest = pairwise(squared_euclidean)(points, jnp.stack(chosen)).min(1)
        chosen.append(points[jnp.argmax(jnp.where(members, nearest, -jnp.inf))])
    return jnp.stack(chosen)


def _k_means(points, members, centers, iterations):
    """Run Lloyd's algorithm on the points marked as members; a centre without points does not move: -> [K, D]."""
    count = centers.shape[0]

    def improve(_, centers):
        nearest = jnp.argmin(pairwise(squared_euclidean)(points, centers), 1)
        labels = jnp.where(members, nearest, count)  # other points go to an extra segment, which is dropped
        means = prototypes(points, labels, way=count + 1)[:count]
        occupied = counts(labels, way=count + 1)[:count] > 0
        return jnp.where(occupied[:, None], means, centers)

    # Gradients flow through the last mean; the assignment to clusters has none.
    settled = lax.fori_loop(0, iterations, improve, lax.stop_gradient(centers))
    return improve(iterations, lax.stop_gradient(settled))


def _checked(queries: ArrayLike, support: ArrayLike, labels: ArrayLike, way: int) -> tuple[Array, Array, Array]:
    """Return the arguments as arrays, after checks of their shapes and, outside jit, of the labels."""
    queries, support = jnp.asarray(queries), jnp.asarray(support)
    values = None if isinstance(labels, jax.core.Tracer) else np.asarray(labels)
    labels = jnp.asarray(labels)
    if queries.ndim != 2 or support.ndim != 2 or queries.shape[1] != support.shape[1]:
        raise ValueError(f'expected queries [Q, D] and support [N, D], got {queries.shape} and {support.shape}')
    if labels.shape != support.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f'expected integer labels [{len(support)}] of the support, got {labels.dtype}{labels.shape}')
    if values is not None and values.size and not (values.min() >= 0 and values.max() < way):
        raise ValueError(f'expected labels in 0..{way - 1} for way={way}, got {values.min()}..{values.max()}')
    return queries, support, labels


def _mask_empty(logits, labels):
    """Set the logits to the lowest finite number for classes without examples: [Q, way], [N] -> [Q, way]."""
    occupied = counts(labels, way=logits.shape[-1]) > 0
    return jnp.where(occupied[None], logits, jnp.finfo(logits.dtype).min)
