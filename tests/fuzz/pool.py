"""A process that reads corrupted files, with limits of memory and computing time; it is replaced when it dies."""

import collections
import concurrent.futures
import functools
import importlib
import logging
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import jax
import numpy as np

from experiments.running.workdir import WorkdirError
from protojax.errors import CheckpointError, DataError, WeightsError
from tests.fuzz import mutations
from tests.helpers.forks import SERVER

MEMORY = 16 << 30  # bytes of address space
SECONDS = 20  # of computing
EXPECTED = ('read', 'rejected')
PLAIN = (np.ndarray, np.generic, jax.Array, bool, int, float, str, bytes, type(None))


class Job(NamedTuple):
    """A corrupted input, determined by these three."""

    format: str
    seed: int
    number: int

    def __str__(self):
        return f'{self.format}-{self.seed}-{self.number}'


def attack(
    jobs: Iterable[Job], keep: pathlib.Path, formats: str = 'tests.fuzz.formats', seconds: int = SECONDS
) -> Iterator[tuple[Job, str]]:
    """Read inputs in a separate process and yield each outcome: 'read', 'rejected' or the problem.

    Args:
        keep: folder for the inputs that are neither read nor rejected.
        formats: module with the table FORMATS.
    """
    left = collections.deque(jobs)
    while left:
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=SERVER) as pool:
            try:
                while left:
                    future = pool.submit(outcome, left[0], pathlib.Path(keep).absolute(), formats, seconds)
                    yield left[0], future.result()
                    left.popleft()
            except BrokenProcessPool:
                yield left.popleft(), 'ended the process'


def outcome(job: Job, keep: pathlib.Path, formats: str, seconds: int) -> str:
    """Write an input below `keep`, read it, and remove it unless it is a defect."""
    format, seeds = _ready(job.format, formats)
    folder = keep / str(job)
    _write(mutations.mutant(random.Random(str(job)), seeds, format.mutations), folder)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # ends the process
    found = _attempt(format, folder)
    signal.setitimer(signal.ITIMER_PROF, 0)
    if found in EXPECTED:
        shutil.rmtree(folder)
    return found


@functools.cache
def _ready(name, formats):
    """Return a format and its seeds after reading each of them, so that everything is loaded and compiled."""
    warnings.simplefilter('ignore')
    np.seterr(all='ignore')
    logging.disable(logging.ERROR)
    sys.unraisablehook = lambda _: None  # Orbax leaves tasks behind when it reads corrupted checkpoints
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    format = importlib.import_module(formats).FORMATS[name]
    seeds = format.seeds()
    for seed in seeds:
        folder = pathlib.Path(tempfile.mkdtemp())
        _write(seed, folder)
        assert (found := _attempt(format, folder)) == 'read', (name, found)
    return format, seeds


def _write(files, folder):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _attempt(format, folder):
    """Read a folder; return 'read', 'rejected' or the problem."""
    try:
        for leaf in jax.tree.leaves(format.read(folder)):
            assert isinstance(leaf, PLAIN) and getattr(leaf, 'dtype', np.dtype('i4')).kind in 'biufU', type(leaf)
        return 'read'
    except (DataError, WeightsError, CheckpointError, WorkdirError) as error:
        return 'rejected' if str(error).isprintable() else f'not one line: {str(error)[:200]!r}'
    except BaseException as error:
        return f'{type(error).__name__}: {str(error)[:200]!r}'
