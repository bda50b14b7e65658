"""The devices that a run uses, and the memory that holds its data set: the device's, or the host's if it is large."""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np

from experiments.running.config import Config, ConfigError
from protojax import Dataset, Learner, hosted, place, usable_devices


def devices_for(config: Config, learner: Learner) -> list[jax.Device]:
    """Return the devices that share the work of a step."""
    items = config.episodes.way * (config.episodes.per_class + learner.unlabeled)
    try:
        return usable_devices(items if config.training.episodes_per_step == 1 else config.training.episodes_per_step)
    except ValueError as error:
        raise ConfigError(f'{error}; change --way, --shot, --query or --episodes_per_step') from error


def placed(placement: str, devices: Sequence[jax.Device], *splits: Dataset, in_batches: bool = False) -> Dataset:
    """Concatenate the classes of the splits into one data set, on the devices or on the host.

    Args:
        placement: Value of --placement.
        devices: Devices that share the work.
        splits: Classes on the host.
        in_batches: Whether examples are drawn from all classes, which is only implemented on devices.
    """
    counts = np.concatenate([split.counts for split in splits])
    attributes = None if splits[0].attributes is None else np.concatenate([split.attributes for split in splits])
    items = splits[0].items if len(splits) == 1 else hosted.Joined([split.items for split in splits])
    size = math.prod(items.shape) * items.dtype.itemsize
    if placement == 'host' or (placement == 'auto' and size > _device_memory() / 2):
        if in_batches:
            raise ConfigError('mini-batches of all classes are drawn from data on the device; set --placement=device')
        return Dataset(items, counts, attributes)
    if len(splits) > 1:
        items = np.zeros(items.shape, items.dtype)
        start = 0
        for split in splits:  # filled in place, because a second copy of a large data set may not fit
            items[start : start + len(split.counts), : split.items.shape[1]] = split.items
            start += len(split.counts)
    return place(Dataset(items, counts, attributes), devices)


def _device_memory() -> int:
    """Return the bytes of a device's memory, or of the machine's if the device does not report its memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats.get('bytes_limit') or os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
