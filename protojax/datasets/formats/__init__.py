"""Readers of foreign formats, which trust nothing that a file says.

Each reads from bytes, runs nothing that stands in them and believes no length before it is compared with what is there.
A Budget is asked before memory is taken. `reading_format` turns whatever goes wrong, foreseen or not, into one line.
"""

import contextlib
import os
from collections.abc import Iterator

from protojax.errors import DataError, first_line

Contents = bytes | memoryview  # of a file
Where = str | os.PathLike  # what errors call a file
FACTOR, CONSTANT = 16, 64 << 20  # honest files are compressed to an eighth at best, or are small
OBJECT = 128  # bytes of a small Python object in a list or dictionary


class Damaged(Exception):
    """Why a file cannot be read."""


class Budget:
    """Bytes of memory that the reading of a file may still take: a fixed multiple of its size and a constant."""

    def __init__(self, size: int):
        self.left = FACTOR * size + CONSTANT

    def spend(self, size: int) -> None:
        """To be called before memory is taken."""
        if size > self.left:
            raise Damaged('it would take far more memory than a file of its size should')
        self.left -= size


@contextlib.contextmanager
def reading_format(where: Where, problem: str) -> Iterator[None]:
    """Whatever goes wrong inside is a DataError of the form '<where> <problem> (<reason>); get it again'."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # damage takes many forms, memory that is not to be had among them
        raise DataError(f'{where} {problem} ({first_line(error)}); get it again') from error
