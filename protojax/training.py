"""One update of the parameters, on one device or on many.

A loss is a function `loss(params, batch_stats, dataset, key, *, axis_name=None) -> (value, (batch_stats, metrics))`
that draws its episode from the key. With an axis name it may spread the episode over the devices of that axis.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = 'devices'


class TrainState(NamedTuple):
    """Everything that changes during training. The step also names the episode, so no random key is kept."""

    step: jax.Array  # int32 [], updates so far
    params: Any
    average: Any  # moving average of the params
    batch_stats: Any
    opt_state: Any
    totals: dict  # sums of the metrics over the steps since the last report, float32 []
    failed_at: jax.Array  # int32 [], the first step whose loss or update was not finite, or -1


def create_state(params, batch_stats, optimizer, metrics=('loss', 'accuracy')):
    """The state before the first update."""
    totals = {name: jnp.float32(0) for name in metrics}
    average = jax.tree.map(jnp.copy, params)  # buffers of its own, as the state is donated
    return TrainState(jnp.int32(0), params, average, batch_stats, optimizer.init(params), totals, jnp.int32(-1))


def train_step(state, dataset, key, *, loss, optimizer, report_every, episodes=1, average_decay=0.0):
    """One update from the mean gradient of some episodes, inside `parallelize` -> TrainState.

    A single episode is spread over the devices; of several, each device takes its share of whole ones. Episodes are
    numbered through the whole training, so the number of devices does not change which ones are seen. After every
    `report_every` steps the totals are those of the steps since the last report. The average of the parameters forgets
    by `average_decay`; with 0 it is the parameters.
    """
    devices = lax.axis_size(AXIS)
    if episodes == 1:
        episode_key = jax.random.fold_in(key, state.step)
        gradients, (batch_stats, metrics) = _gradients(loss, state, dataset, episode_key, axis_name=AXIS)
    else:
        share = episodes // devices
        numbers = state.step * episodes + lax.axis_index(AXIS) * share + jnp.arange(share)
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
        per_episode = jax.vmap(lambda k: _gradients(loss, state, dataset, k))(keys)
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


def train_steps(state, dataset, key, *, steps, **options):
    """Several updates in one dispatch. Slow on CPU, where XLA compiles convolution gradients in a loop badly."""
    return lax.scan(lambda s, _: (train_step(s, dataset, key, **options), None), state, length=steps)[0]


def parallelize(function, devices, *, donate=False):
    """`function(state, *args)` on each device of AXIS, with the same values going in and coming out everywhere.

    The function finds its part of the work by `lax.axis_index(AXIS)` and reduces what it returns over AXIS. With
    `donate` the buffers of `state` are reused for the result.
    """
    mapped = jax.pmap(
        lambda _, state, args: function(state, *args),
        axis_name=AXIS,
        in_axes=(0, None, None),
        out_axes=None,
        devices=devices,
        donate_argnums=(1,) if donate else (),
    )
    if jax.process_count() == 1 and devices[0].platform == 'cpu':
        # Only jit takes options for one program.
        mapped = jax.jit(mapped, compiler_options=cpu_compiler_options(), donate_argnums=(1,) if donate else ())
    here = sum(device.process_index == jax.process_index() for device in devices)
    places = np.arange(here)  # pmap wants one argument that differs between devices
    return lambda state, *args: mapped(places, state, args)


@functools.cache
def cpu_compiler_options():
    """Options for XLA, whose first choice of convolutions runs on one thread; empty where it has no such option."""
    options = {'xla_cpu_experimental_ynn_fusion_type': ''}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def place(tree, devices):
    """The arrays of a tree on every device, so that no later call moves them again."""
    if jax.process_count() == 1:  # holds one copy less on the way than the general form
        # An array that is on one of several devices would lend them its buffer, even with may_alias=False.
        tree = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, tree)
        return jax.device_put(tree, NamedSharding(Mesh(devices, (AXIS,)), PartitionSpec()), may_alias=False)
    return parallelize(lambda arrays: arrays, devices)(tree)


def usable_devices(pieces):
    """As many devices as can share this many pieces of work evenly, the same number of each process."""
    per_process = min(len(jax.local_devices(process_index=i)) for i in range(jax.process_count()))
    processes = jax.process_count()
    share = max((n for n in range(1, per_process + 1) if pieces % (n * processes) == 0), default=None)
    if share is None:
        raise ValueError(f'{pieces} images or episodes cannot be shared evenly by {processes} processes')
    return [d for i in range(processes) for d in jax.local_devices(process_index=i)[:share]]


def spread(encode, items):
    """Embed items, each device of AXIS its part of them, and collect the result: [N, ...] -> [N, D], statistics."""
    share = items.shape[0] // lax.axis_size(AXIS)
    mine = lax.dynamic_slice_in_dim(items, lax.axis_index(AXIS) * share, share)
    embeddings, statistics = encode(mine)
    return lax.all_gather(embeddings, AXIS, tiled=True), statistics


def _gradients(loss, state, dataset, key, **options):
    return jax.grad(loss, has_aux=True)(state.params, state.batch_stats, dataset, key, **options)
