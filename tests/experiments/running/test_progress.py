"""The progress bar on a terminal and elsewhere."""

import io

from experiments.running import progress
from experiments.running.progress import Progress, clock


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_clock():
    assert [clock(s) for s in (0, 59.6, 61, 3600, 36061)] == ['0:00', '1:00', '1:01', '1:00:00', '10:01:01']


def test_a_terminal_gets_one_line_that_is_written_over():
    terminal = Terminal()
    with Progress('train', 10, stream=terminal) as bar:
        bar.note = 'loss 1.5'
        bar.update(10, 10)
    shown = terminal.getvalue()
    assert shown.count('\n') == 1 and shown.endswith('\n')
    assert 'train' in shown and '10/10' in shown and 'loss 1.5' in shown and 'episodes/s' in shown and 'left' in shown
    assert shown.split('\r')[-1].count('#') > 0


def test_elsewhere_lines_come_seldom_and_the_last_one_always(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    file = io.StringIO()
    with Progress('train', 100, stream=file) as bar:
        for episode in range(1, 101):
            now[0] += 1.0
            bar.update(episode, 100)
    lines = file.getvalue().splitlines()
    assert len(lines) == 4  # after 31, 62 and 93 seconds, and at the end
    assert lines[0].startswith('train 31/100') and '1.0 episodes/s' in lines[0] and '1:09 left' in lines[0]
    assert lines[-1].startswith('train 100/100')


def test_the_rate_is_that_of_this_start(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    file = io.StringIO()
    with Progress('train', 2000, done=1000, stream=file) as bar:
        now[0] = 50.0  # the first step is compiled
        bar.update(1001, 2000)
        now[0] = 150.0
        bar.update(1201, 2000)
    assert '2.0 episodes/s' in file.getvalue() and '6:40 left' in file.getvalue()


def test_quiet_says_nothing():
    file = io.StringIO()
    with Progress('train', 10, stream=file, quiet=True) as bar:
        bar.update(10, 10)
    assert file.getvalue() == ''
