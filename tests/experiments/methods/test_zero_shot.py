"""The losses of zero-shot systems against loops, and the centres of clustering against their definition."""

import jax
import numpy as np
import pytest

from experiments import cub
from experiments.methods import batches, clustering, compatibility, zero_shot
from experiments.methods.clustering import moved_centers
from experiments.methods.compatibility import structured_hinge, weighted_rank
from experiments.methods.joint_embedding import image_hinge, symmetric_hinge
from protojax.augmentation import random_crop
from protojax.datasets.synthetic.birds import birds
from protojax.devices import AXIS
from protojax.episodes import Dataset, Episode
from tests.helpers import made_up

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(6, 5)).astype(np.float32) * 2
KEY = jax.random.key(1)
LABELS = np.array([0, 3, 3, 4, 1, 0])


def hinge(n, y):
    return max(0.0, (y != LABELS[n]) + SCORES[n, y] - SCORES[n, LABELS[n]])


def ranked(hinges):
    rank = sum(hinge > 0 for hinge in hinges)
    return sum(1 / i for i in range(1, rank + 1)) / rank * sum(hinges) if rank else 0.0


SUMS = {structured_hinge: max, weighted_rank: ranked, image_hinge: np.mean}  # SJE, ALE, DA-SJE


@pytest.mark.parametrize(('losses', 'of_hinges'), SUMS.items())
def test_losses_of_violations(losses, of_hinges):
    expected = [of_hinges([hinge(n, y) for y in range(5)]) for n in range(6)]
    assert min(expected) == 0 and max(expected) > 0.5
    np.testing.assert_allclose(jax.jit(losses)(SCORES, LABELS), expected, rtol=1e-5)


def test_ds_sje_looks_from_classes_to_images_too():
    from_images, found = jax.jit(lambda: (image_hinge(SCORES, LABELS), symmetric_hinge(SCORES, LABELS)))()
    for n in range(6):
        own = SCORES[n, LABELS[n]]
        others = [max(0.0, 1 + SCORES[m, LABELS[n]] - own) if LABELS[m] != LABELS[n] else 0.0 for m in range(6)]
        np.testing.assert_allclose(found[n], np.asarray(from_images)[n] + np.mean(others), rtol=1e-5)


def test_the_modern_recipe_whitens_square_roots_with_a_ridge():
    data = birds(classes=(20, 5, 5), items=6, features=8)
    config = cub.EXPERIMENT.config(recipe='modern', way=4, query=2, dimensions=8)
    task = zero_shot.build(config, data, None)
    params, stats = jax.jit(task.init)(KEY)
    params['encoder'] = {'Dense_0': {'kernel': np.eye(8), 'bias': np.zeros(8)}}
    items = data.train.items.reshape(-1, 1, 8)
    roots = np.sign(items[:, 0]) * abs(items[:, 0]) ** 0.5
    variances, directions = np.linalg.eigh(np.cov((roots / np.linalg.norm(roots, axis=1, keepdims=True).clip(1e-6)).T))
    expected = variances / (variances + 10 * variances.mean())
    expected = directions * (expected / expected.mean()) @ directions.T
    np.testing.assert_allclose(np.cov(jax.jit(task.embed)(params, stats, items).T), expected, rtol=1e-2, atol=1e-2)
    _, (after, _) = jax.jit(task.loss)(params, stats, Dataset(*data.train[:3]), KEY)
    np.testing.assert_array_equal(after['whitening'], stats['whitening'])


def test_the_score_is_bilinear_in_features_and_attributes_of_unit_length():
    task = compatibility.learner(structured_hinge, (2, 7), 3, mean=tuple(range(7)), attribute_mean=(1.0, 2.0, 3.0))
    params, _ = made_up.variables(task.init)
    items, attributes = RNG.normal(size=(4, 2, 7)), RNG.normal(size=(5, 3)).astype(np.float32)
    queries = np.asarray(jax.jit(task.embed)(params, {}, items))
    episode = Episode(queries[:0], None, queries, None, np.arange(5), attributes=attributes)
    scores = jax.jit(task.classify)(params, {}, episode)
    x, a = items[:, 0] - np.arange(7), attributes - np.array([1, 2, 3])
    x, a = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, a))
    np.testing.assert_allclose(scores, x @ params['encoder']['Dense_0']['kernel'] @ a.T, rtol=1e-4, atol=1e-5)


def test_centres_move_to_the_mean_of_their_points():
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [50.0, 50.0]], np.float32)
    points = np.array([[1.0, 1.0], [2.0, 0.0], [9.0, 1.0]], np.float32)
    moved = jax.jit(moved_centers)(points, centers, 0.9)
    np.testing.assert_allclose(moved, [[0.15, 0.05], [9.9, 0.1], [50, 50]], rtol=1e-5)
    share = jax.vmap(lambda part: moved_centers(part, centers, 0.9, AXIS), axis_name=AXIS)
    shared = jax.jit(share)(points[:, None])
    np.testing.assert_allclose(np.asarray(shared)[2], moved, rtol=1e-5)


def clustered(**options):
    rng = np.random.default_rng(0)
    task = clustering.learner((2, 7), 3, 4, batch=8, dimensions=5, clusters=2, **options)
    items, attributes = rng.normal(size=(4, 6, 2, 7)), rng.normal(size=(4, 3))
    return task, *made_up.variables(task.init), Dataset(np.float32(items), np.full(4, 6), np.float32(attributes))


def test_the_hinge_does_not_reach_the_representation():
    task, params, stats, data = clustered()
    other = {**params, 'classifier': {**params['classifier'], 'to_attributes': np.ones((5, 3), np.float32)}}
    gradient = jax.jit(jax.grad(task.loss, has_aux=True))
    of_both = [jax.device_get(gradient(p, stats, data, KEY)[0]) for p in (params, other)]
    for ours, others in zip(*(jax.tree.leaves(g['encoder']) for g in of_both), strict=True):
        np.testing.assert_array_equal(ours, others)
    assert of_both[0]['classifier']['to_attributes'].any() and of_both[0]['encoder']['Dense_0']['kernel'].any()


def test_clustering_draws_points_to_centres():
    """The second term is the mean squared distance to the nearest centre; it reaches the representation alone."""
    (light, params, stats, data), (heavy, *_) = clustered(weight=0.0), clustered(weight=2.0)
    gradients = (jax.jit(jax.value_and_grad(task.loss, has_aux=True)) for task in (light, heavy))
    found = [jax.device_get(gradient(params, stats, data, KEY)) for gradient in gradients]
    (values, auxiliary), gradients = zip(*(value for value, _ in found), strict=True), [g for _, g in found]
    centers = auxiliary[0][0]['centers']
    assert not np.allclose(centers, stats['centers'])

    @jax.jit
    def embeddings(params, stats, data):
        batch = batches.sample(KEY, data, size=8)
        crops = random_crop(jax.random.fold_in(KEY, 1), batch.query, batch.query_labels, way=4)
        return light.embed(params, stats, crops)

    z = np.asarray(embeddings(params, stats, data))
    nearest = [min(np.sum((point - center) ** 2) for center in centers) for point in z]
    np.testing.assert_allclose(values[1] - values[0], 2 * np.mean(nearest), rtol=1e-4)
    assert not np.allclose(*(g['encoder']['Dense_0']['kernel'] for g in gradients))
    jax.tree.map(np.testing.assert_array_equal, *(g['classifier'] for g in gradients))
