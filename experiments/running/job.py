"""A job of several processes, one per host: how they find each other, wait for each other and end together."""

import contextlib
import os
import sys

import jax
from orbax.checkpoint import multihost

from experiments.running.config import ConfigError

SECONDS_TO_LIVE = 30  # of a job after one of its processes has died
SECONDS_TO_PREPARE = 24 * 3600  # how much longer than another host one may take to prepare its data


def join(config):
    """Connect to the other processes, where there are any. TPU VMs know by themselves which these are."""
    timeouts = {'heartbeat_timeout_seconds': SECONDS_TO_LIVE, 'shutdown_timeout_seconds': SECONDS_TO_LIVE}
    address = (config.coordinator_address, config.num_processes, config.process_id)
    if any(address):
        if ':' not in address[0] or address[2] >= address[1]:
            raise ConfigError(
                f'--coordinator_address={address[0]} --num_processes={address[1]} --process_id={address[2]} make no '
                'job; give host:port of process 0, the number of processes, and a number below that'
            )
        jax.distributed.initialize(*address, **timeouts)
    elif 'TPU_ML_PLATFORM' in os.environ:  # set by JAX on every TPU VM
        with contextlib.suppress(ValueError):  # a single one that knows of no others
            jax.distributed.initialize(**timeouts)
    jax.devices()  # the processes learn of each other's devices now, while all are here


def meet(place):
    """Wait until every process has come to a place, which may take longer than the first collective would wait."""
    everyone = set(range(jax.process_count()))
    multihost.sync_global_processes(place, timeout=SECONDS_TO_PREPARE, processes=everyone)


def leave(code):
    """End with an exit code: at once where other processes would wait for this one, so that they end too."""
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
