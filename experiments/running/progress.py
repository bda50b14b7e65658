"""What a person sees while a program works: a bar with the time left, and what is being done besides, with its seconds.

All are bars of tqdm: on a terminal they move, elsewhere they are plain lines now and then. Nothing stands still on a
terminal, as a thread shows the seconds of whatever takes long.
"""

import contextlib
import os
import signal
import sys
import threading
import time

import jax
from tqdm import tqdm

LINE = '{desc} {n_fmt}/{total_fmt}  {rate_noinv_fmt}  {remaining} left{postfix}{spent}'
BAR = LINE.replace('{desc} ', '{desc} {percentage:3.0f}%|{bar}| ')
PHASE = '{desc} ...{share}{spent}'
BAR_SECONDS, LINE_SECONDS = 0.2, 30  # at least, between two states that are shown
STILL_SECONDS = 1  # on a terminal, after which a state is shown again


class _ProgressLines:
    """A stream on which each state of a bar is a line."""

    def __init__(self, stream):
        self.write = lambda text: text.strip() and stream.write(f'{text.strip()}\n')
        self.flush = stream.flush


class _ProgressBar(tqdm):
    """A bar, or lines where the stream is no terminal, with the seconds since `began` where that is a time."""

    monitor_interval = 0  # tqdm's own thread looks after the rate alone

    def __init__(self, stream, *, bar, line, **options):
        self.stream, self.terminal = stream or sys.stderr, (stream or sys.stderr).isatty()
        self.began = self.shown = time.time()
        self.ended = threading.Event()
        super().__init__(
            file=self.stream if self.terminal else _ProgressLines(self.stream),
            bar_format=bar if self.terminal else line,
            mininterval=BAR_SECONDS if self.terminal else LINE_SECONDS,
            **options,
        )
        if not self.disable:
            threading.Thread(target=self.show_again, daemon=True).start()

    @property
    def format_dict(self):
        seconds = int(time.time() - self.began) if self.began else 0
        share = f' {100 * self.n:.0f} %' if self.n else ''
        return super().format_dict | {'spent': f' {seconds} s' if seconds else '', 'share': share}

    def display(self, *args, **options):
        self.shown = time.time()
        if self.terminal:
            self.ncols = progress_columns(self.stream)
        return super().display(*args, **options)

    def show_again(self):
        """Show a state again while nothing new comes."""
        seconds = STILL_SECONDS if self.terminal else LINE_SECONDS
        while not self.ended.wait(seconds / 2):
            if time.time() - self.shown >= seconds / 2:
                self.refresh()

    def close(self):
        self.ended.set()
        super().close()


class Progress:
    """Shows how many episodes are done, how many in a second, the time left, and a note beside them.

    The rate is that of late and of this start. The first step does not count, as it is compiled, nor does time in which
    the program was stopped (Ctrl-Z) or in another phase.
    """

    def __init__(self, label, total, *, done=0, stream=None, quiet=False):
        if done and not quiet:
            print(f'{label}: resuming at episode {done}', file=stream or sys.stderr)
        self.note, self._seen, self._named = '', None, {'compiling'}
        self._bar = _ProgressBar(
            stream,
            bar=BAR,
            line=LINE,
            desc=label,
            total=total or None,
            initial=done,
            unit='',
            postfix='compiling',
            miniters=1,
            smoothing=0.1,
            disable=quiet,
        )

    def __enter__(self):
        self._before = signal.signal(signal.SIGCONT, lambda *_: self._leave_out_since(self._seen))
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGCONT, self._before)
        self._bar.postfix, self._bar.began = self.note, None
        self._bar.close()

    def update(self, done, total):
        """Episodes done, and how many there will be as far as is known."""
        if self._bar.disable:
            return
        if self._seen is None:  # the first step of this start
            self._bar.initial = self._bar.n = self._bar.last_print_n = done
            self._leave_out_since(self._bar.last_print_t)
        self._bar.total, self._bar.postfix, self._bar.began, self._seen = total, self.note, None, time.time()
        self._bar.update(done - self._bar.n)

    @contextlib.contextmanager
    def phase(self, name):
        """Say what is done for a while instead of episodes: on a terminal each time, in lines once."""
        began = self._bar.began = time.time()
        if not self._bar.disable:
            self._bar.postfix = name
            if self._bar.terminal or name not in self._named:
                self._named.add(name)
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
    """Say what is being done, which on a terminal is gone when it has been done.

    Gives a function that may be told the share that is done, from 0 to 1.
    """
    bar = _ProgressBar(stream, bar=PHASE, line=PHASE, desc=text, leave=False, disable=jax.process_index() > 0)

    def tell(share):
        bar.n = share

    try:
        yield tell
    finally:
        bar.close()


def show_above_progress(line):
    """A line on stderr, above the bars that are there."""
    tqdm.write(line, file=sys.stderr)
    sys.stderr.flush()


def progress_columns(terminal):
    """Columns that a line may have, the last one left free. Some terminals do not know: then 80 are most likely."""
    try:
        return (os.get_terminal_size(terminal.fileno()).columns or 80) - 1
    except (OSError, ValueError):  # not one of this machine's
        return 79
