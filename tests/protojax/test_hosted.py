"""Data sets on the host: the same episodes, the same parameters and the same embeddings as on the device."""

import itertools
import os
import pathlib
import re
from functools import partial

import jax
import numpy as np
import optax
import pytest

from protojax.devices import parallelize, place
from protojax.encoders import LinearMap
from protojax.episodes import Dataset, sample_episode
from protojax.evaluation import embedder
from protojax.hosted import JoinedHostedItems, hosted_chunks, hosted_episodes, hosted_items
from protojax.tasks import few_shot_task
from protojax.training import create_state, train_step

RNG = np.random.default_rng(0)
SIZES = {'way': 3, 'shot': 2, 'query': 2}
COUNTS = np.array([4, 6, 5, 6, 4], np.int32)
ITEMS = RNG.normal(size=(5, 6, 7)).astype(np.float32)
DATASET = Dataset(ITEMS, COUNTS)
KEY = jax.random.key(3)


def test_the_same_key_draws_the_same_episode():
    for step, drawn in zip(range(5, 9), hosted_episodes(DATASET, KEY, 5, way=3, items=4), strict=False):
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
    on_host = trained(hosted_episodes(DATASET, KEY, 0, way=3, items=4, per_step=per_step))
    jax.tree.map(np.testing.assert_array_equal, on_host, on_device)


def test_splits_are_joined_without_a_copy(tmp_path):
    first, second = np.memmap(tmp_path / 'items', np.float32, 'w+', shape=(5, 6, 7)), ITEMS[:2, :4] + 1
    first[:] = ITEMS
    joined = JoinedHostedItems([first, second])
    assert joined.shape == (7, 6, 7)
    classes, places = np.array([6, 0, 5, 4]), np.array([[1, 3], [5, 0], [2, 2], [0, 1]])
    expected = [
        [(ITEMS[k] if k < 5 else second[k - 5])[i] for i in own] for k, own in zip(classes, places, strict=True)
    ]
    np.testing.assert_array_equal(joined[classes[:, None], places], expected)


@pytest.mark.parametrize('size', [1, 4, 7, 30, 64])
def test_chunks_have_every_item_once_in_order(size):
    found = np.concatenate(list(hosted_chunks(ITEMS, size)))
    np.testing.assert_array_equal(found[:30], ITEMS.reshape(30, 7))
    assert len(found) % size == 0


@pytest.mark.parametrize('devices', [1, 4])
def test_embeddings_are_the_same(devices):
    task = few_shot_task(LinearMap(4), (7,), **SIZES)
    variables = task.initialize(jax.random.key(0))
    embed = embedder(task.embed, jax.devices()[:devices], batch_size=4)
    on_device = embed(*variables, place(DATASET, jax.devices()[:devices]))
    np.testing.assert_array_equal(embed(*variables, DATASET).items, on_device.items)


def resident(path):
    """Bytes of a mapped file that this process holds in memory."""
    maps = pathlib.Path('/proc/self/smaps').read_text()
    found = re.findall(rf'{re.escape(str(path))}\n(?:\w+: .*\n)*?Rss:\s+(\d+) kB', maps)
    assert found
    return 1024 * sum(map(int, found))


@pytest.mark.skipif(not os.path.exists('/proc/self/smaps'), reason='the system does not tell')
def test_mapped_files_do_not_stay_in_memory(tmp_path):
    path, shape = tmp_path / 'items', (4, 50, 64, 64)
    values = RNG.integers(0, 256, shape, np.uint8)
    path.write_bytes(bytes(100) + values.tobytes())
    array = np.memmap(path, np.uint8, 'r', 100, shape)
    classes, places = np.array([[3], [0]]), np.array([[49, 7], [0, 20]])
    items = hosted_items(array)
    np.testing.assert_array_equal(items[classes, places], values[classes, places])
    assert resident(path) == 0
    np.testing.assert_array_equal(items.array[2, 5], values[2, 5])
    assert resident(path) > 0
    joined = hosted_items(JoinedHostedItems([array, array]))
    np.testing.assert_array_equal(joined[classes + 4, places], values[classes, places])
    assert resident(path) == 0
    np.testing.assert_array_equal(np.concatenate(list(hosted_chunks(array, 40))), values.reshape(200, 64, 64))


def test_mapped_files_that_may_change_are_left_to_numpy(tmp_path):
    path = tmp_path / 'items'
    ITEMS.tofile(path)
    changed = np.memmap(path, np.float32, 'c', shape=ITEMS.shape)
    changed[0] = 7
    assert hosted_items(changed) is changed
    assert (hosted_items(JoinedHostedItems([changed]))[np.array([[0]]), np.array([[1]])] == 7).all()
    part = np.memmap(path, np.float32, 'r', shape=ITEMS.shape)[:, ::2]
    assert hosted_items(part) is part
