"""A progress bar with time left on a terminal, and plain lines elsewhere."""

import shutil
import sys
import time

LINE_SECONDS = 30  # between plain lines


class Progress:
    """Shows how many of the episodes are done, at what rate, the time left, and a note beside them."""

    def __init__(self, label, total, *, done=0, stream=None, quiet=False):
        self.label, self.total, self.done, self.quiet = label, total, done, quiet
        self.stream = stream or sys.stderr
        self.note = ''
        self._first, self._started, self._shown = None, 0.0, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._show()
        if self.stream.isatty() and not self.quiet:
            self.stream.write('\n')

    def update(self, done, total):
        """Episodes done, and how many there will be as far as is known."""
        self.done, self.total = done, total
        if self._first is None:  # the rate leaves out the first step, which is compiled before it runs
            self._first, self._started = done, time.monotonic()
        if time.monotonic() - self._shown > (0.2 if self.stream.isatty() else LINE_SECONDS):
            self._show()

    def _show(self):
        self._shown = time.monotonic()
        if self.quiet:
            return
        seen = 0 if self._first is None else self.done - self._first
        rate = seen / max(self._shown - self._started, 1e-9)
        left = clock((self.total - self.done) / rate) if rate > 0 else '?'
        figures = f'{self.done}/{self.total}  {self.note}  {rate:.1f} episodes/s  {left} left'
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - len(self.label) - len(figures) - 6
            filled = int(width * self.done / max(self.total, 1))
            bar = f'[{"#" * filled}{"." * (width - filled)}] ' if width >= 8 else ''
            self.stream.write(f'\r{self.label} {bar}{figures}\x1b[K')
        else:
            self.stream.write(f'{self.label} {figures}\n')
        self.stream.flush()


def clock(seconds):
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{seconds:02}' if hours else f'{minutes}:{seconds:02}'
