"""Contenders measured in turn, round after round, so that what slows the machine for a while slows all of them."""

import contextlib
import importlib.util
import statistics
import sys
import time
from typing import NamedTuple

from experiments.benchmark.workers import Worker, WorkerError

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


def measure(section, yardsticks, *, rounds, seconds):
    """All rounds of a section and of the yardsticks -> {name: Measurement}, idle share, {name: why it is left out}.

    In each round every contender runs for about that many seconds, and at least one step.
    """
    runners, left_out = {}, {}
    for entry in (*section.entries, *yardsticks):
        name = entry.contender.name
        say(f'{section.name}: starting {name}')
        with leaving_out(name, left_out):
            runners[name] = Runner(entry.contender, seconds)
    for number in range(1, rounds + 1):
        for name, runner in runners.items():
            if name not in left_out:
                with leaving_out(name, left_out):
                    runner.take_turn()
        best = ', '.join(f'{name} {min(runner.turns):.4f} s' for name, runner in runners.items() if runner.turns)
        say(f'{section.name}: round {number} of {rounds}, best so far: {best}')
    found = {}
    for name, runner in runners.items():
        runner.worker.stop()
        if name not in left_out:
            found[name] = Measurement(runner.first_step, runner.turns, runner.peak_memory)
    return found, traced(section), left_out


@contextlib.contextmanager
def leaving_out(name, left_out):
    """Note who fails and why, and go on without them."""
    try:
        yield
    except WorkerError as error:
        left_out[name] = str(error)
        say(f'{name} is left out: {error}')


class Runner:
    """A contender at work, and what it has done so far."""

    def __init__(self, contender, seconds):
        require(contender)
        self.worker = Worker(contender)
        self.first_step = self.worker.run(1).seconds
        self.steps = max(1, round(seconds / self.worker.run(1).seconds))
        self.turns, self.peak_memory = [], None

    def take_turn(self):
        time.sleep(PAUSE)
        turn = self.worker.run(self.steps)
        self.turns.append(turn.seconds)
        self.peak_memory = turn.peak_memory


def traced(section):
    """Share of the time in which no step was at work, where the section asks for it."""
    if section.traced is None:
        return None
    say(f'{section.name}: tracing')
    try:
        worker = Worker(section.traced)
        worker.run(1)
        idle = worker.run(TRACED_STEPS).value
        worker.stop()
    except WorkerError as error:
        say(f'{section.name}: no trace: {error}')
        return None
    return idle


def require(contender):
    """Raise where a contender's library is not installed."""
    if contender.module == 'torch_contenders' and importlib.util.find_spec('torch') is None:
        raise WorkerError("PyTorch is not installed; pip install 'protojax[benchmark]'")


def say(line):
    print(line, file=sys.stderr, flush=True)
