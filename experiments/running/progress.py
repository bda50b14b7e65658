"""A progress bar with the time left on a terminal, and plain lines now and then elsewhere. Both are tqdm's."""

import contextlib
import os
import signal
import sys
import time

import jax
from tqdm import tqdm

LINE = '{desc} {n_fmt}/{total_fmt}  {rate_noinv_fmt}  {remaining} left{postfix}'
BAR = LINE.replace('{desc} ', '{desc} {percentage:3.0f}%|{bar}| ')
BAR_SECONDS, LINE_SECONDS = 0.2, 30  # at least, between two states that are shown


class Bar(tqdm):
    monitor_interval = 0  # no thread of its own


class Lines:
    """A stream on which each state of a bar is a line."""

    def __init__(self, stream):
        self.write = lambda text: text.strip() and stream.write(f'{text.strip()}\n')
        self.flush = stream.flush


class Progress:
    """Shows how many episodes are done, how many in a second, the time left, and a note beside them.

    The rate is that of late and of this start. The first step does not count, as it is compiled, nor does time in which
    the program was stopped (Ctrl-Z) or in another phase.
    """

    def __init__(self, label, total, *, done=0, stream=None, quiet=False):
        stream = stream or sys.stderr
        terminal = stream.isatty()
        if done and not quiet:
            print(f'{label}: resuming at episode {done}', file=stream)
        self.note, self._seen, self._named = '', None, {'compiling'}
        self._bar = Bar(
            desc=label,
            total=total or None,
            initial=done,
            unit='',
            postfix='compiling',
            file=stream if terminal else Lines(stream),
            bar_format=BAR if terminal else LINE,
            mininterval=BAR_SECONDS if terminal else LINE_SECONDS,
            miniters=1,
            smoothing=0.1,
            ncols=columns(stream) if terminal else None,
            disable=quiet,
        )
        self._stream, self._terminal = stream, terminal

    def __enter__(self):
        self._before = signal.signal(signal.SIGCONT, lambda *_: self._leave_out_since(self._seen))
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGCONT, self._before)
        self._bar.postfix = self.note
        self._bar.close()

    def update(self, done, total):
        """Episodes done, and how many there will be as far as is known."""
        if self._bar.disable:
            return
        if self._seen is None:  # the first step of this start
            self._bar.initial = self._bar.n = self._bar.last_print_n = done
            self._leave_out_since(self._bar.last_print_t)
        self._bar.total, self._bar.postfix, self._seen = total, self.note, time.time()
        if self._terminal:
            self._bar.ncols = columns(self._stream)
        self._bar.update(done - self._bar.n)

    @contextlib.contextmanager
    def phase(self, name):
        """Say what is done for a while instead of episodes: on a terminal each time, in lines once."""
        began = time.time()
        if not self._bar.disable and (self._terminal or name not in self._named):
            self._named.add(name)
            self._bar.postfix = name
            self._bar.refresh()
        yield
        self._leave_out_since(began)

    def _leave_out_since(self, moment):
        """Let the time since a moment not count for the rate."""
        if not self._bar.disable and moment is not None:
            away = time.time() - moment
            self._bar.start_t += away
            self._bar.last_print_t += away
            self._seen = time.time()


@contextlib.contextmanager
def phase(text, stream=None):
    """Say what is being done: a line, which on a terminal is gone when it has been done."""
    stream = stream or sys.stderr
    if jax.process_index() > 0:
        yield
        return
    terminal = stream.isatty()
    # The next line, whoever writes it, begins where this one does.
    print(f'{text} ...', end='\r' if terminal else '\n', file=stream, flush=True)
    yield
    if terminal:
        print('\x1b[K', end='', file=stream, flush=True)


def columns(terminal):
    """Columns that a line may have, the last one left free. Some terminals do not know: then 80 are most likely."""
    try:
        return (os.get_terminal_size(terminal.fileno()).columns or 80) - 1
    except (OSError, ValueError):  # not one of this machine's
        return 79
