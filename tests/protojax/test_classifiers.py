"""Classifiers against NumPy loops, against the mixture models that they stand for, and under permutations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from protojax.classifiers import accuracies, gaussian_classifier, losses, matching, prototypical
from protojax.distances import bregman, cosine, mahalanobis, squared_euclidean

RNG = np.random.default_rng(0)
WAY, SHOT, D = 4, 5, 3
SUPPORT = RNG.normal(size=(WAY * SHOT, D)).astype(np.float32)
LABELS = RNG.permutation(np.repeat(np.arange(WAY), SHOT))
QUERIES = RNG.normal(size=(6, D)).astype(np.float32)
QUERY_LABELS = RNG.integers(0, WAY, 6)
VARIANCE = np.array([0.5, 1.0, 2.0], np.float32)

CLASSIFIERS = {
    'prototypical': prototypical,
    'prototypical cosine': functools.partial(prototypical, distance=cosine),
    'several prototypes': functools.partial(prototypical, per_class=2),
    'matching': matching,
    'matching cosine': functools.partial(matching, distance=cosine),
    'diagonal': lambda queries, support, labels, *, way: gaussian_classifier(
        queries, support, labels, VARIANCE, way=way
    ),
}
each_distance = pytest.mark.parametrize('name', ['', ' cosine'], ids=['euclidean', 'cosine'])
each_classifier = pytest.mark.parametrize('name', CLASSIFIERS)


@functools.cache
def jitted(name, way=WAY):
    function = jax.jit(functools.partial(CLASSIFIERS[name], way=way))
    return lambda *args: np.asarray(function(*args))


def softmax(logits):
    return scipy.special.softmax(np.asarray(logits), 1)


def numpy_distance(name, a, b):
    if name == '':
        return np.sum((a - b) ** 2)
    return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@each_distance
def test_prototypical_is_a_loop(name):
    expected = np.zeros((6, WAY))
    for i, query in enumerate(QUERIES):
        for k in range(WAY):
            expected[i, k] = -numpy_distance(name, query, SUPPORT[k == LABELS].mean(0))
    logits = jitted(f'prototypical{name}')(QUERIES, SUPPORT, LABELS)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


@each_distance
def test_matching_is_a_loop(name):
    expected = np.zeros((6, WAY))
    for i, query in enumerate(QUERIES):
        weights = np.exp([-numpy_distance(name, query, point) for point in SUPPORT])
        for weight, label in zip(weights / weights.sum(), LABELS, strict=True):
            expected[i, label] += weight
    probabilities = np.exp(jitted(f'matching{name}')(QUERIES, SUPPORT, LABELS))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)


@each_distance
def test_matching_is_prototypical_at_one_shot(name):
    args = QUERIES, SUPPORT[:WAY], np.array([2, 0, 3, 1])
    expected = softmax(jitted(f'prototypical{name}')(*args))
    np.testing.assert_allclose(np.exp(jitted(f'matching{name}')(*args)), expected, rtol=1e-5, atol=1e-7)


def test_matching_keeps_its_logarithm_at_large_distances():
    support = jnp.array([[0.0], [1.0], [100.0], [101.0]])

    def score(queries):
        return matching(queries, support, jnp.array([0, 0, 1, 1]), way=2)[0, 1]

    logits, gradient = jax.jit(jax.value_and_grad(score))(jnp.zeros((1, 1)))
    # the attention on class 1 is exp(-10000) (1 + exp(-201)) / (1 + exp(-1)), far below the least float
    np.testing.assert_allclose(logits, -10000 - np.log(1 + np.exp(-1)), rtol=1e-6)
    assert np.isfinite(gradient).all()
    assert gradient[0, 0] > 100


def test_diagonal_is_a_loop():
    prior = 2.0
    expected = np.zeros((6, WAY))
    for k in range(WAY):
        members = SUPPORT[k == LABELS]
        mean = members.mean(0)
        variance = (sum((point - mean) ** 2 for point in members) + prior * VARIANCE) / (len(members) + prior)
        for i, query in enumerate(QUERIES):
            expected[i, k] = scipy.stats.norm.logpdf(query, mean, np.sqrt(variance)).sum()
    logits = jax.jit(functools.partial(gaussian_classifier, way=WAY, prior=prior))(QUERIES, SUPPORT, LABELS, VARIANCE)
    np.testing.assert_allclose(logits, expected + D / 2 * np.log(2 * np.pi), rtol=1e-5, atol=1e-5)


def test_diagonal_of_one_half_is_squared_euclidean_at_one_shot():
    # A single point has no spread: with prior 1 its variance is half the shared one.
    args = QUERIES, SUPPORT[:WAY], np.arange(WAY)
    logits = jax.jit(functools.partial(gaussian_classifier, way=WAY, prior=1.0))(*args, np.ones(D, np.float32))
    np.testing.assert_allclose(softmax(logits), softmax(jitted('prototypical')(*args)), rtol=1e-4, atol=1e-7)


def test_several_prototypes_are_an_equal_mixture():
    support = np.array([[0.0, 0.0], [0.0, 6.0], [20.0, 0.0], [26.0, 0.0]], np.float32)
    queries = np.array([[1.0, 3.0], [9.0, 1.0]], np.float32)
    labels = np.array([0, 0, 1, 1])
    logits = jax.jit(lambda: prototypical(queries, support, labels, way=2, per_class=2))()  # NumPy arrays will do
    distances = np.array([[np.sum((query - point) ** 2) for point in support] for query in queries])
    expected = [[scipy.special.logsumexp(-d[:2]), scipy.special.logsumexp(-d[2:])] for d in distances]
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_losses_and_accuracies_by_hand():
    logits = jnp.log(jnp.array([[1.0, 2.0, 5.0], [6.0, 3.0, 1.0], [0.2, 0.2, 0.1]]))
    labels = jnp.array([2, 1, 1])
    np.testing.assert_allclose(losses(logits, labels), -np.log([5 / 8, 3 / 10, 2 / 5]), rtol=1e-6)
    np.testing.assert_array_equal(accuracies(logits[:2], labels[:2]), [1, 0])


PRECISION = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])
MIXTURES = {  # divergence, and the density of the exponential family that belongs to it, by its mean
    'Gaussian of covariance I / 2': (
        squared_euclidean,
        lambda z, mean: scipy.stats.multivariate_normal.pdf(z, mean, np.eye(D) / 2),
    ),
    'Gaussian of precision 2 P': (
        mahalanobis(PRECISION),
        lambda z, mean: scipy.stats.multivariate_normal.pdf(z, mean, np.linalg.inv(2 * PRECISION)),
    ),
    'Poisson': (
        bregman(lambda z: jnp.sum(z * jnp.log(z))),
        lambda z, mean: scipy.stats.poisson.pmf(z, mean).prod(),
    ),
    'exponential': (
        bregman(lambda z: -jnp.sum(jnp.log(z))),
        lambda z, mean: scipy.stats.expon.pdf(z, scale=mean).prod(),
    ),
}


@pytest.mark.parametrize('name', MIXTURES)
def test_prediction_is_inference_in_an_equally_weighted_mixture(name, x64):
    divergence, density = MIXTURES[name]
    rng = np.random.default_rng(1)
    support, queries = rng.integers(1, 5, (WAY * SHOT, D)).astype(float), rng.integers(1, 5, (6, D)).astype(float)
    means = [support[k == LABELS].mean(0) for k in range(WAY)]
    joint = np.array([[density(query, mean) / WAY for mean in means] for query in queries])
    classify = jax.jit(functools.partial(prototypical, way=WAY, distance=divergence))
    posterior = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(softmax(classify(queries, support, LABELS)), posterior, rtol=1e-8)


@each_classifier
def test_order_of_queries_classes_and_support(name):
    classify = jitted(name)
    logits = classify(QUERIES, SUPPORT, LABELS)
    rng = np.random.default_rng(2)
    queries, classes, support = rng.permutation(6), rng.permutation(WAY), rng.permutation(len(LABELS))
    by_query = classify(QUERIES[queries], SUPPORT, LABELS)
    np.testing.assert_allclose(by_query, logits[queries], rtol=1e-5, atol=1e-6)
    renamed = classify(QUERIES, SUPPORT, classes[LABELS])
    np.testing.assert_allclose(renamed[:, classes], logits, rtol=1e-5, atol=1e-6)
    shuffled = classify(QUERIES, SUPPORT[support], LABELS[support])
    np.testing.assert_allclose(shuffled, logits, rtol=1e-4, atol=1e-5)


@each_classifier
def test_an_empty_class_is_never_predicted_and_does_no_harm(name):
    # The empty class sits in the middle, and its unused prototype, the origin, is right where the queries are.
    labels = np.where(LABELS >= 2, LABELS + 1, LABELS)
    queries, truth = QUERIES * 0.01, np.where(QUERY_LABELS >= 2, QUERY_LABELS + 1, QUERY_LABELS)

    def loss(queries, support):
        return losses(CLASSIFIERS[name](queries, support, labels, way=WAY + 1), truth).mean()

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(queries, SUPPORT)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in gradients)
    logits = jitted(name, WAY + 1)(queries, SUPPORT, labels)
    assert (np.argmax(logits, 1) != 2).all()
    expected = softmax(jitted(name)(queries, SUPPORT, LABELS))
    probabilities = softmax(logits)
    np.testing.assert_allclose(np.delete(probabilities, 2, 1), expected, rtol=1e-5)
    assert (probabilities[:, 2] == 0).all()


@pytest.mark.parametrize('name', ['prototypical', 'matching', 'diagonal'])
def test_plain_is_jit(name):
    plain = CLASSIFIERS[name](QUERIES, SUPPORT, LABELS, way=WAY)
    np.testing.assert_allclose(jitted(name)(QUERIES, SUPPORT, LABELS), plain, rtol=1e-5, atol=1e-6)


@each_classifier
def test_vmap_over_episodes_is_a_loop(name):
    episodes = np.stack([QUERIES, -QUERIES]), np.stack([SUPPORT, SUPPORT[::-1]]), np.stack([LABELS, 3 - LABELS])
    many = jax.jit(jax.vmap(functools.partial(CLASSIFIERS[name], way=WAY)))(*episodes)
    loop = [jitted(name)(*episode) for episode in zip(*episodes, strict=True)]
    np.testing.assert_allclose(many, loop, rtol=1e-5, atol=1e-6)


@each_classifier
def test_gradients_against_finite_differences(name, x64):
    queries, support = QUERIES.astype(float), SUPPORT.astype(float)

    @jax.jit
    def loss(queries, support):
        return losses(CLASSIFIERS[name](queries, support, LABELS, way=WAY), QUERY_LABELS).mean()

    rng = np.random.default_rng(3)
    gradients = jax.jit(jax.grad(loss, (0, 1)))(queries, support)
    for _ in range(3):
        to_queries, to_support = 1e-5 * rng.normal(size=queries.shape), 1e-5 * rng.normal(size=support.shape)
        ahead, behind = (loss(queries + s * to_queries, support + s * to_support) for s in (1, -1))
        expected = np.vdot(gradients[0], to_queries) + np.vdot(gradients[1], to_support)
        np.testing.assert_allclose((ahead - behind) / 2, expected, rtol=1e-6)


def test_priors_are_the_mixture_weights_of_the_classes():
    priors = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    logits = prototypical(QUERIES, SUPPORT, LABELS, way=WAY, priors=priors)
    joint = np.exp(jitted('prototypical')(QUERIES, SUPPORT, LABELS)) * priors[None]
    np.testing.assert_allclose(softmax(logits), joint / joint.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize('classify', [prototypical, matching])
def test_plain_lists_will_do_and_wrong_input_is_told(classify):
    from_lists = classify(QUERIES.tolist(), SUPPORT.tolist(), LABELS.tolist(), way=WAY)
    np.testing.assert_allclose(from_lists, classify(QUERIES, SUPPORT, LABELS, way=WAY), rtol=1e-6)
    with pytest.raises(ValueError, match='labels from 1 to 4, but way=4'):
        classify(QUERIES, SUPPORT, LABELS + 1, way=WAY)
    with pytest.raises(ValueError, match='20 whole numbers'):
        classify(QUERIES, SUPPORT, LABELS[:3], way=WAY)
    with pytest.raises(ValueError, match='whole numbers'):
        classify(QUERIES, SUPPORT, LABELS.astype(np.float32), way=WAY)
    with pytest.raises(ValueError, match=r'\[Q, D\] and \[N, D\]'):
        classify(QUERIES[0], SUPPORT, LABELS, way=WAY)
