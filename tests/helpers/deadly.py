"""Readers with defects, for the test of tests.fuzz."""

import ctypes
import itertools

from tests.fuzz.formats import Format


def crash(folder):
    ctypes.string_at(0)


def compute(folder):
    while True:
        pass


def fail(folder):
    raise KeyError('x')


def defective(read):
    """Reads the first file, which is valid, and fails with all others."""
    calls = itertools.count()
    return Format(lambda: [{'x': b'valid'}], lambda folder: read(folder) if next(calls) else None)


FORMATS = {read.__name__: defective(read) for read in (crash, compute, fail)}
