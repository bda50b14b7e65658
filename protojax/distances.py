"""Distances between embeddings, each written for one pair and mapped to all pairs by `pairwise`.

The paper's argument rests on Bregman divergences: for every one of them the mean of a set of points is the point with
the least summed divergence from them, which is what makes a class mean a good prototype (section 2.3). Squared
Euclidean and Mahalanobis distances are instances; cosine and the Euclidean distance without its square are not.

A distance of your own is any function `distance(a, b)`: [D], [D] -> []. One with parameters that are learned together
with the encoder is a `Learned` value. Where there is a faster way to all pairs than one after the other, as the matrix
product of squared distances, it is the distance's attribute `all_pairs`: [M, D], [N, D] -> [M, N].

Axis letters: M and N points, D dimensions.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Distance = Callable[[Array, Array], Array]  # [D], [D] -> []


class Learned(NamedTuple):
    """A distance, or a classifier, with parameters of its own."""

    initialize: Callable[[Array, int], Any]  # key, number of dimensions -> params
    apply: Callable[..., Array]  # params, then the arguments of a distance or classifier without parameters


def squared_euclidean(a: Array, b: Array) -> Array:
    """Sum of squared differences, the paper's main choice: [D], [D] -> []."""
    return jnp.sum(jnp.square(a - b))


def euclidean(a: Array, b: Array) -> Array:
    """The square root of that, which is no Bregman divergence, with a finite gradient at zero: [D], [D] -> []."""
    return _root(squared_euclidean(a, b))


def cosine(a: Array, b: Array) -> Array:
    """One minus the cosine of the angle; a zero vector is at distance 1 from everything: [D], [D] -> []."""
    return 1 - _dot(unit_length(a), unit_length(b))


def bregman(phi: Callable[[Array], Array]) -> Distance:
    """Divergence of a differentiable, strictly convex phi: [D] -> [], as a function [D], [D] -> [].

    d(a, b) = phi(a) - phi(b) - (a - b) . grad phi(b)
    """

    def divergence(a, b):
        value, slope = jax.value_and_grad(phi)(b)
        return phi(a) - value - _dot(a - b, slope)

    return divergence


def mahalanobis(precision: Array) -> Distance:
    """(a - b) . P (a - b) for a symmetric positive definite P [D, D]: the Bregman divergence of z . P z."""

    def distance(a, b):
        return _dot(a - b, _dot(precision, a - b))

    distance.all_pairs = functools.partial(_by_matrix_product, precision=precision)
    return distance


def learned_mahalanobis() -> Learned:
    """A Mahalanobis distance whose matrix P = F F^T is learned; at the start it is the squared Euclidean distance."""

    def learned(params):
        return mahalanobis(params['factor'] @ params['factor'].T)

    def distance(params, a, b):
        return learned(params)(a, b)

    distance.all_pairs = lambda params, a, b: learned(params).all_pairs(a, b)
    return Learned(lambda key, dimensions: {'factor': jnp.eye(dimensions)}, distance)


def bind_distance(distance: Distance | Learned, params: Any) -> Distance:
    """The distance with its parameters filled in, if it has any."""
    if not isinstance(distance, Learned):
        return distance
    bound = functools.partial(distance.apply, params)
    faster = _own_form_for_all_pairs(distance.apply)
    if faster is not None:
        bound.all_pairs = functools.partial(faster, params)
    return bound


def pairwise(distance: Distance) -> Callable[[Array, Array], Array]:
    """All distances between two sets of points: a function [M, D], [N, D] -> [M, N]."""
    return _own_form_for_all_pairs(distance) or jax.vmap(jax.vmap(distance, (None, 0)), (0, None))


def _own_form_for_all_pairs(distance):
    # A wrapper made with functools.wraps has copied the attribute, but may compute something else.
    return None if hasattr(distance, '__wrapped__') else getattr(distance, 'all_pairs', None)


def _by_matrix_product(a, b, precision=None):
    """(a - b) . P (a - b) as a.Pa - 2 a.Pb + b.Pb, with P the identity unless given: [M, D], [N, D] -> [M, N].

    All points are moved near the origin first: far from it, their differences would be lost to rounding.
    """
    center = lax.stop_gradient(jnp.mean(b, 0, keepdims=True))
    a, b = a - center, b - center
    mapped_a, mapped_b = (a, b) if precision is None else (_dot(a, precision), _dot(b, precision))
    return jnp.sum(a * mapped_a, 1)[:, None] - 2 * _dot(mapped_a, b.T) + jnp.sum(b * mapped_b, 1)[None]


def _root(squares):
    return jnp.sqrt(jnp.maximum(squares, 1e-12))


squared_euclidean.all_pairs = _by_matrix_product
euclidean.all_pairs = lambda a, b: _root(_by_matrix_product(a, b))


def unit_length(vectors: Array) -> Array:
    """Vectors scaled to length one, with a finite gradient at zero, which stays: [..., D] -> [..., D]."""
    return vectors * lax.rsqrt(jnp.maximum(jnp.sum(vectors * vectors, -1, keepdims=True), 1e-12))


def _dot(a, b):
    """Inner product, of vectors or matrices, in full precision, also where matrix units would round to bfloat16."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)
