"""Data sets on the host: the same episodes, the same parameters and the same embeddings as on the device."""

import itertools
from functools import partial

import jax
import numpy as np
import optax
import pytest

from protojax import hosted
from protojax.devices import parallelize, place
from protojax.encoders import LinearMap
from protojax.episodes import Dataset, sample_episode
from protojax.learners import few_shot_learner
from protojax.training import create_state, train_step

RNG = np.random.default_rng(0)
SIZES = {'way': 3, 'shot': 2, 'query': 2}
COUNTS = np.array([4, 6, 5, 6, 4], np.int32)
ITEMS = RNG.normal(size=(5, 6, 7)).astype(np.float32)
DATASET = Dataset(ITEMS, COUNTS)
KEY = jax.random.key(3)


def test_the_same_key_draws_the_same_episode():
    sample = jax.jit(partial(sample_episode, **SIZES))
    for step, drawn in zip(range(5, 9), hosted.episodes(DATASET, KEY, 5, way=3, items=4), strict=False):
        assert isinstance(drawn.items, np.ndarray)
        key = jax.random.fold_in(KEY, step)
        expected = sample(key, jax.device_put(DATASET))
        found = sample(key, drawn)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize('devices, per_step', [(4, 1), (4, 4)])
def test_training_ends_with_the_same_bits(devices, per_step):
    task = few_shot_learner(LinearMap(4), (7,), **SIZES)
    optimizer, devices = optax.adam(1e-2), jax.devices()[:devices]
    step = parallelize(partial(train_step, loss=task.loss, optimizer=optimizer, episodes=per_step), devices)

    def trained(feed):
        state = place(create_state(*task.init(jax.random.key(0)), optimizer), devices)
        for dataset in itertools.islice(feed, 5):
            state = step(state, dataset, KEY)
        return jax.device_get(state)

    on_device = trained(itertools.repeat(place(DATASET, devices)))
    on_host = trained(hosted.episodes(DATASET, KEY, 0, way=3, items=4, per_step=per_step))
    jax.tree.map(np.testing.assert_array_equal, on_host, on_device)


def test_splits_of_other_sizes_are_joined():
    joined = hosted.Joined([ITEMS, ITEMS[:2, :4] + 1])
    assert joined.shape == (7, 6, 7)
    found = joined[np.array([[6], [0], [5]]), np.array([[1, 3], [5, 0], [2, 2]])]
    np.testing.assert_array_equal(found, [ITEMS[1, [1, 3]] + 1, ITEMS[0, [5, 0]], ITEMS[0, [2, 2]] + 1])


def test_memory_mapped_files_are_read_like_arrays(tmp_path):
    (tmp_path / 'items').write_bytes(ITEMS.tobytes())
    mapped = DATASET._replace(items=np.memmap(tmp_path / 'items', np.float32, 'r', shape=ITEMS.shape))
    drawn = [next(hosted.episodes(dataset, KEY, 0, way=3, items=4)) for dataset in (DATASET, mapped)]
    jax.tree.map(np.testing.assert_array_equal, *drawn)
    np.testing.assert_array_equal(np.concatenate(list(hosted.chunks(mapped.items, 10))), ITEMS.reshape(30, 7))
