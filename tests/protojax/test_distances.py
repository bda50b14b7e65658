"""Distances against hand-computed values, NumPy, and what the theory of Bregman divergences promises."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax.distances import (
    Learned,
    bind_distance,
    bregman,
    cosine,
    euclidean,
    learned_mahalanobis,
    mahalanobis,
    pairwise,
    squared_euclidean,
)


def precision():  # anew each time: as a constant, one array would keep the precision of its first use
    return np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])


# phi, and its divergence written out by hand
DIVERGENCES = {
    'squared norm': (lambda z: jnp.vdot(z, z), lambda a, b: np.sum((a - b) ** 2)),
    'mahalanobis': (lambda z: jnp.vdot(z, precision() @ z), lambda a, b: (a - b) @ precision() @ (a - b)),
    'negative entropy': (lambda z: jnp.sum(z * jnp.log(z)), lambda a, b: np.sum(a * np.log(a / b) - a + b)),
    'minus log': (lambda z: -jnp.sum(jnp.log(z)), lambda a, b: np.sum(a / b - np.log(a / b) - 1)),
    'exponential': (lambda z: jnp.sum(jnp.exp(z)), lambda a, b: np.sum(np.exp(a) - np.exp(b) * (1 + a - b))),
}
each_divergence = pytest.mark.parametrize('name', DIVERGENCES)

DISTANCES = {
    'squared_euclidean': squared_euclidean,
    'euclidean': euclidean,
    'cosine': cosine,
    'mahalanobis': lambda a, b: mahalanobis(precision())(a, b),
    'bregman': bregman(DIVERGENCES['negative entropy'][0]),
}
each_distance = pytest.mark.parametrize('name', DISTANCES)


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


def test_cosine_of_parallel_opposite_and_perpendicular_vectors():
    a = jnp.array([3.0, 4.0])
    values = [cosine(a, b) for b in (7 * a, -0.1 * a, jnp.array([-8.0, 6.0]))]
    np.testing.assert_allclose(values, [0, 2, 1], atol=1e-6)


@each_distance
def test_pairwise_is_a_loop(name):
    distance = DISTANCES[name]
    a, b = positive_points(4).astype(np.float32), positive_points(5, seed=1).astype(np.float32)
    one_pair = jax.jit(distance)
    loop = [[one_pair(x, y) for y in b] for x in a]
    np.testing.assert_allclose(jax.jit(pairwise(distance))(a, b), loop, rtol=1e-5, atol=1e-6)


def test_pairwise_against_numpy():
    a, b = positive_points(4), positive_points(5, seed=1)
    euclidean, angles = np.zeros((4, 5)), np.zeros((4, 5))
    for i in range(4):
        for j in range(5):
            euclidean[i, j] = sum((a[i, k] - b[j, k]) ** 2 for k in range(3))
            angles[i, j] = 1 - a[i] @ b[j] / np.linalg.norm(a[i]) / np.linalg.norm(b[j])
    a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(pairwise(squared_euclidean)(a, b), euclidean, rtol=1e-5)
    np.testing.assert_allclose(pairwise(cosine)(a, b), angles, atol=1e-6)


@each_divergence
def test_bregman_divergence_is_the_one_worked_out_by_hand(name, x64):
    phi, divergence = DIVERGENCES[name]
    a, b = positive_points(4), positive_points(4, seed=1)
    expected = [[divergence(x, y) for y in b] for x in a]
    np.testing.assert_allclose(jax.jit(pairwise(bregman(phi)))(a, b), expected, rtol=1e-10, atol=1e-12)


def test_bregman_of_the_squared_norm_is_squared_euclidean(x64):
    a, b = positive_points(4), positive_points(5, seed=1)
    divergences = pairwise(bregman(DIVERGENCES['squared norm'][0]))(a, b)
    np.testing.assert_allclose(divergences, pairwise(squared_euclidean)(a, b), rtol=1e-12, atol=1e-14)


def test_bregman_of_a_quadratic_form_is_mahalanobis(x64):
    a, b = positive_points(4), positive_points(5, seed=1)
    divergences = pairwise(bregman(DIVERGENCES['mahalanobis'][0]))(a, b)
    np.testing.assert_allclose(divergences, pairwise(mahalanobis(precision()))(a, b), rtol=1e-12, atol=1e-14)


def test_bregman_of_negative_entropy_is_kullback_leibler_between_probabilities(x64):
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
    divergence = bregman(DIVERGENCES['negative entropy'][0])
    np.testing.assert_allclose(divergence(p, q), np.sum(p * np.log(p / q)), rtol=1e-12)


@each_divergence
def test_the_mean_has_the_least_summed_divergence(name, x64):
    points = positive_points(6)
    total = jax.jit(lambda center: jnp.sum(pairwise(bregman(DIVERGENCES[name][0]))(points, center[None])))
    mean = points.mean(0)
    gradient = jax.jit(jax.grad(total))
    np.testing.assert_allclose(gradient(mean), 0, atol=1e-12)
    assert np.abs(gradient(mean + 0.01)).max() > 1e-3
    rng = np.random.default_rng(2)
    others = [mean + size * rng.uniform(-1, 1, 3) for size in (1e-3, 1e-2, 0.1) for _ in range(50)]
    assert min(total(other) for other in [*others, *points]) > total(mean)


def test_the_mean_is_not_the_least_for_cosine():
    points = jnp.array([[10.0, 0.0], [0.0, 1.0]])
    to_mean, to_bisector = (
        jnp.sum(pairwise(cosine)(points, center[None])) for center in (points.mean(0), jnp.array([1.0, 1.0]))
    )
    np.testing.assert_allclose(to_mean, 2 - 11 / 101**0.5, rtol=1e-5)
    np.testing.assert_allclose(to_bisector, 2 - 2**0.5, rtol=1e-5)
    assert to_bisector < to_mean


@each_distance
def test_gradient_against_finite_differences(name, x64):
    distance = jax.jit(DISTANCES[name])
    a, b = positive_points(2)
    steps = 1e-5 * np.eye(3)
    expected_a = [(distance(a + s, b) - distance(a - s, b)) / 2e-5 for s in steps]
    expected_b = [(distance(a, b + s) - distance(a, b - s)) / 2e-5 for s in steps]
    gradient_a, gradient_b = jax.jit(jax.grad(distance, (0, 1)))(a, b)
    np.testing.assert_allclose(gradient_a, expected_a, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(gradient_b, expected_b, rtol=1e-7, atol=1e-9)


def test_the_euclidean_distance_has_a_gradient_at_zero():
    point = jnp.array([1.0, 2.0, 3.0])
    value, gradients = jax.jit(jax.value_and_grad(euclidean, (0, 1)))(point, point)
    np.testing.assert_allclose(value, 0, atol=1e-5)
    assert np.isfinite(gradients).all()


def test_cosine_is_finite_at_zero():
    value_and_gradients = jax.jit(jax.value_and_grad(cosine, (0, 1)))
    zero, point = jnp.zeros(3), jnp.array([1.0, 2.0, 3.0])
    for a, b in ((zero, point), (point, zero), (zero, zero)):
        value, gradients = value_and_gradients(a, b)
        assert value == 1
        assert np.isfinite(gradients).all()


def doubled(params, a, b):
    return params * squared_euclidean(a, b)


@functools.wraps(squared_euclidean)
def halved(a, b):
    return squared_euclidean(a, b) / 2


EYE = np.eye(64, dtype=np.float32)
# a distance that is a multiple of the squared Euclidean one, and that multiple
FAR_AWAY = {
    'squared_euclidean': (squared_euclidean, 1),
    'jit': (jax.jit(squared_euclidean), 1),
    'mahalanobis': (mahalanobis(EYE), 1),
    'learned mahalanobis': (bind_distance(learned_mahalanobis(), {'factor': EYE}), 1),
    'lambda': (lambda a, b: squared_euclidean(a, b) / 64, 1 / 64),
    'partial': (functools.partial(doubled, np.float32(2)), 2),
    'learned': (bind_distance(Learned(lambda key, dimensions: jnp.ones(()), doubled), np.float32(2)), 2),
    'wraps': (halved, 1 / 2),
}
FORMS = {'one by one': lambda distance: jax.vmap(jax.vmap(distance, (None, 0)), (0, None)), 'pairwise': pairwise}


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('name', FAR_AWAY)
def test_points_far_from_the_origin_keep_their_distances(form, name):
    """Points 0.1 apart with a common offset, against double precision: values and gradients."""
    distance, multiple = FAR_AWAY[name]
    all_pairs = FORMS[form](distance)

    @jax.jit
    def values_and_gradients(a, b):
        return all_pairs(a, b), jax.grad(lambda a, b: all_pairs(a, b).sum(), (0, 1))(a, b)

    for offset in (0.0, 10.0, 100.0, 1000.0):
        rng = np.random.default_rng(0)
        a, b = (np.float32(offset + 0.1 / 64**0.5 * rng.normal(size=(n, 64))) for n in (6, 4))
        difference = a[:, None].astype(float) - b[None].astype(float)
        values, gradient = values_and_gradients(a, b)
        np.testing.assert_allclose(values, multiple * np.square(difference).sum(-1), rtol=1e-4)
        close = {'rtol': 1e-3, 'atol': 1e-5 * multiple}
        np.testing.assert_allclose(gradient[0], 2 * multiple * difference.sum(1), **close)
        np.testing.assert_allclose(gradient[1], -2 * multiple * difference.sum(0), **close)


@pytest.mark.parametrize('offset', [10.0, 100.0, 1000.0])
def test_the_euclidean_distance_far_from_the_origin(offset):
    rng = np.random.default_rng(0)
    a, b = (np.float32(offset + 0.1 / 64**0.5 * rng.normal(size=(n, 64))) for n in (6, 4))
    expected = np.linalg.norm(a[:, None].astype(float) - b[None].astype(float), axis=-1)
    np.testing.assert_allclose(pairwise(euclidean)(a, b), expected, rtol=1e-4)
    np.testing.assert_allclose([[euclidean(x, y) for y in b] for x in a], expected, rtol=1e-4)


@pytest.mark.parametrize('distance', [squared_euclidean, euclidean, mahalanobis(EYE)], ids=['squared', 'root', 'P'])
def test_all_pairs_are_one_matrix_product(distance):
    """No array of M x N x D numbers is made, neither for the distances nor for their gradient."""
    points = jnp.ones((7, 64)), jnp.ones((5, 64))
    forward = jax.make_jaxpr(pairwise(distance))(*points)
    products = [e.outvars[0].aval.shape for e in forward.eqns if e.primitive.name == 'dot_general']
    assert products.count((7, 5)) == 1
    both = jax.make_jaxpr(jax.grad(lambda a, b: pairwise(distance)(a, b).sum(), (0, 1)))(*points)
    assert '[7,5]' in str(both)
    assert '[7,5,64]' not in str(both) and '[5,7,64]' not in str(both)
