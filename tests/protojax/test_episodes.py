"""Episodes: what may never happen, and by chi-square tests that every class and every item is equally likely."""

import functools

import jax
import numpy as np
import pytest
import scipy.special

from protojax.episodes import Dataset, sample_episode

COUNTS = np.array([4, 3, 6, 5, 3])
PADDING = 999
# The value of an item is 10 * class + index.
ITEMS = np.where(np.arange(6)[None] < COUNTS[:, None], 10 * np.arange(5)[:, None] + np.arange(6)[None], PADDING)
DATASET = jax.device_put(Dataset(np.int32(ITEMS), np.int32(COUNTS)))
WAY, SHOT, QUERY, DRAWS = 3, 2, 1, 20_000


@pytest.fixture(scope='module')
def draws():
    """Many episodes, as NumPy arrays [DRAWS, ...]."""
    keys = jax.random.split(jax.random.key(0), DRAWS)
    sample = functools.partial(sample_episode, dataset=DATASET, way=WAY, shot=SHOT, query=QUERY)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(sample))(keys))


def test_no_padding_no_item_twice_and_no_class_twice(draws):
    items = np.concatenate([draws.support, draws.query], 1)
    assert items.max() < PADDING
    assert (np.diff(np.sort(items, 1), axis=1) > 0).all()
    assert (np.diff(np.sort(draws.classes, 1), axis=1) > 0).all()


def test_labels_name_the_classes(draws):
    assert draws.support_labels.dtype == draws.query_labels.dtype == draws.classes.dtype == np.int32
    np.testing.assert_array_equal(draws.support // 10, np.take_along_axis(draws.classes, draws.support_labels, 1))
    np.testing.assert_array_equal(draws.query // 10, np.take_along_axis(draws.classes, draws.query_labels, 1))
    np.testing.assert_array_equal(draws.support_labels[0], [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(draws.query_labels[0], [0, 1, 2])


def probability(observed):
    """Of numbers that are at least as unequal, if all are equally likely: Pearson's chi-square test."""
    statistic = np.square(observed - observed.mean()).sum() / observed.mean()
    return scipy.special.chdtrc(len(observed) - 1, statistic)


def test_every_sequence_of_classes_is_equally_likely(draws):
    _, observed = np.unique(draws.classes, axis=0, return_counts=True)
    assert len(observed) == 5 * 4 * 3
    assert probability(observed) > 1e-3  # with fixed keys, so this is no gamble


def test_every_sequence_of_items_is_equally_likely(draws):
    sequences = np.concatenate([draws.support.reshape(DRAWS, WAY, SHOT), draws.query.reshape(DRAWS, WAY, QUERY)], 2)
    for label, possible in ((0, 4 * 3 * 2), (1, 3 * 2), (3, 5 * 4 * 3)):
        _, observed = np.unique(sequences[sequences[:, :, 0] // 10 == label], axis=0, return_counts=True)
        assert len(observed) == possible
        assert probability(observed) > 1e-3


def test_the_key_determines_the_episode(x64):
    sample = jax.jit(functools.partial(sample_episode, dataset=DATASET, way=WAY, shot=SHOT, query=QUERY))
    double, other = (sample(jax.random.key(seed)) for seed in (1, 2))
    with jax.enable_x64(False):
        single = sample(jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, single, double)
    assert (np.asarray(double.support) != np.asarray(other.support)).any()
