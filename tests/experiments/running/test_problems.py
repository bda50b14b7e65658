"""What zero-shot learning makes of its inputs, and what few-shot learning puts into weights."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.running.config import FewShotConfig, ZeroShotConfig
from experiments.running.problems import few_shot_problem, training_changes, zero_shot_problem
from protojax.datasets import Data, Split

CONFIG = ZeroShotConfig(way=4, query=2, dimensions=16)


def split(seed, *, factor=1.0, shift=0.0, padding=0.0):
    """Six classes with 3 items of 2 crops, in room for 5."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(6, 5, 2, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    attributes = rng.uniform(0, 100, (6, 4)).astype(np.float32)
    items = items * factor + shift
    items[:, 3:] = padding
    names = tuple(f'class{k}' for k in range(6))
    return Split(items, np.full(6, 3, np.int32), names, attributes * factor + shift)


def problem(**change):
    train = split(0, **change)
    return zero_shot_problem(CONFIG, Data('tiny', True, train, split(1, **change), None)).task, train


def embedded(task, train, params):
    """Embeddings of the training images and scores of the classes."""
    images = task.embed(params, {}, train.items[:, :3].reshape(-1, 2, 7))
    return images, task.classify(params, images, train.attributes)


def test_training_starts_from_equal_scores_of_all_classes():
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    images, logits = embedded(task, train, params)
    assert not images.any()
    np.testing.assert_allclose(logits, np.full((18, 6), -1), rtol=1e-5)  # prototypes have unit length
    gradient = jax.grad(lambda p: jax.nn.log_softmax(embedded(task, train, p)[1])[:, 0].sum())(params)
    assert np.linalg.norm(gradient['images']['Dense_0']['kernel']) > 1


@pytest.mark.parametrize('change', [{'factor': 50.0}, {'shift': 20.0}, {'padding': 1e6}], ids=str)
def test_unit_origin_and_padding_of_the_inputs_do_not_matter(change):
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    params['images'] = jax.tree.map(lambda p: p + 1, params['images'])
    other_task, other_train = problem(**change)
    for ours, others in zip(embedded(task, train, params), embedded(other_task, other_train, params), strict=True):
        np.testing.assert_allclose(others, ours, rtol=1e-3, atol=1e-3)


def test_inputs_keep_their_relative_spread():
    """Dimension k of the features varies k times as much as the first, and still does so when scaled."""
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    kernel = np.eye(7, 16, dtype=np.float32)
    images, _ = embedded(task, train, {**params, 'images': {'Dense_0': {'kernel': kernel, 'bias': np.zeros(16)}}})
    expected = train.items[:, :3, 0].reshape(-1, 7).std(0)
    np.testing.assert_allclose(images[:, :7].std(0) / images[:, 0].std(), expected / expected[0], rtol=1e-4)
    every_crop = train.items[:, :3].reshape(-1, 7)
    scale = np.sqrt(((every_crop - every_crop.mean(0)[None]) ** 2).mean())
    np.testing.assert_allclose(images[:, :7].std(0), expected / scale, rtol=1e-4)


@pytest.mark.parametrize('mirrors, pixels', [(False, 0), (True, 0), (False, 2), (True, 2)])
def test_flags_say_how_training_images_are_changed(mirrors, pixels):
    image = np.zeros((1, 9, 9, 1), np.uint8)
    image[:, 4, 2] = 255  # right of the middle when mirrored, in other rows when moved
    rows, columns = set(), set()
    for seed in range(50):
        changed = image
        for change in training_changes(FewShotConfig(mirror=mirrors, shift=pixels)):
            changed = change(jax.random.key(seed), changed, np.zeros(1, int), way=1)
        rows.update(np.nonzero(changed)[1].tolist())
        columns.update(np.nonzero(changed)[2].tolist())
    assert rows == set(range(4 - pixels, 5 + pixels))
    assert columns >= ({2, 6} if mirrors else {2})
    assert (max(columns) > 4) == mirrors


@pytest.mark.parametrize('distance', ['euclidean', 'cosine'])
def test_weights_hold_the_temperature_of_squared_distances(distance, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16, 1), dtype=np.uint8)
    classes = Split(images, np.full(4, 3, np.int32), tuple('abcd'), None)
    config = FewShotConfig(way=2, shot=1, query=2, test_way=(2,), test_shot=(1,), test_query=2, kernels='off')
    make = lambda temperature, weights='': few_shot_problem(  # noqa: E731
        dataclasses.replace(config, distance=distance, temperature=temperature, validation_way=2, weights=weights),
        Data('tiny', True, classes, classes, classes),
    )

    def scores(problem, params, batch_stats):
        embeddings = problem.task.embed(params, batch_stats, images[:, 0])
        return problem.task.classify(params, embeddings, embeddings, np.arange(4), way=4)

    warm, file = make(16.0), str(tmp_path / 'weights.npz')
    params, batch_stats = warm.task.initialize(jax.random.key(0))
    warm.save(file, params, batch_stats, {'seed': 3})
    expected = scores(warm, params, batch_stats)
    again, plain = make(16.0, file), make(1.0, file)
    variables, description = again.load()
    assert description['seed'] == 3
    np.testing.assert_array_equal(scores(again, *variables), expected)
    without = scores(plain, *plain.load()[0])
    np.testing.assert_allclose(without, expected * (1 if distance == 'euclidean' else 16), rtol=1e-6)
    assert np.ptp(expected) > 0
