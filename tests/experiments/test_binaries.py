"""The programs as users start them: help, one-line errors, exit codes."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ERRORS = {
    'zero': (['--way=0'], '--way=0 is too small'),
    'negative': (['--query=-3'], '--query=-3 is too small'),
    'unknown value': (['--distance=taxi'], '--distance=taxi must be one of euclidean|cosine'),
    'unknown flag': (['--wya=5'], '--wya is unknown (did you mean --way?); see --help'),
    'no flag': (['way=5'], "'way=5' is no flag"),
    'not a number': (['--way=many'], '--way=many must be a whole number; see --help'),
    'too many classes': (['--data=synthetic', '--way=100000'], '--way=100000, but there are'),
    'too many examples': (['--data=synthetic', '--query=50'], 'lower --query'),
    'no source': (['--source=/no/such/folder'], '--source=/no/such/folder does not exist'),
    'no such weights': (['--weights=none', '--source=/no/such/folder'], 'there are no weights none'),  # before the data
    'pictures': (['--pictures=perhaps'], '--pictures=perhaps must be one of on|off; see --help'),
    'no place to write': (['--data=synthetic', '--workdir=/dev/null/run'], 'choose another --workdir'),
}


def start(module, *arguments):
    command = [sys.executable, '-m', f'experiments.{module}', *arguments]
    environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope='module')
def outcomes():
    """(exit code, output, errors) of every bad command line, two at a time."""
    names, found = list(ERRORS), {}
    for pair in zip(names[::2], names[1::2], strict=True):
        started = {name: start('omniglot', *ERRORS[name][0]) for name in pair}
        for name, process in started.items():
            output, errors = process.communicate(timeout=120)
            found[name] = (process.returncode, output, errors)
    return found


@pytest.mark.parametrize('name', ERRORS)
def test_a_bad_command_line_gets_one_clear_line(outcomes, name):
    code, output, errors = outcomes[name]
    assert code != 0
    assert 'Traceback' not in errors
    (line,) = [line for line in errors.splitlines() if line.startswith('error: ')]
    assert ERRORS[name][1] in line


@pytest.mark.parametrize(
    'module, halving',
    [('omniglot', 'Paper: 2000'), ('miniimagenet', 'Paper: 2000'), ('cub', '0: never, as in the paper')],
)
def test_help_explains_each_flag(module, halving):
    output, _ = start(module, '--help').communicate(timeout=120)
    assert 'Classes per training episode (N_C)' in output
    assert '--source' in output and '--workdir' in output and halving in output
