"""The programs as users start them: help, one-line errors, exit codes."""

import pathlib
import subprocess
import sys

import pytest

from tests.helpers import compiler
from tests.helpers.forks import Program

pytestmark = pytest.mark.slow
ERRORS = [
    (('omniglot', '--source=/no/such/folder'), '--source=/no/such/folder does not exist'),
    (('omniglot', '--weights=none', '--source=/no/such/folder'), 'none'),  # found before the data are loaded
    (('cub', '--data=synthetic', '--dimensions=2', '--workdir=/dev/null/run'), 'choose another --workdir'),
    (('tables',), 'choose a table: --table=1'),
]


@pytest.fixture(scope='module')
def programs():
    """All programs, started at once."""
    return {command: Program('experiments', *command, XLA_FLAGS=compiler.flags()) for command, _ in ERRORS}


@pytest.mark.parametrize(('command', 'message'), ERRORS)
def test_an_error_is_one_line(programs, command, message):
    program = programs[command]
    assert program.wait(600) == 1
    assert 'Traceback' not in program.output
    (line,) = [line for line in program.output.splitlines() if line.startswith('error: ')]
    assert message in line


def test_a_module_is_a_program():
    program = [sys.executable, '-m', 'experiments.omniglot', '--help']
    ended = subprocess.run(program, capture_output=True, text=True, cwd=pathlib.Path(__file__).parents[2])
    assert ended.returncode == 0 and 'Classes per training episode (N_C)' in ended.stdout and not ended.stderr
