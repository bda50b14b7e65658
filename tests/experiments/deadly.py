"""Readers that do what no reader should, for the test of experiments.fuzz."""

import ctypes
import itertools

from experiments.fuzzing import pool
from experiments.fuzzing.formats import Format
from protojax.errors import DataError


def crash(data, folder):
    ctypes.string_at(0)


def compute(data, folder):
    while True:
        pass


def fill_memory(data, folder):
    try:
        return bytes(3 << 30)
    except MemoryError as error:
        raise DataError('x cannot be read') from error


def fail(data, folder):
    raise KeyError('x')


def reader(read):
    """Reads the first file, which is a whole one, and does with all others what it should not."""
    calls = itertools.count()
    return Format(lambda: [b'whole'], (), lambda data, folder: read(data, folder) if next(calls) else None)


def formats():
    pool.SECONDS = 1  # of computing, in the process that reads
    return {read.__name__: reader(read) for read in (crash, compute, fill_memory, fail)}
