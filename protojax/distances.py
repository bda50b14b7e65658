"""Distances between embeddings, each written for one pair and mapped to all pairs by `pairwise`.

The paper's argument is about Bregman divergences: for each of them, the mean of a set of points is the point with the
smallest summed divergence from the set, so the class mean is the best prototype (section 2.3). Squared Euclidean and
Mahalanobis distances are Bregman divergences; cosine and Euclidean distance are not.

A custom distance is any function `distance(a, b)`: [D], [D] -> []. If it has parameters to be learned with the encoder,
it is a `Parametric`. A faster form for all pairs, such as the matrix product of squared distances, is stored in the
function's attribute `all_pairs`: [M, D], [N, D] -> [M, N].

Axis letters: M and N points, D dimensions.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Distance = Callable[[Array, Array], Array]  # [D], [D] -> []


class Parametric(NamedTuple):
    """A distance or a classifier with learned parameters.

    `apply(params)` returns a distance; `apply(params, episode)` of a classifier returns logits [Q, way].
    """

    init: Callable[[Array, int], Any]  # key, number of dimensions -> params
    apply: Callable[..., Any]


def no_params(key: Array, dimensions: int) -> dict:
    """Return no parameters: the `init` of a `Parametric` without any."""
    return {}


def squared_euclidean(a: Array, b: Array) -> Array:
    """Compute the sum of squared differences, the paper's main choice: [D], [D] -> []."""
    return jnp.sum(jnp.square(a - b))


def euclidean(a: Array, b: Array) -> Array:
    """Compute the Euclidean distance (not a Bregman divergence), with a finite gradient at zero: [D], [D] -> []."""
    return _root(squared_euclidean(a, b))


def cosine(a: Array, b: Array) -> Array:
    """Compute one minus the cosine of the angle; a zero vector has distance 1 to every vector: [D], [D] -> []."""
    return 1 - _dot(unit_length(a), unit_length(b))


def bregman(phi: Callable[[Array], Array]) -> Distance:
    """Return the Bregman divergence of a differentiable, strictly convex phi: [D] -> [].

    d(a, b) = phi(a) - phi(b) - (a - b) . grad phi(b)
    """

    def divergence(a, b):
        value, slope = jax.value_and_grad(phi)(b)
        return phi(a) - value - _dot(a - b, slope)

    return divergence


def mahalanobis(precision: Array) -> Distance:
    """Return the distance (a - b) . P (a - b) for a symmetric positive definite P [D, D].

    It is the Bregman divergence of z . P z.
    """

    def distance(a, b):
        return _dot(a - b, _dot(precision, a - b))

    distance.all_pairs = functools.partial(_by_matrix_product, precision=precision)  # type: ignore[attr-defined]
    return distance


def learned_mahalanobis() -> Parametric:
    """Return a Mahalanobis distance with a learned matrix P = F F^T, initially the squared Euclidean distance."""

    def init(key, dimensions):
        return {'factor': jnp.eye(dimensions)}

    return Parametric(init, lambda params: mahalanobis(params['factor'] @ params['factor'].T))


def bind(distance: Distance | Parametric, params: Any) -> Distance:
    """Fill in the parameters of a distance, if it has any."""
    return distance.apply(params) if isinstance(distance, Parametric) else distance


def pairwise(distance: Distance) -> Callable[[Array, Array], Array]:
    """Return a function that computes all distances between two sets of points: [M, D], [N, D] -> [M, N]."""
    # functools.wraps copies the attribute to a wrapper, which may compute another distance.
    faster = None if hasattr(distance, '__wrapped__') else getattr(distance, 'all_pairs', None)
    return faster or jax.vmap(jax.vmap(distance, (None, 0)), (0, None))


def _by_matrix_product(a, b, precision=None):
    """Compute (a - b) . P (a - b) as a.Pa - 2 a.Pb + b.Pb, by default with P = I: [M, D], [N, D] -> [M, N].

    Centring the points first avoids cancellation far from the origin.
    """
    center = lax.stop_gradient(jnp.mean(b, 0, keepdims=True))
    a, b = a - center, b - center
    mapped_a, mapped_b = (a, b) if precision is None else (_dot(a, precision), _dot(b, precision))
    return jnp.sum(a * mapped_a, 1)[:, None] - 2 * _dot(mapped_a, b.T) + jnp.sum(b * mapped_b, 1)[None]


def _root(squares):
    return jnp.sqrt(jnp.maximum(squares, 1e-12))


squared_euclidean.all_pairs = _by_matrix_product  # type: ignore[attr-defined]
euclidean.all_pairs = lambda a, b: _root(_by_matrix_product(a, b))  # type: ignore[attr-defined]


def unit_length(vectors: Array) -> Array:
    """Scale vectors to unit norm; zero stays zero and has a finite gradient: [..., D] -> [..., D]."""
    return vectors * lax.rsqrt(jnp.maximum(jnp.sum(vectors * vectors, -1, keepdims=True), 1e-12))


def _dot(a, b):
    """Multiply vectors or matrices in full precision, even if matrix units would round to bfloat16."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)
