"""Progress on a terminal and in log files."""

import io
import time

import pytest

from experiments.running import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """clock[0] is the time in seconds for tqdm; nothing is drawn between updates."""
    now = [0.0]
    monkeypatch.setattr('tqdm.std.time', lambda: now[0])
    monkeypatch.setattr(progress, '_tick', lambda *_: None)
    return now


def advance(clock, bar, count, at_once=1):
    for _ in range(count):
        clock[0] += 1.0
        bar.update(at_once)


def test_a_bar_stays_on_one_line_of_a_terminal(clock, monkeypatch):
    monkeypatch.setenv('COLUMNS', '90')
    with progress.bar('search', 10_000, stream=(terminal := Terminal()), postfix='compiling') as bar:
        assert terminal.getvalue().rstrip().endswith('compiling]')
        bar.set_postfix_str('loss 0.1234, 96.1 % correct', refresh=False)
        advance(clock, bar, 11, at_once=200)
    last = terminal.getvalue().split('\r')[-1].strip()
    assert last.startswith('search:  22%|') and 'loss 0.1234, 96.1 % correct' in last and len(last) == 89
    assert '2200/10000 [00:11<00:39, 200.00/s' in last and terminal.getvalue().count('\n') == 1


def test_a_log_file_gets_a_line_every_30_seconds_and_at_the_end(clock):
    with progress.bar('train', 2000, done=1900, stream=(file := io.StringIO())) as bar:
        advance(clock, bar, 100)
    lines = file.getvalue().splitlines()
    assert '\r' not in file.getvalue() and lines[0] == 'train: resuming at episode 1900'
    assert [line.split()[1] for line in lines[1:]] == [f'{done}/2000' for done in (1900, 1930, 1960, 1990, 2000)]
    assert '[00:30<01:10,  1.00/s]' in lines[2]


def test_bars_are_redrawn_while_nothing_is_reported(monkeypatch):
    monkeypatch.setattr(progress, 'LINE_SECONDS', 0.01)
    with progress.phase('compiling', lines := io.StringIO()):
        end = time.monotonic() + 60
        while lines.getvalue().count('compiling ...') < 3 and time.monotonic() < end:
            time.sleep(0.01)
    assert lines.getvalue().count('compiling ...') >= 3


def test_other_processes_print_nothing(clock, monkeypatch):
    monkeypatch.setattr('jax.process_index', lambda: 1)
    with progress.bar('train', 10, done=5, stream=(file := io.StringIO())) as bar:
        bar.update(5)
    assert file.getvalue() == ''
