"""The two learning problems against straightforward recomputations of their losses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from scipy.special import log_softmax

import protojax
from protojax.classifiers import by_gaussians, by_matching, by_prototypes
from protojax.distances import cosine, learned_mahalanobis
from protojax.encoders import Conv4, LinearMap, ResNet12, encode, initialize
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.tasks import few_shot_task, task_started_from, zero_shot_task

RNG = np.random.default_rng(0)
SIZES = {'way': 3, 'shot': 2, 'query': 4}
IMAGES = Dataset(jnp.asarray(RNG.integers(0, 256, (4, 6, 16, 16, 1), dtype=np.uint8)), jnp.full(4, 6))
VECTORS = Dataset(jnp.asarray(RNG.normal(size=(4, 6, 5)), jnp.float32), jnp.full(4, 6))


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
    task = few_shot_task(encoder, (16, 16, 1), **SIZES)
    params, batch_stats = task.initialize(jax.random.key(0))
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
    np.testing.assert_allclose(
        jax.jit(task.embed)(params, new_stats, images),
        jax.jit(functools.partial(encode, encoder))(params['encoder'], new_stats, images)[0],
        rtol=1e-4,
        atol=1e-5,
    )


CLASSIFIERS = {
    'prototypes': by_prototypes(),
    'prototypes, cosine': by_prototypes(cosine, temperature=0.1),
    'prototypes, mahalanobis': by_prototypes(learned_mahalanobis()),
    'gaussians': by_gaussians(),
    'two prototypes per class': by_prototypes(per_class=2),
    'matching': by_matching(),
    'matching, cosine': by_matching(cosine),
    'matching, mahalanobis': by_matching(learned_mahalanobis()),
}


@pytest.mark.parametrize('name', CLASSIFIERS)
def test_every_classifier_learns(name):
    task = few_shot_task(LinearMap(4), (5,), **SIZES, classify=CLASSIFIERS[name])
    params, batch_stats = task.initialize(jax.random.key(0))

    @jax.jit
    def loss_and_step(params):
        (value, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(
            params, batch_stats, VECTORS, jax.random.key(1)
        )
        return value, gradients, jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients)

    before, gradients, improved = loss_and_step(params)
    assert np.isfinite(before)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        assert np.isfinite(leaf).all(), path
        # the bias of a linear map moves queries and prototypes alike, which only cosine sees
        assert np.abs(leaf).max() > 1e-6 or 'bias' in str(path), path
    assert loss_and_step(improved)[0] < before


def embedded_episode(support, queries, way):
    """One support example of each class."""
    labels = jnp.arange(way)
    return Episode(support, labels, queries, jnp.zeros(len(queries), int), labels)


def test_learned_distances_start_as_the_squared_euclidean_one():
    support, queries = RNG.normal(size=(4, 5)).astype(np.float32), RNG.normal(size=(3, 5)).astype(np.float32)
    learned = by_prototypes(learned_mahalanobis())
    logits = learned.apply(learned.initialize(jax.random.key(0), 5), embedded_episode(support, queries, 4))
    np.testing.assert_allclose(logits, -squared_distances(queries, support), rtol=1e-4)
    params = by_gaussians().initialize(jax.random.key(0), 5)
    np.testing.assert_allclose(jax.nn.softplus(params['variance']), [0.5] * 5, rtol=1e-5)


@pytest.mark.parametrize('classifier', [by_prototypes, by_matching])
def test_temperature_divides_the_distance(classifier):
    support, queries = RNG.normal(size=(4, 5)).astype(np.float32), RNG.normal(size=(3, 5)).astype(np.float32)
    logits = classifier(temperature=4.0).apply({}, embedded_episode(support, queries, 4))
    expected = log_softmax(-squared_distances(queries, support) / 4, 1)
    np.testing.assert_allclose(log_softmax(np.asarray(logits), 1), expected, rtol=1e-4, atol=1e-5)


def test_a_classifier_may_use_unlabeled_examples():
    """Their embeddings reach the classifier, from the same pass through the encoder as the others."""
    seen = {}

    def classify(params, episode):
        seen['shape'] = episode.unlabeled.shape
        return by_prototypes().apply({}, episode) + 0 * episode.unlabeled.sum()

    task = few_shot_task(LinearMap(4), (5,), way=3, shot=1, query=2, unlabeled=3, classify=classify)
    params, batch_stats = task.initialize(jax.random.key(0))
    value, _ = jax.jit(task.loss)(params, batch_stats, VECTORS, jax.random.key(1))
    assert np.isfinite(value) and seen['shape'] == (9, 4)


def zero_shot(crops):
    """Task, data set of 5 classes of 4 items, params; items [crops, 6], attributes [7]."""
    task = zero_shot_task(LinearMap(3), LinearMap(3, unit_length=True), (crops, 6), 7, way=3, query=4)
    rng = np.random.default_rng(crops)
    items, attributes = rng.normal(size=(5, 4, crops, 6)), rng.normal(size=(5, 7))
    dataset = Dataset(jnp.asarray(items, jnp.float32), jnp.full(5, 4), jnp.asarray(attributes, jnp.float32))
    return task, dataset, task.initialize(jax.random.key(0))[0]


def linear(params, x):
    return np.asarray(x) @ np.asarray(params['Dense_0']['kernel']) + np.asarray(params['Dense_0']['bias'])[None]


def test_a_task_that_starts_from_trained_parameters():
    task = few_shot_task(LinearMap(3), (5,), distance=learned_mahalanobis(), **SIZES)
    trained, _ = initialize(LinearMap(3), jax.random.key(7), (5,))
    fresh, _ = task.initialize(jax.random.key(0))
    params, batch_stats = task_started_from(task, trained, {'mean': 1.0}).initialize(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, params, {**fresh, 'encoder': trained})
    assert batch_stats == {'mean': 1.0} and not np.allclose(*jax.tree.leaves((fresh['encoder'], trained))[1::2])


@pytest.mark.parametrize('crops', [1, 10])
def test_zero_shot_loss_is_recomputed_from_the_crops_that_it_used(crops):
    task, dataset, params = zero_shot(crops)

    @jax.jit
    @jax.vmap
    def run(key):  # the gradient tells which crops were used, and of which classes
        (_, (stats, metrics)), used = jax.value_and_grad(
            lambda d, k: task.loss(params, {}, d, k), has_aux=True, allow_int=True
        )(dataset, key)
        assert stats == {}
        return metrics, used.items, used.attributes

    metrics, of_items, of_attributes = map(
        lambda t: jax.tree.map(np.asarray, t), run(jax.random.split(jax.random.key(1), 40))
    )
    crop_counts = np.zeros(crops)
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
        ours = jax.tree.map(lambda m, e=episode: m[e], metrics)
        check_metrics(ours, -squared_distances(queries, prototypes), np.repeat(np.arange(3), 4))
    assert scipy.stats.chisquare(crop_counts).pvalue > 1e-3 if crops > 1 else crop_counts == 480


def test_zero_shot_test_uses_the_middle_crop_and_unit_prototypes():
    task, dataset, params = zero_shot(10)
    items = dataset.items[1]
    queries = task.embed(params, {}, items)
    np.testing.assert_allclose(queries, linear(params['encoder'], items[:, 0]), rtol=1e-4, atol=1e-5)
    prototypes = linear(params['classifier'], dataset.attributes)
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    nothing = jnp.zeros((0, 3))
    episode = Episode(
        nothing, jnp.zeros(0, int), queries, jnp.ones(4, int), jnp.arange(5), attributes=dataset.attributes
    )
    logits = task.classify(params, episode)
    np.testing.assert_allclose(logits, -squared_distances(np.asarray(queries), prototypes), rtol=1e-4)


def test_the_task_binds_the_shape_of_images():
    """Conv4 takes images of any size and gives as many dimensions as they need."""
    task = few_shot_task(Conv4(filters=8), (16, 16, 1), **SIZES)
    assert task.encoder.item_shape == (16, 16, 1)
    params, batch_stats = task.initialize(jax.random.key(0))
    with pytest.raises(ValueError, match=r'takes \[N, 16, 16, 1\]'):
        task.embed(params, batch_stats, np.zeros((2, 32, 32, 1), np.uint8))
    small = Conv4(filters=8, item_shape=(32, 32, 1))
    assert few_shot_task(small, (16, 16, 1), **SIZES).encoder is small  # it has a shape of its own
    vectors = LinearMap(4)
    assert few_shot_task(vectors, (5,), **SIZES).encoder is vectors


def test_augmentations_may_change_the_shape_of_training_images():
    def cropped(key, items, labels, *, way):
        return items[:, 4:12, 4:12]

    task = few_shot_task(ResNet12(widths=(4,)), (16, 16, 1), augmentations=[cropped], **SIZES)
    variables = jax.jit(task.initialize)(jax.random.key(0))
    value, _ = jax.jit(task.loss)(*variables, IMAGES, jax.random.key(1))
    assert np.isfinite(value)


def test_a_zero_shot_loop_of_public_names():
    rng = np.random.default_rng(0)
    attributes = rng.normal(size=(6, 7)).astype(np.float32)
    items = attributes[:, None, None, :5] + rng.normal(scale=0.1, size=(6, 8, 1, 5)).astype(np.float32)
    dataset, devices = protojax.Dataset(items, np.full(6, 8, np.int32), attributes), protojax.usable_devices(3 * 4)
    maps = protojax.LinearMap(4), protojax.LinearMap(4, unit_length=True, item_shape=(7,))
    task = protojax.zero_shot_task(*maps, (1, 5), 7, way=3, query=4, distance=protojax.euclidean)
    optimizer = optax.adam(1e-2)
    steps = functools.partial(protojax.train_steps, steps=100, loss=task.loss, optimizer=optimizer)
    state = protojax.create_state(*task.initialize(jax.random.key(0)), optimizer)
    state = protojax.parallelize(steps, devices)(state, dataset, jax.random.key(1))
    embedded = protojax.embedder(task.embed, devices)(state.params, state.batch_stats, dataset)
    per_image, per_class = protojax.zero_shot_scorer(task.classify, devices)(state.params, embedded)
    assert per_image.accuracy > 80 and per_class.accuracy > 80
