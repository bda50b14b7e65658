"""Every contender in a process of its own, so that each has its own memory; told to run one at a time."""

import contextlib
import importlib
import multiprocessing
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple


class _WorkerTurn(NamedTuple):
    """What a process reports after some steps."""

    seconds: float  # per step
    value: Any  # what the last step gave, where it gives something
    peak_memory: int | None  # bytes, the most that the whole process has ever held in memory


class WorkerError(RuntimeError):
    """A process that has failed; the message is its own."""


class Worker:
    """A process with a contender in it."""

    def __init__(self, contender):
        context = multiprocessing.get_context('spawn')
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve_worker, args=(theirs, contender), daemon=True)
        with _worker_environment(contender.environment):
            self._process.start()
        theirs.close()  # so that the end of the process is noticed here
        self._answer()

    def run(self, steps):
        """Run some steps -> _WorkerTurn."""
        with contextlib.suppress(OSError):  # if it has ended, its answer tells
            self._pipe.send(steps)
        return self._answer()

    def stop(self):
        self._pipe.close()
        self._process.join()

    def _answer(self):
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise WorkerError(f'its process ended with code {self._process.exitcode}') from None
        if isinstance(answer, WorkerError):
            raise answer
        return answer


@contextlib.contextmanager
def _worker_environment(environment):
    """Set variables of the environment for a while: a process takes over those that it is started with."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _import_from(checkout):
    """Let imports find another copy of protojax and of the benchmark; this module stays, which talks to the parent."""
    for name in [name for name in sys.modules if name.split('.')[0] in ('experiments', 'protojax')]:
        if name != __name__:
            del sys.modules[name]
    sys.path.insert(0, checkout)


def _serve_worker(pipe, contender):
    """Build a contender, then run as many steps as asked until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    os.environ['JAX_PLATFORMS'] = 'cpu'
    if contender.checkout:
        _import_from(contender.checkout)
    try:
        module = importlib.import_module(f'experiments.benchmark.{contender.module}')
        # Copies of version 0.1 call their functions `training` and the like.
        name = contender.function
        build = getattr(module, name, None) or getattr(module, name.removesuffix('_contender'))
        run = build(*contender.arguments, **contender.options)
        pipe.send(None)
        while True:
            steps = pipe.recv()
            started = time.perf_counter()
            value = run(steps)
            seconds = (time.perf_counter() - started) / steps
            pipe.send(_WorkerTurn(seconds, value, _peak_memory_of_worker()))
    except EOFError:
        return
    except Exception as error:  # whatever it is, the parent must not wait for ever
        pipe.send(WorkerError(f'{type(error).__name__}: {error}'))


def _peak_memory_of_worker():
    """The most memory that this process has ever held, in bytes; None where the system does not say."""
    status = Path('/proc/self/status')
    found = re.search(r'VmHWM:\s+(\d+) kB', status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else None
