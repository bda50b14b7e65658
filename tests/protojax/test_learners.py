"""The two learning problems against straightforward recomputations of their losses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from protojax.classifiers import by_distance, by_gaussians, matching
from protojax.distances import Parametric, cosine, learned_mahalanobis, no_params
from protojax.encoders import Conv4, LinearMap, encode
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.learners import few_shot_learner, zero_shot_learner

RNG = np.random.default_rng(0)
SIZES = {'way': 3, 'shot': 2, 'query': 4}
COUNTS = np.full(4, 6, np.int32)
IMAGES = jax.device_put(Dataset(RNG.integers(0, 256, (4, 6, 16, 16, 1), dtype=np.uint8), COUNTS))
VECTORS = jax.device_put(Dataset(np.float32(RNG.normal(size=(4, 6, 5))), COUNTS))


def squared_distances(a, b):
    return np.array([[np.sum((x - y) ** 2) for y in b] for x in a])


def check_metrics(metrics, logits, labels):
    """Loss and accuracy are those of the logits."""
    expected = -np.mean([log_softmax(row)[label] for row, label in zip(logits, labels, strict=True)])
    np.testing.assert_allclose(metrics['loss'], expected, rtol=1e-4)
    accuracy = np.mean([np.argmax(row) == label for row, label in zip(logits, labels, strict=True)])
    np.testing.assert_allclose(metrics['accuracy'], accuracy, rtol=1e-6)


def test_few_shot_loss_is_recomputed():
    encoder = Conv4(filters=4, kernels=False)
    task = few_shot_learner(encoder, (16, 16, 1), **SIZES)
    params, batch_stats = task.init(jax.random.key(0))
    key = jax.random.key(1)
    value, (new_stats, metrics) = jax.jit(task.loss)(params, batch_stats, IMAGES, key)

    episode = jax.jit(functools.partial(sample_episode, **SIZES))(key, IMAGES)
    images = np.concatenate([episode.support, episode.query])
    together = jax.jit(functools.partial(encode, encoder, train=True))
    embeddings, expected_stats = together(params['encoder'], batch_stats, images)
    support, queries = np.split(np.asarray(embeddings), [6])
    means = [(support[2 * k] + support[2 * k + 1]) / 2 for k in range(3)]
    check_metrics(metrics, -squared_distances(queries, means), episode.query_labels)
    assert value == metrics['loss']
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), new_stats, expected_stats)


CLASSIFIERS = {
    'a function and a distance': {'classify': matching, 'distance': cosine},
    'mahalanobis': {'distance': learned_mahalanobis()},
    'gaussians': {'classify': by_gaussians()},
}


@pytest.mark.parametrize('name', CLASSIFIERS)
def test_every_classifier_learns(name):
    task = few_shot_learner(LinearMap(4), (5,), **SIZES, **CLASSIFIERS[name])
    params, batch_stats = task.init(jax.random.key(0))

    loss = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (before, _), gradients = loss(params, batch_stats, VECTORS, jax.random.key(1))
    assert np.isfinite(before)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        assert np.isfinite(leaf).all(), path
        # the bias of a linear map moves queries and prototypes alike, which only affects cosine distances
        assert np.abs(leaf).max() > 1e-6 or 'bias' in str(path), path
    improved = jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients)
    assert loss(improved, batch_stats, VECTORS, jax.random.key(1))[0][0] < before


def test_a_classifier_may_use_unlabeled_examples():
    def classify(params, episode):
        assert episode.unlabeled.shape == (9, 4)  # embedded
        return by_distance().apply({}, episode) + 0 * episode.unlabeled.sum()

    options = {'classify': Parametric(no_params, classify), 'unlabeled': 3}
    task = few_shot_learner(LinearMap(4), (5,), way=3, shot=1, query=2, **options)
    value, _ = jax.jit(task.loss)(*task.init(jax.random.key(0)), VECTORS, jax.random.key(1))
    assert np.isfinite(value)


def zero_shot():
    """Return a learner, a data set of 5 classes of 4 items, and params; items [10 crops, 6], attributes [7]."""
    task = zero_shot_learner(LinearMap(3), LinearMap(3, unit_length=True), (10, 6), 7, way=3, query=4)
    rng = np.random.default_rng(0)
    items, attributes = rng.normal(size=(5, 4, 10, 6)), rng.normal(size=(5, 7))
    dataset = Dataset(jnp.asarray(items, jnp.float32), jnp.full(5, 4), jnp.asarray(attributes, jnp.float32))
    return task, dataset, task.init(jax.random.key(0))[0]


def linear(params, x):
    return np.asarray(x) @ np.asarray(params['Dense_0']['kernel']) + np.asarray(params['Dense_0']['bias'])[None]


def test_zero_shot_loss_is_recomputed_from_the_crops_that_it_used():
    task, dataset, params = zero_shot()

    @jax.jit
    @jax.vmap
    def run(key):  # the gradient shows which crops of which classes were used
        gradient = jax.grad(functools.partial(task.loss, params, {}), has_aux=True, allow_int=True)
        used, (_, metrics) = gradient(dataset, key)
        return metrics, used.items, used.attributes

    metrics, of_items, of_attributes = jax.device_get(run(jax.random.split(jax.random.key(1), 40)))
    crop_counts = np.zeros(10)
    for episode in range(40):
        used = np.abs(of_items[episode]).max(-1) > 0  # [class, item, crop]
        classes = np.flatnonzero(used.any((1, 2)))
        np.testing.assert_array_equal(np.flatnonzero(np.abs(of_attributes[episode]).max(1) > 0), classes)
        assert len(classes) == 3
        assert (used[classes].sum(-1) == 1).all()  # all four items of a class, one crop of each
        crop_counts += used.sum((0, 1))
        queries = linear(params['encoder'], np.asarray(dataset.items)[used])  # class by class
        prototypes = linear(params['classifier'], dataset.attributes[classes])
        prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
        ours = {name: values[episode] for name, values in metrics.items()}
        check_metrics(ours, -squared_distances(queries, prototypes), np.repeat(np.arange(3), 4))
    # Below the 99.9 % quantile of chi-square with nine degrees of freedom.
    assert np.square(crop_counts - crop_counts.mean()).sum() / crop_counts.mean() < 27.9


def test_zero_shot_test_uses_the_middle_crop_and_unit_prototypes():
    task, dataset, params = zero_shot()
    items = dataset.items[1]
    queries = task.embed(params, {}, items)
    np.testing.assert_allclose(queries, linear(params['encoder'], items[:, 0]), rtol=1e-4, atol=1e-5)
    prototypes = linear(params['classifier'], dataset.attributes)
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    nothing, classes = (jnp.zeros((0, 3)), jnp.zeros(0, int)), jnp.arange(5)
    episode = Episode(*nothing, queries, jnp.ones(4, int), classes, attributes=dataset.attributes)
    logits = task.classify(params, {}, episode)
    np.testing.assert_allclose(logits, -squared_distances(np.asarray(queries), prototypes), rtol=1e-4)


def test_the_task_binds_the_shape_of_images():
    own = Conv4(item_shape=(32, 32, 1))
    assert few_shot_learner(own, (16, 16, 1), **SIZES).encoder is own
    assert few_shot_learner(Conv4(), (16, 16, 1), **SIZES).encoder.item_shape == (16, 16, 1)
