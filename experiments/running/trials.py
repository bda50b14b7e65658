"""A trial is one run of an experiment as a program of its own: its command, its config, whether it has been done."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.running.config import ConfigError
from experiments.running.flags import parse_flags
from experiments.running.identity import config_differences, differences_text
from experiments.running.workdir_files import read_workdir_file
from protojax.errors import first_line


class Trial(NamedTuple):
    """One run in a workdir of its own."""

    command: tuple[str, ...]
    workdir: Path
    config: Any


def trial(experiment, run, seed, *, runs, extra):
    """The trial of an experiment with the flags of a row, a seed and extra flags: dictionaries -> Trial."""
    folder = ','.join(f'{key}={value}' for key, value in run.items())
    workdir = Path(runs) / experiment.name / folder / f'seed{seed}'
    given = {**run, 'seed': seed, **extra, 'workdir': workdir}
    arguments = [f'--{key}={value}' for key, value in given.items()]
    command = ('python', '-m', f'experiments.{experiment.name}', *arguments)
    return Trial(command, workdir, parse_flags(experiment.recipe, arguments))


def check_trial(trial):
    """Raise where the workdir of a trial belongs to another configuration."""
    path = trial.workdir / 'config.json'
    try:
        differing = config_differences(trial.config, json.loads(read_workdir_file(path))) if path.exists() else {}
    except Exception as error:  # damage takes many forms
        raise ConfigError(f'{path} is damaged ({first_line(error)}); restore it or choose another --runs') from error
    if differing:
        raise ConfigError(f'{trial.workdir} {differences_text(differing)}; choose another --runs')


def execute_trial(trial):
    """Run a trial to its end -> exit code. Ctrl-C reaches it from the terminal, SIGTERM from here."""
    child = subprocess.Popen([sys.executable, *trial.command[1:]])
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: child.terminate()}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
