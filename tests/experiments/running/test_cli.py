"""Log lines of the library in a command."""

import logging
from pathlib import Path

from experiments.running import cli
from protojax.datasets import cub


def test_messages_of_the_library_name_flags_and_look_like_our_own(capsys, tmp_path):
    """Of other libraries only warnings are shown."""
    cli.start('off')
    assert cub.load(data_dir=tmp_path).synthetic
    message = capsys.readouterr().err
    assert message.startswith(f'warning: CUB-200-2011 is not prepared in {tmp_path}')
    assert message.endswith('pass yours as --source; continuing with synthetic birds, not CUB\n')
    for path in (cli.LIBRARY / 'encoders' / 'any.py', Path('/elsewhere/orbax.py')):
        for level in (logging.INFO, logging.WARNING):
            logging.root.handle(logging.LogRecord('any', level, str(path), 1, 'from %s', (path.name,), None))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ['from any.py', 'warning: from any.py', 'warning: from orbax.py']
