"""Where the files of a data set come from: folders, archives, downloads, and the forms in which people have them."""

import sys

from protojax.errors import printable


def announce(line: str) -> None:
    """One line for the user, beside the results on stdout."""
    print(printable(line), file=sys.stderr, flush=True)
