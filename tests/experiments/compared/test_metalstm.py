"""The meta-learner's update: gradient descent where its gates are fixed, first order, and statistics of one episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.compared import metalstm
from experiments.compared.metalstm import init_meta_learner, meta_learn, metalstm_task, preprocess_for_lstm
from protojax.encoders import Conv4
from protojax.episodes import Dataset, Episode

START = {'a': jnp.array([1.0, -2.0]), 'b': jnp.array(3.0)}


def loss(theta):
    return jnp.sum(theta['a'] ** 2) * theta['b'] + theta['b'] ** 2


def fixed_gates(rate, kept):
    meta = init_meta_learner(jax.random.key(0))
    odds = [np.log(p / (1 - p)) if p < 1 else 50.0 for p in (rate, kept)]
    return {**meta, 'kernel': jnp.zeros_like(meta['kernel']), 'bias': jnp.array(odds)}


def test_fixed_gates_are_gradient_descent():
    found = meta_learn(fixed_gates(0.01, 1.0), loss, START, updates=3)
    theta = START
    for _ in range(3):
        theta = jax.tree.map(lambda p, g: p - 0.01 * g, theta, jax.grad(loss)(theta))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, theta)


def test_a_forget_gate_below_one_is_weight_decay():
    found = meta_learn(fixed_gates(0.01, 0.9), loss, START, updates=1)
    expected = jax.tree.map(lambda p, g: 0.9 * p - 0.01 * g, START, jax.grad(loss)(START))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)


def test_gates_depend_on_gradient_and_weight():
    meta = init_meta_learner(jax.random.key(0))
    meta = {**meta, 'kernel': 100 * meta['kernel']}
    moved = meta_learn(meta, loss, START, updates=2)
    plain = meta_learn(fixed_gates(float(jax.nn.sigmoid(-4.5)), float(jax.nn.sigmoid(6.0))), loss, START, updates=2)
    assert not np.allclose(moved['a'], plain['a'], atol=1e-3)


def test_gradients_of_the_learner_are_constants():
    """With fixed gates theta_n = theta_0 minus constants, so its derivative by theta_0 is one, whatever the loss."""
    slope = jax.grad(lambda start: meta_learn(fixed_gates(0.01, 1.0), loss, start, updates=3)['b'])(START)
    np.testing.assert_allclose(slope['b'], 1.0, rtol=1e-6)
    np.testing.assert_allclose(slope['a'], [0.0, 0.0])
    of_bias = jax.grad(lambda meta: meta_learn(meta, loss, START, updates=3)['b'])(fixed_gates(0.01, 0.9))['bias']
    assert (of_bias != 0).all()


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (1.0, (0.0, 1.0)),
        (-np.e, (0.1, -1.0)),
        (np.exp(-10.0) * 1.01, (-1 + np.log(1.01) / 10, 1.0)),
        (-np.exp(-11.0), (-1.0, -np.exp(-1.0))),
        (0.0, (-1.0, 0.0)),
    ],
)
def test_values_are_preprocessed_by_their_size(value, expected):
    np.testing.assert_allclose(preprocess_for_lstm(jnp.array([value]))[0], expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope='module')
def problem():
    shape = (16, 16, 1)
    task = metalstm_task(Conv4(filters=2, kernels=False), shape, way=2, shot=2, query=3)
    images = np.random.default_rng(0).integers(0, 256, (3, 6, *shape), dtype=np.uint8)
    return task, *task.initialize(jax.random.key(0)), Dataset(jnp.asarray(images), jnp.full(3, 6))


def episode_of(images):
    labels = jnp.repeat(jnp.arange(2), 2)
    flat = [jnp.asarray(part).reshape(len(part), -1) for part in (images[:4], images[4:])]
    return Episode(flat[0], labels, flat[1], None, jnp.arange(2))


def test_everything_is_learned_but_statistics_are_not_kept(problem, monkeypatch):
    task, params, batch_stats, data = problem
    monkeypatch.setattr(metalstm, 'UPDATES_OTHERWISE', 2)
    gradient, (after, _) = jax.jit(jax.grad(task.loss, has_aux=True))(params, batch_stats, data, jax.random.key(0))
    assert all(g.any() for g in jax.tree.leaves(gradient['classifier']))
    assert all(g.any() for name, g in gradient['encoder']['ConvBlock_3'].items() if name != 'kernel')
    jax.tree.map(np.testing.assert_array_equal, after, batch_stats)


def test_queries_do_not_touch_each_other_at_test(problem, monkeypatch):
    """They are normalised by the support set's statistics, so that one query scores as it does among others."""
    task, params, batch_stats, data = problem
    monkeypatch.setattr(metalstm, 'UPDATES_OTHERWISE', 1)
    images = np.asarray(data.items).reshape(-1, 16, 16, 1)[:8]
    classify = jax.jit(task.classify)
    together = classify(params, episode_of(images))
    np.testing.assert_allclose(classify(params, episode_of(images[:5]))[0], together[0], rtol=1e-4, atol=1e-5)
    other_support = episode_of(np.concatenate([images[4:], images[4:]]))
    assert not np.allclose(classify(params, other_support), together, atol=1e-4)
