"""Distances against hand-computed values, NumPy, and the theory of Bregman divergences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax import distances
from protojax.distances import bind, bregman, cosine, euclidean, mahalanobis, pairwise, squared_euclidean


def precision():  # a new array each time: as a constant, one array would keep the type of its first use
    return np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])


DIVERGENCES = {  # phi, and its divergence by hand
    'mahalanobis': (lambda z: jnp.vdot(z, precision() @ z), lambda a, b: (a - b) @ precision() @ (a - b)),
    'negative entropy': (lambda z: jnp.sum(z * jnp.log(z)), lambda a, b: np.sum(a * np.log(a / b) - a + b)),
    'exponential': (lambda z: jnp.sum(jnp.exp(z)), lambda a, b: np.sum(np.exp(a) - np.exp(b) * (1 + a - b))),
}
DISTANCES = {
    'squared_euclidean': squared_euclidean,
    'euclidean': euclidean,
    'cosine': cosine,
    'mahalanobis': lambda a, b: mahalanobis(precision())(a, b),
    'bregman': bregman(DIVERGENCES['negative entropy'][0]),
}


def positive_points(count, seed=0):
    return np.random.default_rng(seed).uniform(0.2, 2.0, (count, 3))


def test_by_hand():
    a, b = np.array([1, 2, 3], np.float32), np.array([2, 0, 3], np.float32)
    assert squared_euclidean(a, b) == 5
    np.testing.assert_allclose(euclidean(a, b), 5**0.5, rtol=1e-6)
    np.testing.assert_allclose(cosine(a, b), 1 - 11 / (14 * 13) ** 0.5, rtol=1e-6)
    # difference (-1, 2, 0): 2 * 1 + 2 * 0.5 * (-2) + 1 * 4
    np.testing.assert_allclose(mahalanobis(precision())(a, b), 4, rtol=1e-5)
    cube = bregman(lambda z: jnp.sum(z**3))  # 1 - 8 + 12, 8 - 0 - 0, 0
    np.testing.assert_allclose(cube(a, b), 13, rtol=1e-6)


@pytest.mark.parametrize('name', DISTANCES)
def test_pairwise_is_a_loop(name):
    one_pair = jax.jit(DISTANCES[name])
    a, b = positive_points(4).astype(np.float32), positive_points(5, seed=1).astype(np.float32)
    loop = [[one_pair(x, y) for y in b] for x in a]
    np.testing.assert_allclose(jax.jit(pairwise(DISTANCES[name]))(a, b), loop, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', DIVERGENCES)
def test_bregman_divergence_by_hand_and_the_mean_minimises_its_sum(name, x64):
    phi, by_hand = DIVERGENCES[name]
    divergences = jax.jit(pairwise(bregman(phi)))
    points, others = positive_points(6), positive_points(4, seed=1)
    np.testing.assert_allclose(divergences(points, others), [[by_hand(x, y) for y in others] for x in points], 1e-10)
    mean, rng = points.mean(0), np.random.default_rng(2)
    near = [mean + size * rng.uniform(-1, 1, 3) for size in (1e-3, 1e-2, 0.1) for _ in range(10)]
    totals = np.asarray(divergences(points, np.stack([mean, *near, *points]))).sum(0)
    assert totals[0] < totals[1:].min()


def test_the_mean_does_not_minimise_the_sum_of_cosine_distances():
    points = jnp.array([[10.0, 0.0], [0.0, 1.0]])
    to_mean, to_bisector = pairwise(cosine)(points, jnp.array([[5.0, 0.5], [1.0, 1.0]])).sum(0)
    np.testing.assert_allclose(to_mean, 2 - 11 / 101**0.5, rtol=1e-5)
    np.testing.assert_allclose(to_bisector, 2 - 2**0.5, rtol=1e-5)
    assert to_bisector < to_mean


@pytest.mark.parametrize(('distance', 'at_zero'), [(euclidean, 0), (cosine, 1)])
def test_gradients_are_finite_at_zero(distance, at_zero):
    value, gradients = jax.jit(jax.value_and_grad(distance, (0, 1)))(jnp.zeros(3), jnp.zeros(3))
    np.testing.assert_allclose(value, at_zero, atol=1e-5)
    assert np.isfinite(gradients).all()


@functools.wraps(squared_euclidean)
def halved(a, b):
    return squared_euclidean(a, b) / 2


EYE = np.eye(64, dtype=np.float32)
FAR_AWAY = {  # multiples of the squared Euclidean distance, as functions of all pairs, and the factor
    'squared_euclidean': (pairwise(squared_euclidean), 1),
    'learned mahalanobis': (pairwise(bind(distances.learned_mahalanobis(), {'factor': EYE})), 1),
    'mahalanobis by pair': (jax.vmap(jax.vmap(mahalanobis(EYE), (None, 0)), (0, None)), 1),
    'lambda': (pairwise(lambda a, b: squared_euclidean(a, b) / 64), 1 / 64),
    'wraps': (pairwise(halved), 1 / 2),
}


@pytest.mark.parametrize('name', FAR_AWAY)
def test_points_far_from_the_origin_keep_their_distances(name):
    """Points 0.1 apart with a common offset, against double precision: values and gradients."""
    all_pairs, factor = FAR_AWAY[name]
    rng = np.random.default_rng(0)
    a, b = (np.float32(1000 + 0.1 / 64**0.5 * rng.normal(size=(n, 64))) for n in (6, 4))
    difference = a[:, None].astype(float) - b[None].astype(float)
    values, pullback = jax.vjp(jax.jit(all_pairs), a, b)
    np.testing.assert_allclose(values, factor * np.square(difference).sum(-1), rtol=1e-4)
    for found, expected in zip(pullback(jnp.ones_like(values)), (difference.sum(1), -difference.sum(0)), strict=True):
        np.testing.assert_allclose(found, 2 * factor * expected, rtol=1e-3, atol=1e-5 * factor)


@pytest.mark.parametrize('distance', [euclidean, mahalanobis(EYE)], ids=['euclidean', 'mahalanobis'])
def test_all_pairs_are_one_matrix_product(distance):
    """No array of M x N x D numbers is created, neither for the distances nor for their gradient."""
    points = jnp.ones((7, 64)), jnp.ones((5, 64))
    forward = jax.make_jaxpr(pairwise(distance))(*points)
    products = [e.outvars[0].aval.shape for e in forward.eqns if e.primitive.name == 'dot_general']
    assert products.count((7, 5)) == 1
    both = jax.make_jaxpr(jax.grad(lambda a, b: pairwise(distance)(a, b).sum(), (0, 1)))(*points)
    assert '[7,5]' in str(both)
    assert '[7,5,64]' not in str(both) and '[5,7,64]' not in str(both)
