"""The programs as users start them: help, one-line errors, exit codes."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ERRORS = {  # of experiments.omniglot, or of experiments.cub where data are needed, whose stand-in is soon made
    'zero': (['--way=0'], '--way=0 is too small'),
    'negative': (['--query=-3'], '--query=-3 is too small'),
    'unknown value': (['--distance=taxi'], '--distance=taxi must be one of euclidean|unsquared|cosine'),
    'unknown flag': (['--wya=5'], '--wya is unknown (did you mean --way?); see --help'),
    'no flag': (['way=5'], "'way=5' is no flag"),
    'not a number': (['--way=many'], '--way=many must be a whole number; see --help'),
    'too many classes': (['--data=synthetic', '--way=100000'], '--way=100000, but there are'),
    'no source': (['--source=/no/such/folder'], '--source=/no/such/folder does not exist'),
    'no such weights': (['--weights=none', '--source=/no/such/folder'], 'there are no weights none'),  # before the data
    'pictures': (['--pictures=perhaps'], '--pictures=perhaps must be one of on|off; see --help'),
    'no place to write': (['--data=synthetic', '--workdir=/dev/null/run'], 'choose another --workdir'),
}


HELP = {'omniglot': 'Paper: 2000', 'miniimagenet': 'Paper: 2000', 'cub': '0: never, as in the paper'}

# Starts a program as `python -m experiments.NAME` would, once for each command line that comes in, in a process of its
# own that begins when all imports are done. What it prints goes to files of the folder that it is told.
STARTED_AGAIN_AND_AGAIN = """
import gc, json, os, runpy, sys
import experiments.cub, experiments.miniimagenet, experiments.omniglot

gc.freeze()  # a program that looked through all this when it ends would copy it

for line in sys.stdin:
    folder, program, flags = json.loads(line)
    child = os.fork()
    if not child:
        for number, name in (1, 'output'), (2, 'errors'):
            os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT), number)
        sys.argv[1:] = flags
        del sys.modules[f'experiments.{program}']
        runpy.run_module(f'experiments.{program}', run_name='__main__', alter_sys=True)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def start(*command):
    environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
    pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *command], **pipes, text=True, env=environment)


@pytest.fixture(scope='module')
def outcomes(tmp_path_factory):
    """(exit code, output, errors) of every bad command line, and of --help of each program by its name."""
    commands = {
        name: ('cub' if '--data=synthetic' in flags else 'omniglot', flags) for name, (flags, _) in ERRORS.items()
    }
    commands |= {program: (program, ['--help']) for program in HELP}
    folders = [tmp_path_factory.mktemp('started') for _ in commands]
    lines = [json.dumps([str(folder), *command]) for folder, command in zip(folders, commands.values(), strict=True)]
    codes, problems = start('-c', STARTED_AGAIN_AND_AGAIN).communicate('\n'.join(lines), timeout=600)
    assert len(codes.split()) == len(commands), problems
    printed = [[(folder / file).read_text() for file in ('output', 'errors')] for folder in folders]
    return {name: (int(code), *texts) for name, code, texts in zip(commands, codes.split(), printed, strict=True)}


def test_a_program_of_its_own_does_the_same(outcomes):
    flags, _ = ERRORS['unknown flag']
    process = start('-m', 'experiments.omniglot', *flags)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output, errors) == outcomes['unknown flag']


@pytest.mark.parametrize('name', ERRORS)
def test_a_bad_command_line_gets_one_clear_line(outcomes, name):
    code, output, errors = outcomes[name]
    assert code != 0
    assert 'Traceback' not in errors
    (line,) = [line for line in errors.splitlines() if line.startswith('error: ')]
    assert ERRORS[name][1] in line


@pytest.mark.parametrize(('program', 'halving'), HELP.items())
def test_help_explains_each_flag(outcomes, program, halving):
    code, output, _ = outcomes[program]
    assert code == 0
    assert 'Classes per training episode (N_C)' in output
    assert '--source' in output and '--workdir' in output and halving in output
