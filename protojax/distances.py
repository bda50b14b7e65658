"""Distances between embeddings, each written for one pair and mapped to all pairs by `pairwise`.

The paper's argument rests on Bregman divergences: for every one of them the mean of a set of points is the point with
the least summed divergence from them, which is what makes a class mean a good prototype (section 2.3). Squared
Euclidean and Mahalanobis distances are instances; cosine and the Euclidean distance without its square are not.

A distance of your own is any function `distance(a, b)`: [D], [D] -> []. One with parameters that are learned together
with the encoder is a `Learned` value.

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


def _translation_invariant(distance: Callable[..., Array]) -> Callable[..., Array]:
    """Mark a distance that stays the same when both points are moved alike.

    `pairwise` moves the points near the origin before it applies such a distance, so that it may be written as a
    difference of large terms.
    """
    distance.translation_invariant = True
    return distance


@_translation_invariant
def squared_euclidean(a: Array, b: Array) -> Array:
    """Sum of squared differences, the paper's main choice: [D], [D] -> [].

    Written out as a.a - 2 a.b + b.b, so that over all pairs it becomes one matrix product.
    """
    return _dot(a, a) - 2 * _dot(a, b) + _dot(b, b)


@_translation_invariant
def euclidean(a: Array, b: Array) -> Array:
    """The square root of that, which is no Bregman divergence, with a finite gradient at zero: [D], [D] -> []."""
    return jnp.sqrt(jnp.maximum(squared_euclidean(a, b), 1e-12))


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
    return _translation_invariant(bregman(lambda z: _dot(z, jnp.matmul(precision, z, precision=lax.Precision.HIGHEST))))


def learned_mahalanobis() -> Learned:
    """A Mahalanobis distance whose matrix P = F F^T is learned; at the start it is the squared Euclidean distance."""

    @_translation_invariant
    def distance(params, a, b):
        return mahalanobis(params['factor'] @ params['factor'].T)(a, b)

    return Learned(lambda key, dimensions: {'factor': jnp.eye(dimensions)}, distance)


def bind_distance(distance: Distance | Learned, params: Any) -> Distance:
    """The distance with its parameters filled in, if it has any."""
    if not isinstance(distance, Learned):
        return distance
    bound = functools.partial(distance.apply, params)
    bound.translation_invariant = getattr(distance.apply, 'translation_invariant', False)
    return bound


def pairwise(distance: Distance) -> Callable[[Array, Array], Array]:
    """All distances between two sets of points: a function [M, D], [N, D] -> [M, N]."""
    all_pairs = jax.vmap(jax.vmap(distance, (None, 0)), (0, None))
    if not getattr(distance, 'translation_invariant', False):
        return all_pairs

    def near_the_origin(a, b):
        # Without this, features far from the origin would lose their differences to rounding.
        center = lax.stop_gradient(jnp.mean(b, 0, keepdims=True))
        return all_pairs(a - center, b - center)

    return near_the_origin


def unit_length(vectors: Array) -> Array:
    """Vectors scaled to length one, with a finite gradient at zero, which stays: [..., D] -> [..., D]."""
    return vectors * lax.rsqrt(jnp.maximum(jnp.sum(vectors * vectors, -1, keepdims=True), 1e-12))


def _dot(a, b):
    """Inner product in full precision, also where matrix units would round to bfloat16: [D], [D] -> []."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)
