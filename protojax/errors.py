"""Errors that a user can fix: each is one line with the problem and a hint."""

import os
import re


class _OneLine(ValueError):
    """An error whose message is one line, without control characters from the names of untrusted files."""

    def __init__(self, message: str):
        super().__init__(printable(message))


class DataError(_OneLine):
    """Unusable data; the message names the file, or the argument in `backticks`."""


class Missing(DataError):
    """No data: none are prepared, no source is given, and a download is impossible."""


class WeightsError(_OneLine):
    """A file without usable weights."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if it has none."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # at the end of a long line of Orbax
    if code:
        return os.strerror(int(code[1]))
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def printable(text: str) -> str:
    """Escape control characters, which could do anything to a terminal."""
    return ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
