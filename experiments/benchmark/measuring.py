"""Measurement in turns: each implementation runs in a separate process, one at a time, round after round.

Interleaving spreads slow periods of the machine over all implementations. Imports neither JAX nor PyTorch, because each
process must only contain the libraries that it uses.
"""

import importlib
import multiprocessing
import os
import re
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from experiments.benchmark.plan import Contender, Run, Section

PAUSE = 0.05  # seconds before a turn, so that the threads of the last one fall asleep
_run: Run  # of this process, if it is one of an implementation


class Worker:
    """The process of an implementation and its measurements."""

    first_step: float | None = None  # seconds, including compilation
    peak_memory: int | None = None  # bytes, of the whole process
    pool: ProcessPoolExecutor | None = None

    def __init__(self, contender: Contender):
        self.contender = contender
        self.turns: list[float] = []  # seconds per step, one mean per round

    def take_turn(self, seconds: float) -> None:
        """Run for about this many seconds and at least one step; the first time, start the process and compile."""
        if self.pool is None:
            self._start(seconds)
        time.sleep(PAUSE)
        self.turns.append(self._run(self.steps))

    def stop(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None

    def _start(self, seconds: float) -> None:
        context, before = multiprocessing.get_context('spawn'), dict(os.environ)
        # The parent handles Ctrl-C.
        self.pool = ProcessPoolExecutor(1, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
        os.environ.update(self.contender.environment)  # inherited by the new process
        try:
            built = self.pool.submit(_build, self.contender)
        finally:
            os.environ.clear()
            os.environ.update(before)
        built.result()
        first = self._run(1)
        self.first_step = self.first_step or first
        self.steps = max(1, round(seconds / self._run(2)))  # two, so that one is dispatched while the other runs

    def _run(self, steps: int) -> float:
        seconds, self.peak_memory = self.pool.submit(_time, steps).result()
        return seconds


def _build(contender: Contender) -> None:
    """Build the function that this process measures."""
    global _run
    os.environ['JAX_PLATFORMS'] = 'cpu'
    module = importlib.import_module(contender.module, __package__)
    _run = getattr(module, contender.function)(contender.workload, **contender.options)


def _time(steps: int) -> tuple[float, int | None]:
    """Run several steps -> seconds per step, peak resident memory of this process if the system reports it."""
    started = time.perf_counter()
    _run(steps)
    seconds = (time.perf_counter() - started) / steps
    status = Path('/proc/self/status')
    found = re.search(r'VmHWM:\s+(\d+) kB', status.read_text()) if status.exists() else None
    return seconds, int(found[1]) * 1024 if found else None


def measure(
    section: Section, yardstick: Contender, *, rounds: int, seconds: float
) -> tuple[dict[str, Worker], dict[str, str]]:
    """Run all rounds of a section and of the yardstick, with turns of about `seconds`.

    Returns:
        The measurements by name, and the failures of the implementations that are left out.
    """
    workers = {contender.name: Worker(contender) for contender in (*section.contenders, yardstick)}
    left_out: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for name, worker in list(workers.items()):
            try:
                worker.take_turn(seconds)
            except Exception as error:  # of any kind, also a killed process
                left_out[name] = f'{type(error).__name__}: {error}'
                workers.pop(name).stop()
                _log(f'{name} is left out: {left_out[name]}')
            if not section.fits_memory:
                worker.stop()
        best = ', '.join(f'{name} {min(worker.turns):.4f} s' for name, worker in workers.items())
        _log(f'{section.name}: round {number} of {rounds}, best so far: {best}')
    for worker in workers.values():
        worker.stop()
    return workers, left_out


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
