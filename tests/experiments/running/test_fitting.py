"""The training loop: how many steps are dispatched at once, learning rates, and gradients that are too long."""

from types import SimpleNamespace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import cub, miniimagenet, omniglot
from experiments.running import fitting
from experiments.running.config import FewShotConfig
from protojax.episodes import Dataset


class Counter(NamedTuple):
    step: int


def test_steps_at_once_end_where_something_is_due(monkeypatch):
    """A run that goes on between two multiples of the dispatched number comes to the next one by single steps."""

    def counted(function, devices, donate):
        return lambda state, *_: state._replace(step=state.step + function.keywords.get('steps', 1))

    monkeypatch.setattr(fitting, 'parallelize', counted)
    config = FewShotConfig(log_every=4, validate_every=8, checkpoint_every=4)
    advance = fitting.fitting_stepper(config, None, None, [SimpleNamespace(platform='tpu')])
    dataset, step = Dataset(jnp.zeros((2, 2, 1)), jnp.full(2, 2)), 2
    state, seen = Counter(step), []
    while step < 15:
        state, step = advance(state, step, 15, dataset, None)
        seen.append(step)
        assert state.step == step
    assert seen == [3, 4, 8, 12, 13, 14, 15]


@pytest.mark.parametrize('recipe', [omniglot.RECIPE, miniimagenet.RECIPE])
def test_the_learning_rate_is_halved_every_2000_episodes(recipe):
    rate = fitting.fitting_schedule(recipe, 0)
    assert [float(rate(step)) for step in (0, 1999, 2000, 3999, 4000)] == pytest.approx(
        [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4]
    )
    of_four = fitting.fitting_schedule(FewShotConfig(episodes_per_step=4), 0)
    assert [float(of_four(step)) for step in (499, 500)] == pytest.approx([1e-3, 5e-4])


def test_the_learning_rate_of_cub_never_changes():
    rate = fitting.fitting_schedule(cub.RECIPE, 0)
    assert [float(rate(step)) for step in (0, 2000, 100_000)] == pytest.approx([1e-4] * 3)


def test_gradients_are_shortened_to_the_norm_and_decay_is_added():
    """By one step of plain gradient descent with a rate of 1, whose update is minus what it follows."""
    params = {'a': jnp.array([1.0, 2.0]), 'b': jnp.array(4.0)}
    gradients = {'a': jnp.array([3.0, 0.0]), 'b': jnp.array(4.0)}

    def followed(factor=1.0, **values):
        config = FewShotConfig(optimizer='sgd', learning_rate=1.0, **values)
        optimizer = fitting.fitting_optimizer(config, 0)
        scaled = {name: factor * gradient for name, gradient in gradients.items()}
        updates, _ = optimizer.update(scaled, optimizer.init(params), params)
        return -np.append(updates['a'], updates['b'])

    np.testing.assert_allclose(followed(), [3, 0, 4], rtol=1e-6)
    np.testing.assert_allclose(followed(clip_norm=0.25), [0.15, 0, 0.2], rtol=1e-5)  # all parameters have one norm, 5
    np.testing.assert_allclose(followed(factor=0.01, clip_norm=0.25), [0.03, 0, 0.04], rtol=1e-5)
    np.testing.assert_allclose(followed(weight_decay=0.1), [3.1, 0.2, 4.4], rtol=1e-5)


def test_the_optimizer_is_adam():
    params, updates = {'a': jnp.array([1.0, 2.0])}, []
    for optimizer in (fitting.fitting_optimizer(omniglot.RECIPE, 0), optax.adam(1e-3)):
        state = optimizer.init(params)
        for gradient in ([0.5, -3.0], [0.1, 0.2]):
            update, state = optimizer.update({'a': jnp.array(gradient)}, state, params)
        updates.append(update['a'])
    np.testing.assert_allclose(*updates, rtol=1e-6)
