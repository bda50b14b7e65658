"""Work on several devices: the one place that says `pmap`, and how values get onto the devices.

Every function that runs on devices sees the axis AXIS. One device is an axis of size one, so nothing else has to know
how many there are.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = 'devices'


def parallelize(function: Callable, devices: Sequence[jax.Device], *, donate: bool = False) -> Callable:
    """`function(state, *args)` on each device of AXIS, with the same values going in and coming out everywhere.

    The function finds its part of the work by `lax.axis_index(AXIS)` and reduces what it returns over AXIS. With
    `donate` the buffers of `state` are reused for the result.
    """
    mapped = pmapped(function, devices, donate=donate)
    if jax.process_count() == 1 and devices[0].platform == 'cpu':
        # Only jit takes options for one program.
        mapped = jax.jit(mapped, compiler_options=cpu_compiler_options(), donate_argnums=(1,) if donate else ())
    here = sum(device.process_index == jax.process_index() for device in devices)
    places = np.arange(here)  # pmap wants one argument that differs between devices
    return lambda state, *args: mapped(places, state, args)


def pmapped(function: Callable, devices: Sequence[jax.Device], *, donate: bool = False) -> Callable:
    """`function` as a function of the devices' places, the state and a tuple of the other arguments."""
    return jax.pmap(
        lambda _, state, args: function(state, *args),
        axis_name=AXIS,
        in_axes=(0, None, None),
        out_axes=None,
        devices=devices,
        donate_argnums=(1,) if donate else (),
    )


@functools.cache
def cpu_compiler_options() -> dict[str, str]:
    """Options for XLA, whose first choice of convolutions runs on one thread; empty where it has no such option."""
    options = {'xla_cpu_experimental_ynn_fusion_type': ''}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def place(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """The arrays of a tree on every device, so that no later call moves them again."""
    if jax.process_count() == 1:  # holds one copy less on the way than the general form
        # An array that is on one of several devices would lend them its buffer, even with may_alias=False.
        tree = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, tree)
        return jax.device_put(tree, NamedSharding(Mesh(devices, (AXIS,)), PartitionSpec()), may_alias=False)
    return parallelize(lambda arrays: arrays, devices)(tree)


def usable_devices(pieces: int) -> list[jax.Device]:
    """As many devices as can share this many pieces of work evenly, the same number of each process."""
    per_process = min(len(jax.local_devices(process_index=i)) for i in range(jax.process_count()))
    processes = jax.process_count()
    share = max((n for n in range(1, per_process + 1) if pieces % (n * processes) == 0), default=None)
    if share is None:
        raise ValueError(f'{pieces} images or episodes cannot be shared evenly by {processes} processes')
    return [d for i in range(processes) for d in jax.local_devices(process_index=i)[:share]]


def spread_over_devices(encode: Callable, items: jax.Array) -> tuple[jax.Array, Any]:
    """Embed items, each device of AXIS its part of them, and collect the result: [N, ...] -> [N, D], statistics."""
    share, left = divmod(items.shape[0], lax.axis_size(AXIS))
    if left:
        raise ValueError(f'{items.shape[0]} items cannot be shared evenly by {lax.axis_size(AXIS)} devices')
    embeddings, statistics = encode(share_of_device(items, share))
    return lax.all_gather(embeddings, AXIS, tiled=True), statistics


def share_of_device(array: jax.Array, size: int) -> jax.Array:
    """The part of that size which falls to this device of AXIS, of an array that all of them have: [N, ...]."""
    return lax.dynamic_slice_in_dim(array, lax.axis_index(AXIS) * size, size)
