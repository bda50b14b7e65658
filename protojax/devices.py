"""Computation on several devices: the only module that uses `pmap`, and the placement of arrays.

A function under `parallelize` runs on the axis AXIS. One device is an axis of size one, so callers need not distinguish
between one device and many.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = 'devices'  # name of the axis


def parallelize(function: Callable, devices: Sequence[jax.Device], *, donate: bool = False) -> Callable:
    """Make `function(state, *args)` run on all devices, with replicated arguments and results.

    The devices form the axis AXIS, 'devices'. The function selects its part of the work by `lax.axis_index(AXIS)` and
    must reduce its results over AXIS. With `donate`, the buffers of `state` are reused for the result.
    """
    mapped = pmapped(function, devices, donate=donate)
    if jax.process_count() == 1 and devices[0].platform == 'cpu':
        # Only jit accepts compiler options for a single program.
        mapped = jax.jit(mapped, compiler_options=cpu_compiler_options(), donate_argnums=(1,) if donate else ())
    local = sum(device.process_index == jax.process_index() for device in devices)
    indices = np.arange(local)  # pmap requires one argument that differs between devices
    return lambda state, *args: mapped(indices, state, args)


def pmapped(function: Callable, devices: Sequence[jax.Device], *, donate: bool = False) -> Callable:
    """Wrap `function` in `jax.pmap`; the wrapper takes device indices, the state and a tuple of other arguments."""
    options: Any = {'axis_name': AXIS, 'in_axes': (0, None, None), 'out_axes': None, 'devices': devices}
    return jax.pmap(lambda _, state, args: function(state, *args), donate_argnums=(1,) if donate else (), **options)


@functools.cache
def cpu_compiler_options() -> dict[str, str]:
    """Return options that avoid XLA's single-threaded convolutions; {} if this version does not know them."""
    options = {'xla_cpu_experimental_ynn_fusion_type': ''}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def place(tree: Any, devices: Sequence[jax.Device]) -> Any:
    """Replicate the arrays of a tree on every device, so that later calls need not move them."""
    if jax.process_count() == 1:  # avoids one copy
        # device_put would share the buffer of an array that is already on one of the devices, despite may_alias=False.
        tree = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, tree)
        return jax.device_put(tree, NamedSharding(Mesh(devices, (AXIS,)), PartitionSpec()), may_alias=False)
    return parallelize(lambda arrays: arrays, devices)(tree)


def usable_devices(pieces: int) -> list[jax.Device]:
    """Return the largest number of devices that divides `pieces`, the same number from each process.

    Raises:
        ValueError: If the items cannot be divided evenly among the processes.
    """
    processes = jax.process_count()
    per_process = min(len(jax.local_devices(process_index=i)) for i in range(processes))
    count = max((n for n in range(1, per_process + 1) if pieces % (n * processes) == 0), default=None)
    if count is None:
        raise ValueError(f'cannot divide {pieces} images or episodes evenly among {processes} processes')
    return [d for i in range(processes) for d in jax.local_devices(process_index=i)[:count]]


def current_axis() -> str | None:
    """Return AXIS if several devices share the work; None on one device and under plain `jax.jit`."""
    try:
        return AXIS if lax.axis_size(AXIS) > 1 else None
    except NameError:  # JAX's error for an unbound axis
        return None


def spread(encode: Callable, items: jax.Array, axis_name: str | None) -> tuple[jax.Array, Any]:
    """Embed items, sharded across an axis if it divides them evenly: [N, ...] -> [N, D], statistics."""
    size, rest = divmod(len(items), lax.axis_size(axis_name)) if axis_name else (0, 1)
    if rest:
        return encode(items)
    embeddings, statistics = encode(shard(items, size))
    return lax.all_gather(embeddings, axis_name, tiled=True), statistics


def shard(array: jax.Array, size: int) -> jax.Array:
    """Return this device's shard of a replicated array: [N, ...] -> [size, ...]."""
    return lax.dynamic_slice_in_dim(array, lax.axis_index(AXIS) * size, size)
