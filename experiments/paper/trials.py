"""Trials: single runs of an experiment, each in a separate process and workdir."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from experiments.running.config import Config, ConfigError, Experiment
from experiments.running.workdir import read_json


class Trial(NamedTuple):
    command: tuple[str, ...]
    workdir: Path
    config: Config


def plan(experiment: Experiment, run: dict, seed: int, *, runs: str, extra: dict) -> Trial:
    """Return the trial with the flags of a row, a seed and extra flags."""
    folder = ','.join(f'{key}={value}' for key, value in run.items())
    workdir = Path(runs) / experiment.name / folder / f'seed{seed}'
    given = {**run, 'seed': seed, **extra, 'workdir': workdir}
    arguments = [f'--{key}={value}' for key, value in given.items()]
    command = ('python', '-m', f'experiments.{experiment.name}', *arguments)
    return Trial(command, workdir, experiment.parse(arguments))


def check(trial: Trial) -> None:
    """Raise an error if the workdir belongs to a different configuration."""
    if mismatch := trial.config.mismatch(read_json(trial.workdir / 'config.json', {})):
        raise ConfigError(f'{trial.workdir} {mismatch}; choose another --runs')


def execute(trial: Trial) -> int:
    """Run a trial and return its exit code. It gets Ctrl-C from the terminal; SIGTERM is passed on."""
    child = subprocess.Popen([sys.executable, *trial.command[1:]])
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: child.terminate()}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
