"""Distributed runs, one process per host: connecting them, and stopping them together."""

import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from experiments.running.config import ConfigError
from protojax import parallelize
from protojax.devices import AXIS

SECONDS_TO_LIVE = 30  # maximum life of a run after one of its processes has died
POLL_SECONDS = 0.2  # seconds between attempts to reach process 0 at the start
SECONDS_TO_START = 600  # maximum delay between the starts of two processes
SECONDS_TO_PREPARE = 24 * 3600  # barrier timeout, once all processes run
barriers = itertools.count()  # numbers that make the names of barriers unique


def join(coordinator_address: str, num_processes: int, process_id: int) -> None:
    """Connect to the other processes, if there are any; TPU VMs find them by themselves."""
    timeouts = {
        'initialization_timeout': 2 * SECONDS_TO_START,
        'heartbeat_timeout_seconds': SECONDS_TO_LIVE,
        'shutdown_timeout_seconds': SECONDS_TO_LIVE,
    }
    if coordinator_address or num_processes or process_id:
        if ':' not in coordinator_address or process_id >= num_processes:
            raise ConfigError(
                f'invalid distributed setup --coordinator_address={coordinator_address} '
                f'--num_processes={num_processes} --process_id={process_id}: expected host:port of process 0 and '
                '--process_id < --num_processes'
            )
        with _limited_wait(coordinator_address):
            jax.distributed.initialize(coordinator_address, num_processes, process_id, **timeouts)
    elif 'TPU_ML_PLATFORM' in os.environ:  # set by JAX on every TPU VM
        with contextlib.suppress(ValueError):  # a single TPU VM without others
            jax.distributed.initialize(**timeouts)
    connect(jax.devices())  # exchange the lists of devices while all processes are present


@contextlib.contextmanager
def _limited_wait(address: str) -> Iterator[None]:
    """Exit if process 0 stops responding or if not all processes connect in time.

    JAX itself would wait indefinitely in the first case, and dump its stack in the second.
    """
    host, port = address.rsplit(':', 1)
    connected, began = threading.Event(), time.monotonic()

    def watch():
        heard = None
        while not connected.wait(POLL_SECONDS):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), SECONDS_TO_LIVE / 10):
                heard = time.monotonic()
            if heard and time.monotonic() - heard > SECONDS_TO_LIVE:
                _give_up(f'process 0 at {address} is gone')
            if time.monotonic() - began > SECONDS_TO_START:
                _give_up(f'not all processes connected to {address} within {SECONDS_TO_START} seconds')

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        connected.set()


def _give_up(reason: str) -> None:
    print(f'error: {reason}; restart all processes', file=sys.stderr, flush=True)
    os._exit(1)


def connect(devices: Sequence[jax.Device]) -> None:
    """Run one collective on the devices of all processes, all at the same time.

    JAX gives them only 30 seconds to find each other the first time; from then on they wait for the slowest.
    """
    if jax.process_count() > 1:
        everyone = set(range(jax.process_count()))  # some may arrive later than the first collective waits
        barrier = f'connect {next(barriers)}'
        multihost.sync_global_processes(barrier, timeout=SECONDS_TO_PREPARE, processes=everyone)
        parallelize(lambda x: jax.lax.psum(x, AXIS), devices)(np.zeros(()))
        multihost_utils.broadcast_one_to_all(np.zeros(()))  # uses one device of each process: another group


def leave(code: int) -> int:
    """Return an exit code, or exit at once in a distributed run, so that other processes do not wait for this one."""
    if jax.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


class StopSignals:
    """While entered, Ctrl-C or SIGTERM (a preemption) only sets a flag; a second Ctrl-C ends the program at once."""

    def __init__(self) -> None:
        self.received: int | None = None

    def __enter__(self) -> 'StopSignals':
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Return whether to stop: the same answer in every process, all of which must ask."""
        if jax.process_count() == 1:
            return self.received is not None
        return bool(multihost_utils.process_allgather(np.array(self.received is not None)).any())

    def _note(self, number, frame) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
        os.write(2, b'\nstopping after this step or validation; press Ctrl-C again to stop at once\n')
