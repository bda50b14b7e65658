"""Contenders measured in turn, round after round, so that what slows the machine for a while slows all of them."""

import contextlib
import importlib.util
import statistics
import time
from typing import NamedTuple

from experiments.benchmark.workers import Worker, WorkerError
from experiments.running.progress import show_above_progress

PAUSE = 0.05  # seconds before a turn, in which the threads of the last one fall asleep
TRACED_STEPS = 16


class Measurement(NamedTuple):
    """What was measured of one contender."""

    first_step: float  # seconds, with everything that is compiled for it
    turns: list  # seconds per step, one mean of several steps in each round
    peak_memory: int | None  # bytes

    @property
    def best(self):
        return min(self.turns)

    @property
    def median(self):
        return statistics.median(self.turns)

    @property
    def swing(self):
        """Share of the best round's rate that the slowest round lost."""
        return 1 - min(self.turns) / max(self.turns)


def measure(section, yardsticks, *, rounds, seconds):
    """All rounds of a section and of the yardsticks -> {name: Measurement}, idle share, {name: why it is left out}.

    In each round every contender runs for about that many seconds, and at least one step.
    """
    runners, left_out = {}, {}
    for entry in (*section.entries, *yardsticks):
        name = entry.contender.name
        show_above_progress(f'{section.name}: starting {name}')
        with _leaving_out(name, left_out):
            runners[name] = _MeasuredRunner(entry.contender, seconds, section.fits_memory)
    for number in range(1, rounds + 1):
        for name, runner in runners.items():
            if name not in left_out:
                with _leaving_out(name, left_out):
                    runner.take_turn()
        best = ', '.join(f'{name} {min(runner.turns):.4f} s' for name, runner in runners.items() if runner.turns)
        show_above_progress(f'{section.name}: round {number} of {rounds}, best so far: {best}')
    found = {}
    for name, runner in runners.items():
        runner.stop()
        if name not in left_out:
            found[name] = Measurement(runner.first_step, runner.turns, runner.peak_memory)
    return found, _measure_trace(section), left_out


@contextlib.contextmanager
def _leaving_out(name, left_out):
    """Note who fails and why, and go on without them."""
    try:
        yield
    except WorkerError as error:
        left_out[name] = str(error)
        show_above_progress(f'{name} is left out: {error}')


class _MeasuredRunner:
    """A contender, and what it has done so far; its process waits between the turns or is started for each of them."""

    def __init__(self, contender, seconds, waits):
        if contender.module == 'torch_contenders' and importlib.util.find_spec('torch') is None:
            raise WorkerError("PyTorch is not installed; pip install 'protojax[benchmark]'")
        self.contender, self.seconds, self.waits = contender, seconds, waits
        self.worker = self.first_step = self.peak_memory = None
        self.turns = []
        if waits:
            self.start()

    def start(self):
        """Start the process, compile, and run two steps, one prepared while the other runs, as in the turns."""
        self.worker = Worker(self.contender)
        first = self.worker.run(1).seconds
        self.first_step = self.first_step or first
        self.steps = max(1, round(self.seconds / self.worker.run(2).seconds))

    def stop(self):
        if self.worker is not None:
            self.worker.stop()
            self.worker = None

    def take_turn(self):
        if self.worker is None:
            self.start()
        time.sleep(PAUSE)
        turn = self.worker.run(self.steps)
        self.turns.append(turn.seconds)
        self.peak_memory = turn.peak_memory
        if not self.waits:
            self.stop()


def _measure_trace(section):
    """Share of the time in which no step was at work, where the section asks for it."""
    if section.traced is None:
        return None
    show_above_progress(f'{section.name}: tracing')
    try:
        worker = Worker(section.traced)
        worker.run(1)
        idle = worker.run(TRACED_STEPS).value
        worker.stop()
    except WorkerError as error:
        show_above_progress(f'{section.name}: no trace: {error}')
        return None
    return idle
