"""One update of the parameters, on one device or on many.

A loss is a function `loss(params, batch_stats, dataset, key, *, axis_name=None) -> (value, (batch_stats, metrics))`
that draws its episode from the key. With an axis name it may spread the episode over the devices of that axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from protojax.devices import AXIS, share_of_device
from protojax.episodes import Dataset, GatheredEpisode

STEPS_AHEAD = 8  # dispatched before the host waits: enough to hide it, few enough to stop soon when asked


class TrainState(NamedTuple):
    """Everything that changes during training. The step also names the episode, so no random key is kept."""

    step: jax.Array  # int32 [], updates so far
    params: Any
    average: Any  # moving average of the params
    batch_stats: Any
    opt_state: Any
    totals: dict  # sums of the metrics over the steps since the last report, float32 []
    failed_at: jax.Array  # int32 [], the first step whose loss or update was not finite, or -1


def create_state(
    params: Any,
    batch_stats: Any,
    optimizer: optax.GradientTransformation,
    metrics: Sequence[str] = ('loss', 'accuracy'),
) -> TrainState:
    """The state before the first update."""
    totals = {name: jnp.float32(0) for name in metrics}
    average = jax.tree.map(jnp.copy, params)  # buffers of its own, as the state is donated
    return TrainState(jnp.int32(0), params, average, batch_stats, optimizer.init(params), totals, jnp.int32(-1))


def train_step(
    state: TrainState,
    dataset: Dataset | GatheredEpisode,
    key: jax.Array,
    *,
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    report_every: int = 100,
    episodes: int = 1,
    average_decay: float = 0.0,
) -> TrainState:
    """One update from the mean gradient of some episodes, inside `parallelize` -> TrainState.

    A single episode is spread over the devices; of several, each device takes its share of whole ones. Episodes are
    numbered through the whole training, so the number of devices does not change which ones are seen. After every
    `report_every` steps the totals are those of the steps since the last report. The average of the parameters forgets
    by `average_decay`; with 0 it is the parameters. `dataset` may also be what `protojax.hosted` has drawn for
    this step.
    """
    devices = lax.axis_size(AXIS)
    if episodes == 1:
        episode_key = jax.random.fold_in(key, state.step)
        gradients, (batch_stats, metrics) = _training_gradients(loss, state, dataset, episode_key, axis_name=AXIS)
    else:
        share, left = divmod(episodes, devices)
        if left:
            raise ValueError(f'{episodes} episodes cannot be shared evenly by {devices} devices')
        numbers = state.step * episodes + lax.axis_index(AXIS) * share + jnp.arange(share)
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
        axis, mine = None, dataset
        if isinstance(dataset, GatheredEpisode):
            axis, mine = 0, jax.tree.map(lambda x: share_of_device(x, share), dataset)
        per_episode = jax.vmap(lambda k, d: _training_gradients(loss, state, d, k), (0, axis))(keys, mine)
        gradients, (batch_stats, metrics) = jax.tree.map(lambda x: x.mean(0), per_episode)
    # pmap's sum over devices is its own transpose: each device holds the gradient of all devices' losses with respect
    # to its own copy of the parameters, and the mean over devices is the gradient of the mean loss.
    gradients, batch_stats, metrics = lax.pmean((gradients, batch_stats, metrics), AXIS)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    decay = jnp.minimum(average_decay, (1 + state.step) / (10 + state.step))  # quick to leave the random start
    kept = state.step % report_every != 0
    finite = jnp.isfinite(metrics['loss']) & jnp.isfinite(optax.tree.norm(updates))
    failed_now = ~finite & (state.failed_at < 0)
    return TrainState(
        step=state.step + 1,
        params=params,
        average=jax.tree.map(
            lambda old, new: (decay * old + (1 - decay) * new).astype(new.dtype), state.average, params
        ),
        batch_stats=batch_stats,
        opt_state=opt_state,
        totals={name: (jnp.where(kept, t, 0) + metrics[name]).astype(t.dtype) for name, t in state.totals.items()},
        failed_at=jnp.where(failed_now, state.step, state.failed_at),
    )


def train_steps(state: TrainState, dataset: Dataset, key: jax.Array, *, steps: int, **options) -> TrainState:
    """Several updates in one dispatch. Slow on CPU, where XLA compiles convolution gradients in a loop badly."""
    return lax.scan(lambda s, _: (train_step(s, dataset, key, **options), None), state, length=steps)[0]


def _training_gradients(loss, state, dataset, key, **options):
    return jax.grad(loss, has_aux=True)(state.params, state.batch_stats, dataset, key, **options)
