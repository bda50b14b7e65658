"""Data sets on the host: the same episodes, the same parameters and the same embeddings as on the device."""

import itertools
from functools import partial

import jax
import numpy as np
import optax
import pytest

from protojax.devices import parallelize, place
from protojax.encoders import LinearMap
from protojax.episodes import Dataset, sample_episode
from protojax.evaluation import embedder
from protojax.hosted import Joined, chunks, episodes
from protojax.tasks import few_shot_task
from protojax.training import create_state, train_step

RNG = np.random.default_rng(0)
SIZES = {'way': 3, 'shot': 2, 'query': 2}
COUNTS = np.array([4, 6, 5, 6, 4], np.int32)
ITEMS = RNG.normal(size=(5, 6, 7)).astype(np.float32)
DATASET = Dataset(ITEMS, COUNTS)
KEY = jax.random.key(3)


def test_the_same_key_draws_the_same_episode():
    for step, drawn in zip(range(5, 9), episodes(DATASET, KEY, 5, way=3, items=4), strict=False):
        assert isinstance(drawn.items, np.ndarray)
        key = jax.random.fold_in(KEY, step)
        expected = sample_episode(key, jax.device_put(DATASET), **SIZES)
        found = sample_episode(key, drawn, **SIZES)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize('devices, per_step', [(1, 1), (4, 1), (1, 4), (4, 4)])
def test_training_ends_with_the_same_bits(devices, per_step):
    task = few_shot_task(LinearMap(4), (7,), **SIZES)
    optimizer, devices = optax.adam(1e-2), jax.devices()[:devices]
    step = parallelize(partial(train_step, loss=task.loss, optimizer=optimizer, episodes=per_step), devices)

    def trained(feed):
        state = place(create_state(*task.initialize(jax.random.key(0)), optimizer), devices)
        for dataset in itertools.islice(feed, 5):
            state = step(state, dataset, KEY)
        return jax.device_get(state)

    on_device = trained(itertools.repeat(place(DATASET, devices)))
    on_host = trained(episodes(DATASET, KEY, 0, way=3, items=4, per_step=per_step))
    jax.tree.map(np.testing.assert_array_equal, on_host, on_device)


def test_splits_are_joined_without_a_copy(tmp_path):
    first, second = np.memmap(tmp_path / 'items', np.float32, 'w+', shape=(5, 6, 7)), ITEMS[:2, :4] + 1
    first[:] = ITEMS
    joined = Joined([first, second])
    assert joined.shape == (7, 6, 7)
    classes, places = np.array([6, 0, 5, 4]), np.array([[1, 3], [5, 0], [2, 2], [0, 1]])
    expected = [
        [(ITEMS[k] if k < 5 else second[k - 5])[i] for i in own] for k, own in zip(classes, places, strict=True)
    ]
    np.testing.assert_array_equal(joined[classes[:, None], places], expected)


@pytest.mark.parametrize('size', [1, 4, 7, 30, 64])
def test_chunks_have_every_item_once_in_order(size):
    found = np.concatenate(list(chunks(ITEMS, size)))
    np.testing.assert_array_equal(found[:30], ITEMS.reshape(30, 7))
    assert len(found) % size == 0


@pytest.mark.parametrize('devices', [1, 4])
def test_embeddings_are_the_same(devices):
    task = few_shot_task(LinearMap(4), (7,), **SIZES)
    variables = task.initialize(jax.random.key(0))
    embed = embedder(task.embed, jax.devices()[:devices], batch_size=4)
    on_device = embed(*variables, place(DATASET, jax.devices()[:devices]))
    np.testing.assert_array_equal(embed(*variables, DATASET).items, on_device.items)
