"""Processes that read mutated files, each within bounds of memory and time, and are replaced when they die."""

import collections
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from typing import NamedTuple

import numpy as np
from absl import logging

from experiments.fuzzing.mutations import mutant
from experiments.running.workdir import WorkdirError
from protojax.errors import CheckpointError, DataError, WeightsError

SPARE = 2 << 30  # bytes that reading a file may take, beside what the process holds already
SECONDS = 5  # of computing for a file
SILENCE = 600  # seconds after which a process that says nothing is given up; on a busy machine it starts slowly


class MutantJob(NamedTuple):
    """A mutant, which these three determine."""

    format: str
    seed: int
    number: int

    def __str__(self):
        return f'{self.format}-{self.seed}-{self.number}'


def _all_formats():
    from experiments.fuzzing.formats import FORMATS

    return FORMATS


def attack(jobs, keep, formats=_all_formats):
    """Read mutants in a process of their own -> (job, outcome) of each: 'read', 'refused' or what is wrong.

    The process is replaced where a mutant ends it. Files that are neither read nor refused are left in `keep`.
    """
    left, context = collections.deque(jobs), multiprocessing.get_context('spawn')
    while left:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work_in_pool, args=(sender, list(left), keep, formats), daemon=True)
        process.start()
        sender.close()
        for outcome in _outcomes_of_process(process, receiver):
            yield left.popleft(), outcome
            if not left:
                break
        process.kill()
        process.join()


def _outcomes_of_process(process, receiver):
    """What a process says of one mutant after the other, up to its end."""
    while True:
        try:
            if not receiver.poll(SILENCE):
                yield 'waits for ever'
                return
            yield receiver.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            if code == -signal.SIGPROF:
                yield f'computes for more than {SECONDS} s'
            else:
                yield f'ended by {signal.Signals(-code).name}' if code < 0 else f'ended with {code}'
            return


def _work_in_pool(connection, jobs, keep, formats):
    """Read mutants one after the other."""
    os.environ['JAX_PLATFORMS'] = 'cpu'
    warnings.simplefilter('ignore')
    logging.set_verbosity(logging.ERROR)
    sys.unraisablehook = lambda _: None  # of what Orbax leaves behind when it reads a damaged checkpoint
    np.seterr(all='ignore')  # sums of random floats overflow
    formats, seeds = formats(), {}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in dict.fromkeys(job.format for job in jobs):
            seeds[name] = formats[name].seeds()
            # Once without bounds: whatever a reader needs is loaded then.
            outcomes = {_attempt(formats[name], data) for data in seeds[name]}
            assert 'read' in outcomes and outcomes <= {'read', 'refused'}, outcomes
        _limit_memory()
        for job in jobs:
            data = mutant(formats[job.format], seeds[job.format], job)
            file = pathlib.Path(keep, str(job))
            file.write_bytes(data)  # before, as this process may not outlive it
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            outcome = _attempt(formats[job.format], data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if outcome in ('read', 'refused'):
                file.unlink()
            connection.send(outcome)


def _limit_memory():
    with open('/proc/self/statm') as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + SPARE, held + SPARE))


def _attempt(format, data):
    """'read', 'refused', or what is wrong."""
    folder = pathlib.Path(tempfile.mkdtemp(dir='.')).absolute()
    try:
        _check_plain_values(format.read(data, folder))
        return 'read'
    except (DataError, WeightsError, CheckpointError, WorkdirError) as error:
        return _refusal_of_mutant(error)
    except BaseException as error:
        return f'{type(error).__name__}: {str(error)[:200]!r}'
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refusal_of_mutant(error):
    if not str(error).isprintable():
        return f'an error that is no line of text: {str(error)[:200]!r}'
    cause = error
    while cause := cause.__cause__:
        if isinstance(cause, MemoryError):
            return 'takes more memory than there is'
    return 'refused'


def _check_plain_values(value):
    """Nothing but plain values and arrays of numbers, of which every element can be read."""
    todo, seen = [value], set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            todo += item
        elif isinstance(item, np.ndarray):
            assert item.dtype.kind in 'biuf', f'an array of {item.dtype}'
            item.astype(np.float64).sum()
        else:
            plain = bool | int | float | str | bytes | memoryview | np.generic | None
            assert isinstance(item, plain), type(item)
