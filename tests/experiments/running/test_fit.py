"""The training loop: how many steps are dispatched at once, learning rates, and gradients that are too long."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import cub, omniglot
from experiments.running import fit
from experiments.running.config import OPTIMIZERS, Training
from protojax import Dataset


def test_steps_at_once_end_where_something_is_due(monkeypatch):
    """A run that goes on between two multiples of the dispatched number comes to the next one by single steps."""

    def counted(function, devices, donate):
        return lambda state, *_: SimpleNamespace(step=state.step + function.keywords.get('steps', 1))

    monkeypatch.setattr(fit, 'parallelize', counted)
    training = Training(log_every=4, validate_every=8, checkpoint_every=4)
    advance = fit.stepper(training, None, [SimpleNamespace(platform='tpu')], 15)
    dataset, step = Dataset(jnp.zeros((2, 2, 1)), jnp.full(2, 2)), 2
    state, seen = SimpleNamespace(step=step), []
    while step < 15:
        state, step = advance(state, step, dataset, None)
        seen.append(step)
        assert state.step == step
    assert seen == [3, 4, 8, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ('training', 'steps', 'rates'),
    [
        (omniglot.EXPERIMENT.config().training, (0, 1999, 2000, 4000), [1e-3, 1e-3, 5e-4, 2.5e-4]),
        (cub.EXPERIMENT.config().training, (0, 2000, 100_000), [1e-4] * 3),
        (Training(episodes_per_step=4), (499, 500), [1e-3, 5e-4]),
        (Training(schedule='cosine', episodes=100), (0, 50, 100), [1e-3, 5e-4, 0]),
    ],
)
def test_learning_rates(training, steps, rates):
    rate = fit.schedule(training, training.episodes)
    np.testing.assert_allclose([float(rate(step)) for step in steps], rates, rtol=1e-5, atol=1e-10)


def test_gradients_are_shortened_to_the_norm_and_decay_is_added():
    """By one step of plain gradient descent with a rate of 1, whose update is minus what it follows."""
    params = {'a': jnp.array([1.0, 2.0]), 'b': jnp.array(4.0)}
    gradients = {'a': jnp.array([3.0, 0.0]), 'b': jnp.array(4.0)}

    def followed(factor=1.0, **values):
        optimizer = fit.optimizer(Training(optimizer='sgd', learning_rate=1.0, **values), 0)
        scaled = {name: factor * gradient for name, gradient in gradients.items()}
        updates, _ = optimizer.update(scaled, optimizer.init(params), params)
        return -np.append(updates['a'], updates['b'])

    np.testing.assert_allclose(followed(), [3, 0, 4], rtol=1e-6)
    np.testing.assert_allclose(followed(clip_norm=0.25), [0.15, 0, 0.2], rtol=1e-5)  # all parameters have one norm, 5
    np.testing.assert_allclose(followed(factor=0.01, clip_norm=0.25), [0.03, 0, 0.04], rtol=1e-5)
    np.testing.assert_allclose(followed(weight_decay=0.1), [3.1, 0.2, 4.4], rtol=1e-5)
    assert OPTIMIZERS[Training().optimizer] is optax.adam
