"""Episodes: what may never happen, and by chi-square tests that every class and every item is equally likely."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from protojax.episodes import Dataset, sample_episode

COUNTS = np.array([4, 3, 6, 5, 3])
PADDING = 999
# An item tells its class and place: 10 * class + place.
ITEMS = np.where(np.arange(6)[None] < COUNTS[:, None], 10 * np.arange(5)[:, None] + np.arange(6)[None], PADDING)
DATASET = Dataset(jnp.asarray(ITEMS, jnp.int32), jnp.asarray(COUNTS, jnp.int32))
WAY, SHOT, QUERY, DRAWS = 3, 2, 1, 20_000


@pytest.fixture(scope='module')
def draws():
    """Many episodes, as NumPy arrays [DRAWS, ...]."""
    keys = jax.random.split(jax.random.key(0), DRAWS)
    sample = functools.partial(sample_episode, dataset=DATASET, way=WAY, shot=SHOT, query=QUERY)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(sample))(keys))


jitted = jax.jit(sample_episode, static_argnames=('way', 'shot', 'query'))


def sample(key, dataset=DATASET, **sizes):
    return jitted(jax.random.key(key), dataset, **sizes)


def equally_likely(observed):
    """Whether counts of outcomes could come from a fair draw (fixed keys, so this is no gamble)."""
    return scipy.stats.chisquare(observed).pvalue > 1e-3


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


def test_every_sequence_of_classes_is_equally_likely(draws):
    _, observed = np.unique(draws.classes, axis=0, return_counts=True)
    assert len(observed) == 5 * 4 * 3
    assert equally_likely(observed)


def test_every_item_is_equally_likely_as_support_and_as_query(draws):
    for drawn in (draws.support, draws.query):
        for label, count in enumerate(COUNTS):
            observed = np.bincount(drawn[drawn // 10 == label] % 10)
            assert len(observed) == count
            assert equally_likely(observed)


def test_every_sequence_of_items_is_equally_likely(draws):
    sequences = np.concatenate([draws.support.reshape(DRAWS, WAY, SHOT), draws.query.reshape(DRAWS, WAY, QUERY)], 2)
    for label, possible in ((0, 4 * 3 * 2), (1, 3 * 2), (3, 5 * 4 * 3)):
        _, observed = np.unique(sequences[sequences[:, :, 0] // 10 == label], axis=0, return_counts=True)
        assert len(observed) == possible
        assert equally_likely(observed)


def test_classes_are_drawn_independently(draws):
    places = draws.query % 10
    both_small = (draws.classes[:, 0] == 0) & (draws.classes[:, 1] == 3)  # 4 and 5 items
    table = np.histogram2d(places[both_small, 0], places[both_small, 1], (4, 5), ((0, 4), (0, 5)))[0]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_the_key_names_the_episode():
    sizes = {'way': WAY, 'shot': SHOT, 'query': QUERY}
    first, again, other = sample(1, **sizes), sample(1, **sizes), sample(2, **sizes)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert (np.asarray(first.support) != np.asarray(other.support)).any()
    plain = sample_episode(jax.random.key(1), DATASET, **sizes)
    jax.tree.map(np.testing.assert_array_equal, plain, first)


def test_double_precision_draws_the_same_episode(x64):
    double = sample_episode(jax.random.key(7), DATASET, way=WAY, shot=SHOT, query=QUERY)
    with jax.enable_x64(False):
        single = sample_episode(jax.random.key(7), DATASET, way=WAY, shot=SHOT, query=QUERY)
    jax.tree.map(np.testing.assert_array_equal, single, double)


def test_all_classes_and_all_items():
    dataset = DATASET._replace(counts=jnp.full(5, 3))
    episode = sample(3, dataset, way=5, shot=1, query=2)
    np.testing.assert_array_equal(np.sort(episode.classes), np.arange(5))
    items = np.concatenate([episode.support, episode.query])
    np.testing.assert_array_equal(np.sort(items), ITEMS[:, :3].reshape(-1))


def test_no_support():
    episode = sample(4, way=3, shot=0, query=3)
    assert episode.support.shape == episode.support_labels.shape == (0,)
    np.testing.assert_array_equal(episode.query // 10, np.repeat(episode.classes, 3))


def test_items_keep_their_shape_and_type():
    images = np.arange(5 * 6 * 2 * 3, dtype=np.uint8).reshape(5, 6, 2, 3)
    episode = sample(5, DATASET._replace(items=images), way=2, shot=1, query=2)
    assert episode.support.shape == (2, 2, 3)
    assert episode.query.shape == (4, 2, 3)
    assert episode.support.dtype == np.uint8
    whole = images.reshape(30, -1).tolist()
    assert all(image.reshape(-1).tolist() in whole for image in np.asarray(episode.query))
