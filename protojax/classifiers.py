"""Few-shot classifiers on embeddings: prototypical and matching networks, their loss and accuracy.

Every classifier is a function of the embedded queries, the embedded support set and its labels, and gives log
probabilities up to a constant per query: [Q, D], [N, D], [N] -> [Q, way].

Axis letters: N support examples, Q queries, D dimensions, K prototypes per class; way is the number of classes.
"""

import jax
import jax.numpy as jnp

from protojax import prototypes as _prototypes
from protojax.distances import pairwise, squared_euclidean


def prototypical(queries, support, labels, *, way, distance=squared_euclidean, per_class=1):
    """Minus the distance to each class's prototype (eq. 2): [Q, D], [N, D], [N] -> [Q, way].

    With several prototypes per class a class is an equally weighted mixture of them. A class without support examples
    is never predicted.
    """
    if per_class == 1:
        logits = -pairwise(distance)(queries, _prototypes.prototypes(support, labels, way=way))
    else:
        centers = _prototypes.clustered_prototypes(support, labels, way=way, per_class=per_class)
        to_centers = jax.vmap(pairwise(distance), (None, 0), 1)(queries, centers)  # [Q, way, K]
        logits = jax.nn.logsumexp(-to_centers, axis=-1)
    return _without_empty_classes(logits, labels)


def matching(queries, support, labels, *, way, distance=squared_euclidean):
    """Log of the attention on each class's support points (matching networks): [Q, D], [N, D], [N] -> [Q, way].

    The attention is a softmax over single support points of minus the distance. With one point per class this is the
    prototypical network.
    """
    attention = jax.nn.log_softmax(-pairwise(distance)(queries, support))  # [Q, N]
    belongs = labels[None, :] == jnp.arange(way)[:, None]  # [way, N]
    per_class = jnp.where(belongs[None], attention[:, None, :], -jnp.inf)
    # An empty class would be a logsumexp of nothing, whose gradient is not a number: it keeps its place with a zero.
    occupied = belongs.any(1)[None, :, None]
    return _without_empty_classes(jax.nn.logsumexp(jnp.where(occupied, per_class, 0), axis=-1), labels)


def diagonal(queries, support, labels, variance, *, way, prior=5.0):
    """Log-likelihood under a Gaussian per class with its own variance per dimension: -> [Q, way].

    The variance of a class is estimated from its support points and drawn towards the shared `variance` [D], which
    counts as much as `prior` points and can be learned.
    """
    means = _prototypes.prototypes(support, labels, way=way)
    spread = jax.ops.segment_sum(jnp.square(support - means[labels]), labels, way)
    count = _prototypes.class_sizes(labels, way=way)[:, None]
    variances = (spread + prior * variance[None]) / (count + prior)

    def log_likelihood(z, mean, var):
        return -0.5 * (jnp.sum(jnp.square(z - mean) / var) + jnp.sum(jnp.log(var)))

    scores = jax.vmap(jax.vmap(log_likelihood, (None, 0, 0)), (0, None, None))(queries, means, variances)
    return _without_empty_classes(scores, labels)


def losses(logits, labels):
    """Negative log probability of the true class, one value per query (eq. 3): [Q, way], [Q] -> [Q]."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]


def accuracies(logits, labels):
    """One where the true class has the highest score, else zero: [Q, way], [Q] -> [Q]."""
    return (jnp.argmax(logits, -1) == labels).astype(logits.dtype)


def _without_empty_classes(logits, labels):
    """Scores with the least finite number for classes that no label names: [Q, way], [N] -> [Q, way]."""
    occupied = _prototypes.class_sizes(labels, way=logits.shape[-1]) > 0
    return jnp.where(occupied[None], logits, jnp.finfo(logits.dtype).min)
