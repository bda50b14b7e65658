"""The training loop: how many steps are dispatched at once."""

from types import SimpleNamespace
from typing import NamedTuple

import jax.numpy as jnp

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
