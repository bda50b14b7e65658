"""What the library says, as a command shows it."""

import logging
from pathlib import Path

import pytest

from experiments.running import startup
from experiments.running.startup import start_logging
from protojax.datasets import sources
from protojax.datasets.preparing import prepared_or_synthetic
from protojax.errors import Missing


@pytest.fixture
def listening(monkeypatch):
    """As in a command; afterwards as before."""
    monkeypatch.setattr(sources, 'listener', sources.listener)
    monkeypatch.setattr(startup.sys, 'unraisablehook', startup.sys.unraisablehook)
    level = logging.root.level
    start_logging()
    yield
    logging.root.removeHandler(startup.LOG)
    logging.root.setLevel(level)


def test_what_the_library_announces_names_flags(listening, capsys):
    def real():
        raise Missing('nothing is there; give the files as `source`')

    class StandIn:
        title = 'a stand-in'

    prepared_or_synthetic('auto', real=real, synthetic=StandIn)
    assert capsys.readouterr().err == 'nothing is there; give the files as --source; going on with a stand-in\n'


def test_log_lines_look_like_our_own_and_only_the_library_may_chat(listening, capsys):
    for path in (startup.LIBRARY / 'encoders' / 'any.py', Path('/elsewhere/orbax.py')):
        for level in (logging.INFO, logging.WARNING):
            logging.root.handle(logging.LogRecord('any', level, str(path), 1, 'from %s', (path.name,), None))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ['from any.py', 'warning: from any.py', 'warning: from orbax.py']
