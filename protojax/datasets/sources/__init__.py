"""Where the files of a data set come from: folders, archives, downloads, and the forms in which people have them."""

import sys
from collections.abc import Callable

from protojax.errors import printable

# What people call the splits.
SPLIT_NAMES = {
    'train': 'train',
    'val': 'validation',
    'valid': 'validation',
    'validation': 'validation',
    'test': 'test',
}


def _announce_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


listener: Callable[[str], None] = _announce_on_stderr  # hears what is announced; a program may put one of its own here


def announce(line: str) -> None:
    """One line for the user, with `arguments` in backticks."""
    listener(printable(line))
