"""Prototypes and classifiers against NumPy loops and mixture models, and under permutations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from optax import softmax_cross_entropy_with_integer_labels as losses

from protojax import classifiers
from protojax.classifiers import by_distance, gaussian, linear_classifier, matching, prototypes, prototypical
from protojax.distances import bregman, cosine, learned_mahalanobis, mahalanobis, pairwise, squared_euclidean
from protojax.episodes import Episode

RNG = np.random.default_rng(0)
WAY, SHOT, D = 4, 5, 3
SUPPORT = RNG.normal(size=(WAY * SHOT, D)).astype(np.float32)
LABELS = RNG.permutation(np.repeat(np.arange(WAY), SHOT))
QUERIES = RNG.normal(size=(6, D)).astype(np.float32)
QUERY_LABELS = RNG.integers(0, WAY, 6)
VARIANCE = np.array([0.5, 1.0, 2.0], np.float32)
CLASSIFIERS = {
    'prototypical': prototypical,
    'several prototypes': functools.partial(prototypical, per_class=2),
    'matching': matching,
    'gaussian': lambda queries, support, labels, *, way: gaussian(queries, support, labels, VARIANCE, way=way),
}
each_classifier = pytest.mark.parametrize('name', CLASSIFIERS)
DISTANCES = {  # with its form in NumPy
    'squared_euclidean': (squared_euclidean, lambda a, b: np.sum((a - b) ** 2)),
    'cosine': (cosine, lambda a, b: 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)),
}
each_distance = pytest.mark.parametrize('name', DISTANCES)


@functools.cache
def jitted(name, way=WAY):
    function = jax.jit(functools.partial(CLASSIFIERS[name], way=way))
    return lambda *args: np.asarray(function(*args))


def softmax(logits):
    return scipy.special.softmax(np.asarray(logits), 1)


def members(label):
    return SUPPORT[label == LABELS]


@each_distance
def test_prototypical_is_a_loop(name):
    distance, by_hand = DISTANCES[name]
    expected = [[-by_hand(query, members(k).mean(0)) for k in range(WAY)] for query in QUERIES]
    logits = jax.jit(functools.partial(prototypical, way=WAY, distance=distance))(QUERIES, SUPPORT, LABELS)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


@each_distance
def test_matching_is_a_loop(name):
    distance, by_hand = DISTANCES[name]
    expected = [[sum(np.exp(-by_hand(query, x)) for x in members(k)) for k in range(WAY)] for query in QUERIES]
    logits = jax.jit(functools.partial(matching, way=WAY, distance=distance))(QUERIES, SUPPORT, LABELS)
    np.testing.assert_allclose(np.exp(logits), expected / np.sum(expected, 1, keepdims=True), rtol=1e-5)


def test_matching_is_prototypical_at_one_shot():
    args = QUERIES, SUPPORT[:WAY], np.array([2, 0, 3, 1])
    expected = softmax(jitted('prototypical')(*args))
    np.testing.assert_allclose(np.exp(jitted('matching')(*args)), expected, rtol=1e-5, atol=1e-7)


def test_matching_keeps_its_logarithm_at_large_distances():
    support = jnp.array([[0.0], [1.0], [100.0], [101.0]])

    def score(queries):
        return matching(queries, support, jnp.array([0, 0, 1, 1]), way=2)[0, 1]

    logits, gradient = jax.jit(jax.value_and_grad(score))(jnp.zeros((1, 1)))
    # the attention on class 1 is exp(-10000) (1 + exp(-201)) / (1 + exp(-1)), far below the smallest float
    np.testing.assert_allclose(logits, -10000 - np.log(1 + np.exp(-1)), rtol=1e-6)
    assert np.isfinite(gradient).all() and gradient[0, 0] > 100


def test_gaussian_is_a_loop():
    prior, expected = 2.0, np.zeros((6, WAY))
    for k in range(WAY):
        mean = members(k).mean(0)
        variance = (sum((point - mean) ** 2 for point in members(k)) + prior * VARIANCE) / (SHOT + prior)
        expected[:, k] = -0.5 * (np.square(QUERIES - mean) / variance + np.log(variance)).sum(1)
    logits = jax.jit(functools.partial(gaussian, way=WAY, prior=prior))(QUERIES, SUPPORT, LABELS, VARIANCE)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_several_prototypes_are_an_equal_mixture():
    support = np.array([[0.0, 0.0], [0.0, 6.0], [20.0, 0.0], [26.0, 0.0]], np.float32)
    queries = np.array([[1.0, 3.0], [9.0, 1.0]], np.float32)
    logits = jax.jit(lambda: prototypical(queries, support, np.array([0, 0, 1, 1]), way=2, per_class=2))()
    distances = np.array([[np.sum((query - point) ** 2) for point in support] for query in queries])
    np.testing.assert_allclose(logits, scipy.special.logsumexp(-distances.reshape(2, 2, 2), -1), rtol=1e-5)


PRECISION = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])
MIXTURES = {  # divergence, and the density of the corresponding exponential family, by its mean, up to a constant
    'Gaussian of precision 2 P': (
        mahalanobis(PRECISION),
        lambda z, mean: np.exp(-0.5 * (z - mean) @ (2 * PRECISION) @ (z - mean)),
    ),
    'Poisson': (
        bregman(lambda z: jnp.sum(z * jnp.log(z))),
        lambda z, mean: np.prod(mean**z * np.exp(-mean) / scipy.special.factorial(z)),
    ),
}


@pytest.mark.parametrize('name', MIXTURES)
def test_prediction_is_inference_in_a_mixture(name, x64):
    divergence, density = MIXTURES[name]
    rng, priors = np.random.default_rng(1), np.array([0.1, 0.2, 0.3, 0.4])
    support, queries = rng.integers(1, 5, (WAY * SHOT, D)).astype(float), rng.integers(1, 5, (6, D)).astype(float)
    means = [support[k == LABELS].mean(0) for k in range(WAY)]
    for weights in (None, priors):
        joint = np.array([[density(query, mean) for mean in means] for query in queries])
        joint *= priors[None] if weights is not None else 1
        classify = jax.jit(functools.partial(prototypical, way=WAY, distance=divergence, priors=weights))
        found = softmax(classify(queries, support, LABELS))
        np.testing.assert_allclose(found, joint / joint.sum(1, keepdims=True), rtol=1e-8)


@each_classifier
def test_order_of_queries_classes_and_support(name):
    classify, rng = jitted(name), np.random.default_rng(2)
    queries, classes, support = rng.permutation(6), rng.permutation(WAY), rng.permutation(len(LABELS))
    found = classify(QUERIES[queries], SUPPORT[support], classes[LABELS[support]])
    expected = classify(QUERIES, SUPPORT, LABELS)[queries]
    np.testing.assert_allclose(found[:, classes], expected, rtol=1e-4, atol=1e-5)


@each_classifier
def test_an_empty_class_is_never_predicted_and_does_no_harm(name):
    # The empty class is in the middle, and its unused prototype, the origin, is close to the queries.
    labels = np.where(LABELS >= 2, LABELS + 1, LABELS)
    queries, truth = QUERIES * 0.01, np.where(QUERY_LABELS >= 2, QUERY_LABELS + 1, QUERY_LABELS)

    def loss(queries, support):
        logits = CLASSIFIERS[name](queries, support, labels, way=WAY + 1)
        return losses(logits, truth).mean(), logits

    (value, logits), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(queries, SUPPORT)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in gradients)
    probabilities = softmax(logits)
    assert (probabilities[:, 2] == 0).all()
    expected = softmax(jitted(name)(queries, SUPPORT, LABELS))
    np.testing.assert_allclose(np.delete(probabilities, 2, 1), expected, rtol=1e-5)


def test_wrong_inputs_are_rejected():
    for queries, labels, message in (
        (QUERIES, LABELS + 1, 'in 0..3 for way=4, got 1..4'),
        (QUERIES, LABELS[:3], 'integer labels .20.'),
        (QUERIES[0], LABELS, r'expected queries \[Q, D\]'),
    ):
        with pytest.raises(ValueError, match=message):
            prototypical(queries, SUPPORT, labels, way=WAY)


def test_means_of_unbalanced_classes_and_origin_for_an_empty_one():
    labels = np.array([2, 0, 0, 4, 2, 0, 2, 0, 4])
    expected = [SUPPORT[:9][labels == k].mean(0) if k in labels else np.zeros(D) for k in range(5)]
    np.testing.assert_allclose(prototypes(SUPPORT[:9], labels, way=5), expected, rtol=1e-5, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda points: jnp.sum(prototypes(points, labels, way=5))))(SUPPORT[:9])
    np.testing.assert_allclose(gradient, np.repeat(1 / np.bincount(labels)[labels][:, None], D, 1), rtol=1e-6)


def test_linear_scores_differ_from_distances_by_the_norm_of_the_query():
    centers = prototypes(SUPPORT, LABELS, way=WAY)
    weights, biases = map(np.asarray, linear_classifier(centers))
    linear = QUERIES @ weights.T + biases[None]
    distances = np.asarray(pairwise(squared_euclidean)(QUERIES, centers))
    np.testing.assert_allclose(linear + distances, np.repeat(np.sum(QUERIES**2, 1)[:, None], WAY, 1), rtol=1e-4)


several_prototypes = jax.jit(classifiers.several_prototypes, static_argnames=('way', 'per_class'))


def test_separated_clusters_are_found_and_only_their_points_move_them():
    rng = np.random.default_rng(3)
    corners = np.array([[[0, 0], [9, 0], [0, 9]], [[30, 30], [40, 30], [40, 41]]], np.float32)  # [class, cluster, D]
    groups = corners[:, :, None] + rng.normal(scale=0.3, size=(2, 3, 4, 2)).astype(np.float32)
    order = rng.permutation(24)
    points, labels = groups.reshape(-1, 2)[order], np.repeat([0, 1], 12)[order]

    def first_coordinate(points):
        centers = several_prototypes(points, labels, way=2, per_class=3)
        return centers[0, 0, 0], centers

    gradient, centers = jax.grad(first_coordinate, has_aux=True)(points)
    expected = groups.mean(2)
    nearest = np.argmin(np.sum((np.asarray(centers)[:, :, None] - expected[:, None]) ** 2, -1), -1)
    np.testing.assert_array_equal(np.sort(nearest), [[0, 1, 2]] * 2)  # each cluster once
    np.testing.assert_allclose(centers, np.take_along_axis(expected, nearest[:, :, None], 1), rtol=1e-5, atol=1e-5)
    of_that_cluster = order // 4 == nearest[0, 0]
    np.testing.assert_allclose(gradient, np.stack([of_that_cluster / 4, np.zeros(24)], 1), atol=1e-6)


def test_fewer_points_than_clusters():
    def total(points):
        centers = several_prototypes(points, np.array([0, 0, 0, 1]), way=2, per_class=4)
        return jnp.sum(centers**2), centers

    gradient, centers = jax.grad(total, has_aux=True)(SUPPORT[:4])
    assert np.isfinite(gradient).all() and np.isfinite(centers).all()
    np.testing.assert_allclose(centers[1], SUPPORT[3:4].repeat(4, 0), rtol=1e-6)  # its only point, four times


def test_clusters_far_from_the_origin_start_at_the_same_points():
    points = np.random.default_rng(5).integers(-13, 14, (12, 64)) / 1024  # exact in float32 with every offset
    start = jax.jit(classifiers._farthest_points, static_argnums=2)
    near, far = (np.asarray(start(np.float32(points + at), np.arange(12) % 2 == 0, 4)) for at in (0, 1000))
    np.testing.assert_array_equal(far - 1000, near)


def test_by_distance_binds_parameters_and_options():
    episode = Episode(SUPPORT, LABELS, QUERIES, QUERY_LABELS, np.arange(WAY))
    learned = by_distance(matching, learned_mahalanobis(), temperature=4.0)
    params = {'factor': learned.init(jax.random.key(0), D)['factor'] / 2**0.5}
    expected = matching(QUERIES, SUPPORT, LABELS, way=WAY, temperature=8.0)
    np.testing.assert_allclose(learned.apply(params, episode), expected, rtol=1e-4, atol=1e-5)
