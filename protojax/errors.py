"""Errors that a user can do something about, each one line that names what is wrong and the way out."""

import os
import re


class _OneLine(ValueError):
    """An error whose message is one line without control characters, whatever names of foreign files it quotes."""

    def __init__(self, message: str):
        super().__init__(printable(message))


class DataError(_OneLine):
    """Data that cannot be used; names the file, or the argument in `backticks`."""


class Missing(DataError):
    """There are no data: none prepared, no source given and none to be had from the network."""


class WeightsError(_OneLine):
    """A file that holds no usable weights."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's name where it has none."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # where storage says it at the end of a long line
    if code:
        return os.strerror(int(code[1]))
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def printable(text: str) -> str:
    """A text with its control characters, which could do anything to a terminal, written as escapes."""
    return ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
