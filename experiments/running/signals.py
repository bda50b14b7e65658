"""Asking a run to stop: Ctrl-C, or the SIGTERM that announces a preemption."""

import signal

import jax
import numpy as np
from jax.experimental import multihost_utils


class StopSignals:
    """While entered, the first signal only sets a flag; a second Ctrl-C ends the program at once."""

    def __init__(self):
        self.received = None

    def __enter__(self):
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self):
        """Whether to stop: the same answer in every process of the job, which must all ask."""
        if jax.process_count() == 1:
            return self.received is not None
        return bool(multihost_utils.process_allgather(np.array(self.received is not None)).any())

    def _note(self, number, frame):
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
