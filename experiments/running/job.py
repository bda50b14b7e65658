"""A job of several processes, one per host: how they find each other, wait for each other and end together."""

import contextlib
import itertools
import os
import socket
import sys
import threading
import time

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from experiments.running.config import ConfigError
from protojax.devices import AXIS, parallelize

SECONDS_TO_LIVE = 30  # of a job after one of its processes has died
LOOK_EVERY = 0.2  # seconds between looks for process 0 at the start: one that dies soon after must have been seen
SECONDS_TO_START = 600  # how much later than another process one may be started
SECONDS_TO_PREPARE = 24 * 3600  # and how much later it may come to a place where all meet, once it runs
meetings = itertools.count()  # no barrier can be used twice


def join_job(config):
    """Connect to the other processes, where there are any. TPU VMs know by themselves which these are."""
    timeouts = {
        'initialization_timeout': 2 * SECONDS_TO_START,
        'heartbeat_timeout_seconds': SECONDS_TO_LIVE,
        'shutdown_timeout_seconds': SECONDS_TO_LIVE,
    }
    address = (config.coordinator_address, config.num_processes, config.process_id)
    if any(address):
        if ':' not in address[0] or address[2] >= address[1]:
            raise ConfigError(
                f'--coordinator_address={address[0]} --num_processes={address[1]} --process_id={address[2]} make no '
                'job; give host:port of process 0, the number of processes, and a number below that'
            )
        with _patience_with_job(address[0]):
            jax.distributed.initialize(*address, **timeouts)
    elif 'TPU_ML_PLATFORM' in os.environ:  # set by JAX on every TPU VM
        with contextlib.suppress(ValueError):  # a single one that knows of no others
            jax.distributed.initialize(**timeouts)
    connect_job(jax.devices())  # the processes learn of each other's devices now, while all are here


@contextlib.contextmanager
def _patience_with_job(address):
    """End this process if process 0 was there and is silent now, or if some process does not come at all.

    JAX itself would wait on in the first case, and dump its stack in the second.
    """
    host, port = address.rsplit(':', 1)
    met, began = threading.Event(), time.monotonic()

    def watch():
        heard = None
        while not met.wait(LOOK_EVERY):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), SECONDS_TO_LIVE / 10):
                heard = time.monotonic()
            if heard and time.monotonic() - heard > SECONDS_TO_LIVE:
                _give_up_job(f'process 0 at {address} is gone')
            if time.monotonic() - began > SECONDS_TO_START:
                _give_up_job(f'not all processes came to {address} within {SECONDS_TO_START} seconds')

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        met.set()


def _give_up_job(reason):
    print(f'error: {reason}; start all again', file=sys.stderr, flush=True)
    os._exit(1)


def connect_job(devices):
    """Let devices of several processes compute together once, all at the same time.

    The first time, JAX gives them 30 seconds to find each other; from then on they wait for the slowest.
    """
    if jax.process_count() > 1:
        everyone = set(range(jax.process_count()))  # some may come later than the first collective would wait
        meeting = f'connect {next(meetings)}'
        multihost.sync_global_processes(meeting, timeout=SECONDS_TO_PREPARE, processes=everyone)
        parallelize(lambda x: jax.lax.psum(x, AXIS), devices)(np.zeros(()))
        multihost_utils.broadcast_one_to_all(np.zeros(()))  # one device of each process, which are yet another group


def leave_job(code):
    """End with an exit code: at once where other processes would wait for this one, so that they end too."""
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
