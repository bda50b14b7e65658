"""Where the data set of a run lies: on every device, or on the host where it would not fit."""

import math
import os

import jax
import numpy as np

from protojax import hosted
from protojax.devices import place
from protojax.episodes import Dataset


def placed(config, devices, *splits):
    """Splits as one data set, their classes one after the other, on the devices or on the host."""
    counts = np.concatenate([split.counts for split in splits])
    attributes = None if splits[0].attributes is None else np.concatenate([split.attributes for split in splits])
    items = splits[0].items if len(splits) == 1 else hosted.Joined([split.items for split in splits])
    size = math.prod(items.shape) * items.dtype.itemsize
    if config.placement == 'host' or (config.placement == 'auto' and size > device_memory() / 2):
        return Dataset(items, counts, attributes)
    if len(splits) > 1:
        items = np.zeros(items.shape, items.dtype)
        begin = 0
        for split in splits:  # filled in place, as a large data set should not be in memory more often than it must
            items[begin : begin + len(split.counts), : split.items.shape[1]] = split.items
            begin += len(split.counts)
    return place(Dataset(items, counts, attributes), devices)


def device_memory():
    """Bytes of a device's memory, or of the machine's where the device does not tell."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told.get('bytes_limit') or os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
