"""Few-shot classifiers on embeddings: prototypical and matching networks, their loss and accuracy.

`prototypical`, `matching` and `gaussian_classifier` are functions of the embedded queries, the embedded support set and
its labels and give log probabilities up to a constant per query: [Q, D], [N, D], [N] -> [Q, way].

Training and evaluation know one kind of classifier, a function `classify(params, episode) -> logits [Q, way]` of an
embedded `Episode`. `by_prototypes`, `by_matching` and `by_gaussians` make one of the functions above. A classifier of
your own is any such function, or a `Learned` value where it has parameters.

Axis letters: N support examples, Q queries, D dimensions, K prototypes per class; way is the number of classes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from protojax import prototypes as _prototypes
from protojax.distances import Distance, Learned, bind_distance, pairwise, squared_euclidean
from protojax.episodes import Episode

Classifier = Callable[[Any, Episode], Array]  # params, embedded episode -> logits [Q, way]


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
    """Minus the distance to each class's prototype (eq. 2): [Q, D], [N, D], [N] -> [Q, way].

    With several prototypes per class a class is an equally weighted mixture of them. `priors` [way] are the mixture
    weights of the classes (section 2.3), equal unless given. A class without support examples is never predicted.
    """
    queries, support, labels = _classifier_inputs(queries, support, labels, way)
    if per_class == 1:
        logits = -pairwise(distance)(queries, _prototypes.prototypes(support, labels, way=way)) / temperature
    else:
        centers = _prototypes.several_prototypes(support, labels, way=way, per_class=per_class)
        to_centers = jax.vmap(pairwise(distance), (None, 0), 1)(queries, centers)  # [Q, way, K]
        logits = jax.nn.logsumexp(-to_centers / temperature, axis=-1)
    if priors is not None:
        logits = logits + jnp.log(jnp.asarray(priors))[None]
    return _without_empty_classes(logits, labels)


def matching(
    queries: ArrayLike,
    support: ArrayLike,
    labels: ArrayLike,
    *,
    way: int,
    distance: Distance = squared_euclidean,
    temperature: float = 1.0,
) -> Array:
    """Log of the attention on each class's support points (matching networks): [Q, D], [N, D], [N] -> [Q, way].

    The attention is a softmax over single support points of minus the distance. With one point per class this is the
    prototypical network.
    """
    queries, support, labels = _classifier_inputs(queries, support, labels, way)
    attention = jax.nn.log_softmax(-pairwise(distance)(queries, support) / temperature)  # [Q, N]
    belongs = labels[None, :] == jnp.arange(way)[:, None]  # [way, N]
    per_class = jnp.where(belongs[None], attention[:, None, :], -jnp.inf)
    # An empty class would be a logsumexp of nothing, whose gradient is not a number: it keeps its place with a zero.
    occupied = belongs.any(1)[None, :, None]
    return _without_empty_classes(jax.nn.logsumexp(jnp.where(occupied, per_class, 0), axis=-1), labels)


def gaussian_classifier(
    queries: ArrayLike, support: ArrayLike, labels: ArrayLike, variance: ArrayLike, *, way: int, prior: float = 5.0
) -> Array:
    """Log-likelihood under a Gaussian per class with its own variance per dimension: -> [Q, way].

    The variance of a class is estimated from its support points and drawn towards the shared `variance` [D], which
    counts as much as `prior` points. This is our reading of one sentence of the paper's section 5, on "a variance per
    dimension for each class".
    """
    queries, support, labels = _classifier_inputs(queries, support, labels, way)
    means = _prototypes.prototypes(support, labels, way=way)
    spread = jax.ops.segment_sum(jnp.square(support - means[labels]), labels, way)
    count = _prototypes.class_sizes(labels, way=way)[:, None]
    variances = (spread + prior * variance[None]) / (count + prior)

    def log_likelihood(z, mean, var):
        return -0.5 * (jnp.sum(jnp.square(z - mean) / var) + jnp.sum(jnp.log(var)))

    scores = jax.vmap(jax.vmap(log_likelihood, (None, 0, 0)), (0, None, None))(queries, means, variances)
    return _without_empty_classes(scores, labels)


def by_prototypes(distance: Distance | Learned = squared_euclidean, **options) -> Learned:
    """The prototypical network as a classifier of episodes; options are those of `prototypical`."""
    return _classifier_by_distance(prototypical, distance, options)


def by_matching(distance: Distance | Learned = squared_euclidean, **options) -> Learned:
    """The matching network as a classifier of episodes; options are those of `matching`."""
    return _classifier_by_distance(matching, distance, options)


def by_gaussians(*, temperature: float = 1.0, **options) -> Learned:
    """A classifier of episodes whose shared variance is learned; options are those of `gaussian_classifier`."""

    def initialize_variance(key, dimensions):
        # The softplus of this is 1/2, the variance at which the log-likelihood is minus the squared distance.
        return {'variance': jnp.full((dimensions,), jnp.log(jnp.expm1(0.5)))}

    def classify(params, episode):
        variance = jax.nn.softplus(params['variance'])
        points = episode.query, episode.support, episode.support_labels
        return gaussian_classifier(*points, variance, way=episode.way, **options) / temperature

    return Learned(initialize_variance, classify)


def as_learned_classifier(classify: Classifier | Learned) -> Learned:
    """A classifier without parameters as one with an empty set of them."""
    return classify if isinstance(classify, Learned) else Learned(lambda key, dimensions: {}, classify)


def losses(logits: Array, labels: ArrayLike) -> Array:
    """Negative log probability of the true class, J of section 2.2, one value per query: [Q, way], [Q] -> [Q]."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.asarray(labels)[:, None], 1)[:, 0]


def accuracies(logits: Array, labels: ArrayLike) -> Array:
    """One where the true class has the highest score, else zero: [Q, way], [Q] -> [Q]."""
    return (jnp.argmax(logits, -1) == jnp.asarray(labels)).astype(logits.dtype)


def _classifier_by_distance(logits, distance, options):
    def classify(params, episode):
        points = episode.query, episode.support, episode.support_labels
        return logits(*points, way=episode.way, distance=bind_distance(distance, params), **options)

    return Learned(distance.initialize if isinstance(distance, Learned) else lambda key, dimensions: {}, classify)


def _classifier_inputs(queries, support, labels, way):
    """The arguments as arrays, after a look at their shapes and, outside traced code, at the labels' values."""
    queries, support = jnp.asarray(queries), jnp.asarray(support)
    values = None if isinstance(labels, jax.core.Tracer) else np.asarray(labels)
    labels = jnp.asarray(labels)
    if queries.ndim != 2 or support.ndim != 2 or queries.shape[1] != support.shape[1]:
        raise ValueError(f'queries {queries.shape} and support {support.shape} must be [Q, D] and [N, D]')
    if labels.shape != support.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f'labels {labels.dtype}{labels.shape} must be {len(support)} whole numbers, one per support row'
        )
    if values is not None and values.size and not (values.min() >= 0 and values.max() < way):
        raise ValueError(f'labels from {values.min()} to {values.max()}, but way={way}: they must be in 0 .. {way - 1}')
    return queries, support, labels


def _without_empty_classes(logits, labels):
    """Scores with the least finite number for classes that no label names: [Q, way], [N] -> [Q, way]."""
    occupied = _prototypes.class_sizes(labels, way=logits.shape[-1]) > 0
    return jnp.where(occupied[None], logits, jnp.finfo(logits.dtype).min)
