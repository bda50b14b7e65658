"""Distances between embeddings, each written for one pair and mapped to all pairs by `pairwise`.

The paper's argument rests on Bregman divergences: for every one of them the mean of a set of points is the point with
the least summed divergence from them, which is what makes a class mean a good prototype (section 2.3). Squared
Euclidean and Mahalanobis distances are instances; cosine is not.

Axis letters: M and N points, D dimensions.
"""

import jax
import jax.numpy as jnp
from jax import lax


def squared_euclidean(a, b):
    """Sum of squared differences, the paper's main choice: [D], [D] -> [].

    Written out as a.a - 2 a.b + b.b, so that over all pairs it becomes one matrix product.
    """
    return _dot(a, a) - 2 * _dot(a, b) + _dot(b, b)


def cosine(a, b):
    """One minus the cosine of the angle; a zero vector is at distance 1 from everything: [D], [D] -> []."""
    return 1 - _dot(_unit(a), _unit(b))


def bregman(phi):
    """Divergence of a differentiable, strictly convex phi: [D] -> [], as a function [D], [D] -> [].

    d(a, b) = phi(a) - phi(b) - (a - b) . grad phi(b)
    """

    def divergence(a, b):
        value, slope = jax.value_and_grad(phi)(b)
        return phi(a) - value - _dot(a - b, slope)

    return divergence


def mahalanobis(precision):
    """(a - b) . P (a - b) for a symmetric positive definite P [D, D]: the Bregman divergence of z . P z."""
    return bregman(lambda z: _dot(z, jnp.matmul(precision, z, precision=lax.Precision.HIGHEST)))


def pairwise(distance):
    """All distances between two sets of points: a function [M, D], [N, D] -> [M, N]."""
    return jax.vmap(jax.vmap(distance, (None, 0)), (0, None))


def _unit(z):
    """z scaled to length one, with a finite gradient at zero: [D] -> [D]."""
    return z * lax.rsqrt(jnp.maximum(_dot(z, z), 1e-12))


def _dot(a, b):
    """Inner product in full precision, also where matrix units would round to bfloat16: [D], [D] -> []."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)
