"""One update of the parameters, on one device or on many.

A loss is a function `loss(params, batch_stats, dataset, key, *, axis_name=None) -> (value, (batch_stats, metrics))`
that draws its episode from the key. If `axis_name` is given, it may shard the episode across the devices of that axis.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from protojax import devices
from protojax.episodes import Dataset, Gathered

STEPS_AHEAD = 8  # steps dispatched before the host waits: hides dispatch, but still stops soon after a signal


class TrainState(NamedTuple):
    """All values that change during training. The step also determines the episode, so no random key is stored."""

    step: jax.Array  # int32 [], updates so far
    params: Any
    average: Any  # exponential moving average of the params
    batch_stats: Any
    opt_state: Any
    totals: dict[str, jax.Array]  # sum of each metric since the last report, float32 []
    failed_at: jax.Array  # int32 [], first step with a non-finite loss or update, or -1


def create_state(
    params: Any,
    batch_stats: Any,
    optimizer: optax.GradientTransformation,
    metrics: Sequence[str] = ('loss', 'accuracy'),
) -> TrainState:
    """Create the state before the first update."""
    totals = {name: jnp.float32(0) for name in metrics}
    average = jax.tree.map(jnp.copy, params)  # separate buffers, because the state may be donated
    return TrainState(jnp.int32(0), params, average, batch_stats, optimizer.init(params), totals, jnp.int32(-1))


def train_step(
    state: TrainState,
    dataset: Dataset | Gathered,
    key: jax.Array,
    *,
    loss: Callable[..., Any],
    optimizer: optax.GradientTransformation,
    report_every: int = 100,
    episodes: int = 1,
    average_decay: float = 0.0,
) -> TrainState:
    """Update the parameters by the mean gradient of `episodes` episodes; call it under `jax.jit` or `parallelize`.

    With `parallelize`, a single episode is sharded across the devices; several are divided among them. Episodes are
    numbered consecutively, so the number of devices does not change which episodes are used.

    Args:
        state: State to update.
        dataset: Data set on the device, or the items that `hosted.episodes` has gathered for this step.
        key: Random key of the training; episode n is drawn with `fold_in(key, n)`.
        loss: Loss function as described at the top of this module.
        optimizer: Optax optimizer.
        report_every: Number of steps after which the totals are reset.
        episodes: Episodes per update.
        average_decay: Decay of the moving average of the parameters; 0 disables averaging.
    """
    axis_name = devices.current_axis()
    gradients = partial(jax.grad(loss, has_aux=True), state.params, state.batch_stats)
    if episodes == 1:
        found: Any = gradients(dataset, jax.random.fold_in(key, state.step), axis_name=axis_name)
    else:
        found = _mean_over_episodes(gradients, dataset, key, state.step, episodes, axis_name)
    if axis_name is not None:
        # Under pmap the transpose of psum is psum, so each device holds the gradient of the summed losses with respect
        # to its copy of the parameters, and the mean over devices is the gradient of the mean loss.
        found = lax.pmean(found, axis_name)
    return _updated(state, found, optimizer, report_every, average_decay)


def train_steps(state: TrainState, dataset: Dataset, key: jax.Array, *, steps: int, **options) -> TrainState:
    """Run several updates in one dispatch. Slow on CPUs: XLA compiles convolution gradients in loops badly there."""
    return lax.scan(lambda s, _: (train_step(s, dataset, key, **options), None), state, length=steps)[0]


def _mean_over_episodes(gradients, dataset, key, step, episodes, axis_name):
    """Compute means of gradients, batch_stats and metrics over the episodes of this device."""
    number, index = (1, 0) if axis_name is None else (lax.axis_size(axis_name), lax.axis_index(axis_name))
    size, rest = divmod(episodes, number)
    if rest:
        raise ValueError(f'cannot divide {episodes} episodes evenly among {number} devices')
    keys = jax.vmap(partial(jax.random.fold_in, key))(step * episodes + index * size + jnp.arange(size))
    if not isinstance(dataset, Gathered):
        per_episode = jax.vmap(lambda k: gradients(dataset, k))(keys)
    else:
        own = dataset if axis_name is None else jax.tree.map(lambda x: devices.shard(x, size), dataset)
        per_episode = jax.vmap(gradients)(own, keys)
    return jax.tree.map(lambda x: x.mean(0), per_episode)


def _updated(state, found, optimizer, report_every, average_decay):
    gradients, (batch_stats, metrics) = found
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    decay = jnp.minimum(average_decay, (1 + state.step) / (10 + state.step))  # EMA warm-up
    average = jax.tree.map(lambda old, new: (decay * old + (1 - decay) * new).astype(new.dtype), state.average, params)
    keep = state.step % report_every != 0
    totals = {name: (jnp.where(keep, t, 0) + metrics[name]).astype(t.dtype) for name, t in state.totals.items()}
    finite = jnp.isfinite(metrics['loss']) & jnp.isfinite(optax.tree.norm(updates))
    failed_at = jnp.where(~finite & (state.failed_at < 0), state.step, state.failed_at)
    return TrainState(state.step + 1, params, average, batch_stats, opt_state, totals, failed_at)
