"""Which devices a run uses, and where its data set lies: on every device, or on the host where it would not fit."""

import math
import os

import jax
import numpy as np

from experiments.running.config import ConfigError
from protojax.devices import place, usable_devices
from protojax.episodes import Dataset
from protojax.hosted import JoinedHostedItems

BATCHED = ('nearest', 'ale', 'sje', 'clustering')  # models that learn from batches, which are drawn on the device


def devices_for(config, task):
    """The devices that share the work of a step."""
    items = config.way * (config.items_per_class + task.unlabeled)
    try:
        return usable_devices(items if config.episodes_per_step == 1 else config.episodes_per_step)
    except ValueError as error:
        raise ConfigError(f'{error}; change --way, --shot, --query or --episodes_per_step') from error


def placed(config, devices, *splits):
    """Splits as one data set, their classes one after the other, on the devices or on the host."""
    counts = np.concatenate([split.counts for split in splits])
    attributes = None if splits[0].attributes is None else np.concatenate([split.attributes for split in splits])
    items = splits[0].items if len(splits) == 1 else JoinedHostedItems([split.items for split in splits])
    size = math.prod(items.shape) * items.dtype.itemsize
    if config.placement == 'host' or (config.placement == 'auto' and size > _device_memory() / 2):
        if getattr(config, 'pretrain', 0) or getattr(config, 'model', '') in BATCHED:
            what = '--pretrain' if getattr(config, 'pretrain', 0) else f'--model={config.model}'
            raise ConfigError(f'{what} draws batches of all classes; give --placement=device')
        return Dataset(items, counts, attributes)
    if len(splits) > 1:
        items = np.zeros(items.shape, items.dtype)
        begin = 0
        for split in splits:  # filled in place, as a large data set should not be in memory more often than it must
            items[begin : begin + len(split.counts), : split.items.shape[1]] = split.items
            begin += len(split.counts)
    return place(Dataset(items, counts, attributes), devices)


def _device_memory():
    """Bytes of a device's memory, or of the machine's where the device does not tell."""
    told = jax.local_devices()[0].memory_stats() or {}
    return told.get('bytes_limit') or os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
