"""Log lines of the library in a command."""

import io
import logging
import sys
from pathlib import Path

import pytest

from experiments.running import cli
from protojax.datasets import cub


def test_messages_of_the_library_name_flags_and_look_like_our_own(capsys, tmp_path):
    """Of other libraries only warnings are shown."""
    cli.listen()
    assert cub.load(data_dir=tmp_path).synthetic
    message = capsys.readouterr().err
    assert message.startswith(f'warning: CUB-200-2011 is not prepared in {tmp_path}')
    assert message.endswith('pass yours as --source; continuing with synthetic birds, not CUB\n')
    for path in (cli.LIBRARY / 'encoders' / 'any.py', Path('/elsewhere/orbax.py')):
        for level in (logging.INFO, logging.WARNING):
            logging.root.handle(logging.LogRecord('any', level, str(path), 1, 'from %s', (path.name,), None))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ['from any.py', 'warning: from any.py', 'warning: from orbax.py']


def test_any_text_can_be_printed_and_memory_may_be_too_small(monkeypatch, capsys):
    def run(_):
        print('± \udce9')
        raise MemoryError

    monkeypatch.setattr(sys, 'argv', [''])
    monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(printed := io.BytesIO(), 'ascii'))
    with pytest.raises(SystemExit, match='1'):
        cli._exit_with(run, None)
    sys.stdout.flush()
    assert printed.getvalue() == b'\\xb1 \\udce9\n' and capsys.readouterr().err == 'error: MemoryError\n'
