"""Ordinary batches, and losses on them that do not depend on the number of devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.methods import batches, nearest
from protojax import Dataset, Episode, LinearMap, cosine
from tests.helpers.steps import on_one_and_more

COUNTS = np.array([1, 5, 2, 4])
# Item i of class k is the number 10 k + i; padding is -1.
NUMBERED = np.array([[10 * k + i if i < count else -1 for i in range(5)] for k, count in enumerate(COUNTS)])


def test_every_item_is_drawn_alike_and_none_of_the_padding():
    batch = batches.sample(jax.random.key(0), Dataset(jnp.asarray(NUMBERED), jnp.asarray(COUNTS)), size=12_000)
    np.testing.assert_array_equal(batch.query // 10, batch.query_labels)
    items, times = np.unique(batch.query, return_counts=True)
    assert items.tolist() == sorted(NUMBERED[NUMBERED >= 0].tolist())
    assert abs(times - 1000).max() < 150  # five standard deviations
    assert batch.way == 4 and batch.support.shape == (0,)


POINTS = Dataset(jnp.float32(np.random.default_rng(0).normal(size=(4, 5, 7))), jnp.asarray(COUNTS))


def problem(batch):
    learner = nearest.learner(LinearMap(3), (7,), 6, batch=batch)
    return learner, *learner.init(jax.random.key(0))


@pytest.mark.parametrize('batch', [12, 9])
def test_loss_and_gradient_are_those_of_one_device(batch):
    """Also of a batch that four devices cannot share: then each computes all of it."""
    learner, params, batch_stats = problem(batch)
    alone, together = on_one_and_more(learner.loss, params, batch_stats, POINTS, jax.random.key(1), devices=4)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), alone, together)


def test_the_layer_knows_the_classes_of_the_data_alone():
    """It has room for the validation classes, which are added for retraining."""
    learner, params, batch_stats = problem(12)
    assert params['classifier']['kernel'].shape == (3, 6)
    gradient = jax.jit(jax.grad(learner.loss, has_aux=True))(params, batch_stats, POINTS, jax.random.key(1))[0]
    assert not gradient['classifier']['kernel'][:, 4:].any() and gradient['classifier']['kernel'][:, :4].any()


def test_a_query_takes_the_label_of_the_nearest_example():
    rng = np.random.default_rng(0)
    support, queries, labels = rng.normal(size=(7, 3)), rng.normal(size=(20, 3)), np.array([2, 0, 1, 1, 0, 2, 2])
    logits = nearest.logits(Episode(support, labels, queries, None, jnp.arange(3)))
    for query, row in zip(queries, logits, strict=True):
        distances = np.array([cosine(query, point) for point in support])
        assert row.argmax() == labels[distances.argmin()]
        np.testing.assert_allclose(row, [-distances[labels == k].min() for k in range(3)], rtol=1e-5, atol=1e-6)
