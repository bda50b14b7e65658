"""Progress on stderr with tqdm: a bar on a terminal, a plain line every 30 seconds in a log file.

Bars are redrawn regularly even if nothing is reported, for example while a program is compiled.
"""

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import jax
from tqdm import tqdm

BAR_SECONDS, LINE_SECONDS = 1.0, 30.0  # between two updates, on a terminal and elsewhere
LINE = '{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]'
BAR = LINE.replace('{desc}: ', '{l_bar}{bar}| ')


class _Lines:
    """A stream on which each state of a bar is a line."""

    def __init__(self, stream: IO[str]):
        self.write = lambda text: text.strip() and stream.write(f'{text.strip()}\n')
        self.flush = stream.flush


@contextlib.contextmanager
def bar(label: str, total: int, *, done: int = 0, stream: IO[str] | None = None, **options: Any) -> Iterator[tqdm]:
    """Show the number of steps done, the elapsed time, the time left and the rate; `options` are passed to tqdm.

    The rate is a moving average of this process. Processes other than the first show nothing.
    """
    stream = stream or sys.stderr
    terminal, quiet = stream.isatty(), jax.process_index() > 0
    if done and not quiet:
        print(f'{label}: resuming at episode {done}', file=stream)
    seconds = BAR_SECONDS if terminal else LINE_SECONDS
    options = {'desc': label, 'total': total or None, 'initial': done, 'unit': '', 'disable': quiet, **options}
    options = {'bar_format': BAR if terminal else LINE, 'mininterval': seconds, 'miniters': 0, **options}
    if terminal:  # tqdm draws nothing if a terminal reports no size
        columns, rows = shutil.get_terminal_size()
        options = {'ncols': columns - 1, 'nrows': rows, **options}
    shown = tqdm(file=stream if terminal else _Lines(stream), **options)
    closed = threading.Event()
    if not quiet:
        threading.Thread(target=_tick, args=(shown, closed, seconds), daemon=True).start()
    try:
        yield shown
    finally:
        closed.set()
        shown.close()


def _tick(shown, closed, seconds):
    """Redraw a bar until it is closed, unless it has just been redrawn."""
    while not closed.wait(seconds):
        if time.time() - shown.last_print_t >= seconds:
            shown.refresh()


@contextlib.contextmanager
def phase(text: str, stream: IO[str] | None = None) -> Iterator[Callable[[float], None]]:
    """Show a line while some work is done; on a terminal the line disappears afterwards.

    Yields:
        A function that may be called with the completed fraction, from 0 to 1.
    """
    with bar(f'{text} ...', 1, stream=stream, bar_format='{desc} {elapsed}', leave=False) as shown:

        def report(fraction: float) -> None:
            shown.bar_format = '{desc} {percentage:.0f}% [{elapsed}<{remaining}]'
            shown.update(fraction - shown.n)

        yield report


def print_above(line: str) -> None:
    """Print a line on stderr, above any bars."""
    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()
