"""The meta-learner's update: gradient descent where its gates are fixed, first order, and statistics of one episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit as sigmoid

from experiments import methods, miniimagenet
from experiments.methods import metalstm
from experiments.methods.metalstm import init_meta, meta_learn, preprocess
from protojax import Conv4, Dataset, Episode, Splits
from tests.helpers import made_up

START = {'a': np.float32([1, -2]), 'b': np.float32(3)}


def loss(theta):
    return jnp.sum(theta['a'] ** 2) * theta['b'] + theta['b'] ** 2


def learned(meta, start=START, updates=3):
    return jax.jit(lambda meta, start: meta_learn(meta, loss, start, updates=updates))(meta, start)


def fixed_gates(rate, kept):
    meta = made_up.variables(init_meta)
    odds = [np.log(p / (1 - p)) if p < 1 else 50.0 for p in (rate, kept)]
    return {**meta, 'kernel': np.zeros_like(meta['kernel']), 'bias': np.float32(odds)}


@pytest.mark.parametrize('kept', [1.0, 0.9])
def test_fixed_gates_are_gradient_descent_with_weight_decay(kept):
    found, theta, gradient = learned(fixed_gates(0.01, kept)), START, jax.jit(jax.grad(loss))
    for _ in range(3):
        theta = jax.tree.map(lambda p, g: kept * p - 0.01 * np.asarray(g), theta, gradient(theta))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, theta)


def lstm(params, c, h, x):
    """The textbook's LSTM of one weight, with the names that Flax gives its parameters."""
    i, f, g, o = (
        x @ params[f'i{gate}']['kernel'] + h @ params[f'h{gate}']['kernel'] + params[f'h{gate}']['bias']
        for gate in 'ifgo'
    )
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def test_gates_see_gradient_loss_weight_and_themselves():
    """A loop of the two equations over three updates, weight by weight, with parameters that move the gates."""
    rng, preprocessed = np.random.default_rng(0), jax.jit(preprocess)
    random = jax.tree.map(lambda p: rng.normal(size=p.shape) / 2, made_up.variables(init_meta))
    found, gradient = learned(jax.tree.map(np.float32, random)), jax.jit(jax.value_and_grad(loss))
    theta, states, gates = np.array([1.0, -2.0, 3.0]), [(np.zeros(20), np.zeros(20))] * 3, np.zeros((3, 2))
    (of_input, of_forget), (input_bias, forget_bias) = random['kernel'].T, random['bias']
    for _ in range(3):
        value, slope = gradient({'a': np.float32(theta[:2]), 'b': np.float32(theta[2])})
        slope = np.append(slope['a'], slope['b'])
        for p in range(3):
            values = np.float32([slope[p], value])
            states[p] = lstm(random['lstm'], *states[p], np.ravel(preprocessed(values)))
            x, (i, f) = states[p][1], gates[p]
            i = sigmoid(of_input @ np.concatenate([x, [theta[p], i]]) + input_bias)
            f = sigmoid(of_forget @ np.concatenate([x, [theta[p], f]]) + forget_bias)
            theta[p], gates[p] = f * theta[p] - i * slope[p], (i, f)
    np.testing.assert_allclose(np.append(found['a'], found['b']), theta, rtol=1e-4)
    assert np.ptp(gates, 0).min() > 0.05


@pytest.mark.parametrize(('shot', 'updates'), [(1, 12), (5, 5)])
def test_sizes_are_those_of_the_authors(shot, updates, monkeypatch):
    seen = []
    monkeypatch.setattr(metalstm, 'meta_learn', lambda meta, loss, start, *, updates: seen.append(updates) or start)
    config = miniimagenet.EXPERIMENT.config(model='metalstm', shot=shot)
    classes = Dataset(np.zeros((5, 20, 84, 84, 3), np.uint8), np.full(5, 20, np.int32), names=tuple('abcde'))
    learner = methods.build(metalstm.METHOD, config, Splits('nothing', True, classes, classes, classes))
    dataset = classes._replace(names=None)
    jax.eval_shape(lambda key, data: learner.loss(*learner.init(key), data, key), jax.random.key(0), dataset)
    assert seen == [updates] and learner.encoder.filters == 32
    assert config.episodes.sizes == {'way': 5, 'shot': shot, 'query': 15}
    training = config.training
    assert (training.optimizer, training.learning_rate, training.halve_every) == ('adam', 1e-3, 0)
    assert training.clip_norm == 0.25 and made_up.variables(init_meta)['kernel'].shape == (20 + 2, 2)


def test_gradients_of_the_learner_are_constants():
    """With fixed gates theta_n = theta_0 minus constants, so its derivative by theta_0 is one, whatever the loss."""
    slope = jax.jit(jax.grad(lambda start: learned(fixed_gates(0.01, 1.0), start)['b']))(START)
    np.testing.assert_allclose(slope['b'], 1.0, rtol=1e-6)
    np.testing.assert_allclose(slope['a'], [0.0, 0.0])
    of_bias = jax.jit(jax.grad(lambda meta: learned(meta)['b']))(fixed_gates(0.01, 0.9))['bias']
    assert np.all(np.asarray(of_bias) != 0)


def test_values_are_preprocessed_by_their_size():
    values = np.float32([1.0, -np.e, np.exp(-10.0) * 1.01, -np.exp(-11.0), 0.0])
    expected = [(0, 1), (0.1, -1), (-1 + np.log(1.01) / 10, 1), (-1, -np.exp(-1.0)), (-1, 0)]
    np.testing.assert_allclose(jax.jit(preprocess)(values), expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope='module')
def problem():
    shape = (16, 16, 1)
    learner = metalstm.learner(Conv4(filters=2, kernels=False), shape, way=2, shot=2, query=3)
    images = np.random.default_rng(0).integers(0, 256, (3, 6, *shape), dtype=np.uint8)
    return learner, *made_up.variables(learner.init), Dataset(images, np.full(3, 6, np.int32))


def episode_of(images):
    flat = [part.reshape(len(part), -1) for part in (images[:4], images[4:])]
    return Episode(flat[0], np.repeat(np.arange(2), 2), flat[1], None, np.arange(2))


def test_everything_is_learned_but_statistics_are_not_kept(problem, monkeypatch):
    learner, params, batch_stats, data = problem
    monkeypatch.setattr(metalstm, 'UPDATES_OTHERWISE', 2)
    gradient, (after, _) = jax.jit(jax.grad(learner.loss, has_aux=True))(params, batch_stats, data, jax.random.key(0))
    assert all(np.asarray(g).any() for g in jax.tree.leaves(gradient['classifier']))
    jax.tree.map(np.testing.assert_array_equal, after, batch_stats)


def test_queries_do_not_touch_each_other_at_test(problem, monkeypatch):
    """They are normalised by the support set's statistics, so that one query scores as it does among others."""
    learner, params, batch_stats, data = problem
    monkeypatch.setattr(metalstm, 'UPDATES_OTHERWISE', 1)
    images = data.items.reshape(-1, 16, 16, 1)[:8]
    classify = jax.jit(learner.classify)
    together, alone = (np.asarray(classify(params, batch_stats, episode_of(images[:n]))) for n in (8, 5))
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-4, atol=1e-5)
    other_support = episode_of(np.concatenate([images[4:], images[4:]]))
    assert not np.allclose(classify(params, batch_stats, other_support), together, atol=1e-4)
