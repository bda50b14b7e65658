"""Errors that a user can do something about, each one line that names what is wrong and the way out."""

import os
import re


class DataError(ValueError):
    """Data that cannot be used; names the file or argument."""


class Missing(DataError):
    """There are no data: none prepared, no source given and none to be had from the network."""


class WeightsError(ValueError):
    """A file that holds no usable weights."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read or used."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's name where it has none."""
    code = re.search(r"os_error_code='(\d+)'", str(error))  # where storage says it at the end of a long line
    if code:
        return os.strerror(int(code[1]))
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
