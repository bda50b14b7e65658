"""The progress bar on a terminal and elsewhere."""

import contextlib
import io
import os
import pty
import re
import signal
import termios
import time

import pytest

from experiments.running import progress
from experiments.running.progress import Progress, phase


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: clock[0] is the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(progress.time, 'time', lambda: now[0])
    monkeypatch.setattr('tqdm.std.time', lambda: now[0])
    return now


def everything(leader):
    """What was written to a terminal that has been closed."""
    parts = []
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(leader, 10_000):
            parts.append(part)
    os.close(leader)
    return b''.join(parts).decode()


@pytest.mark.parametrize('size', [80, 0, 200])
def test_a_bar_shows_everything_on_a_terminal(clock, size):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(leader, (25, size))
    with open(follower, 'w') as terminal, Progress('search', 10_000, stream=terminal) as bar:
        for episode in range(1, 11):
            clock[0] += 0.125
            bar.note = 'loss 0.1234, 96.1 % right'
            bar.update(200 * episode, 10_000)
    shown = everything(leader)
    assert shown.count('\n') == 1  # one line that is written over
    last = shown.split('\r')[-2].rstrip()
    assert (size or 80) - 5 < len(last) < (size or 80)
    assert re.search(r'search  20%\|.{5,}\| 2000/10000  .*/s  .* left, loss 0.1234, 96.1 % right', last)


def test_elsewhere_lines_come_seldom_and_the_last_one_always(clock):
    file = io.StringIO()
    with Progress('train', 100, stream=file) as bar:
        for episode in range(1, 101):
            clock[0] += 1.0
            bar.update(episode, 100)
    lines = file.getvalue().splitlines()
    assert '\r' not in file.getvalue()
    assert [line.split()[1] for line in lines] == ['0/100', '31/100', '61/100', '91/100', '100/100']
    assert lines[0].endswith('compiling')
    assert '1.00/s  01:09 left' in lines[1]


def test_the_rate_is_that_of_this_start(clock):
    file = io.StringIO()
    with Progress('train', 2000, done=1000, stream=file) as bar:
        clock[0] = 50.0  # the first step is compiled
        bar.update(1001, 2000)
        clock[0] = 150.0
        bar.update(1201, 2000)
    lines = file.getvalue().splitlines()
    assert lines[0] == 'train: resuming at episode 1000'
    assert '2.00/s  06:39 left' in lines[2]


@pytest.mark.parametrize('away', ['stopped', 'phase'])
def test_time_away_does_not_count(clock, away):
    file = io.StringIO()
    with Progress('train', 1000, stream=file) as bar:
        for episode in range(1, 101):
            clock[0] += 1.0
            bar.update(episode, 1000)
            if episode == 50 and away == 'stopped':
                clock[0] += 36_000
                os.kill(os.getpid(), signal.SIGCONT)
            if episode == 50 and away == 'phase':
                with bar.phase('validating'):
                    clock[0] += 36_000
    rates = [float(line.split()[2].removesuffix('/s')) for line in file.getvalue().splitlines()[1:]]
    assert all(0.95 < rate < 1.05 for rate in rates)


def test_phases_are_named_each_time_on_a_terminal_and_once_in_lines(clock):
    for stream, times in ((Terminal(), 3), (io.StringIO(), 1)):
        with Progress('train', 10, stream=stream) as bar:
            for episode in range(1, 4):
                bar.update(episode, 10)
                with bar.phase('validating'):
                    clock[0] += 0.05
        assert stream.getvalue().count('validating') == times


def test_what_is_being_done_is_said_and_gone_from_a_terminal_afterwards():
    with phase('loading', lines := io.StringIO()):
        assert lines.getvalue() == 'loading ...\n'
    assert lines.getvalue() == 'loading ...\n'
    with phase('loading', terminal := Terminal()):
        assert terminal.getvalue().strip() == 'loading ...'
    states = terminal.getvalue().split('\r')
    assert len(states[-2]) >= len('loading ...') and states[-2].isspace() and states[-1] == ''


def test_what_takes_long_moves_on_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, 'STILL_SECONDS', 0.1)
    with phase('embedding', terminal := Terminal()) as tell:
        tell(0.25)
        wait_for(lambda: 'embedding ... 25 % 1 s' in terminal.getvalue())


def test_a_first_step_that_takes_long_moves_on_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, 'STILL_SECONDS', 0.1)
    with Progress('train', 10, stream=(terminal := Terminal())) as bar:
        wait_for(lambda: 'left, compiling 1 s' in terminal.getvalue())
        bar.update(1, 10)
        shown = len(terminal.getvalue())
    assert 'compiling' not in terminal.getvalue()[shown:]


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_quiet_says_nothing(clock):
    file = io.StringIO()
    with Progress('train', 10, done=5, stream=file, quiet=True) as bar:
        bar.update(10, 10)
        with bar.phase('validating'):
            pass
    assert file.getvalue() == ''
