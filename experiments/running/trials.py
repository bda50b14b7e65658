"""A trial is one run of an experiment as a program of its own: its command, its config, whether it has been done."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.running.config import ConfigError, FewShotConfig, differing_fields
from experiments.running.flags import parse


class Trial(NamedTuple):
    """One run in a workdir of its own."""

    command: tuple[str, ...]
    workdir: Path
    config: Any


def trial(binary, run, seed, *, runs, extra):
    """The trial of a binary with the flags of a row, a seed and extra flags: dictionaries -> Trial."""
    name = binary.EXPERIMENT.name
    folder = ','.join(f'{key}={value}' for key, value in run.items()) or 'recipe'
    workdir = Path(runs) / name / folder / f'seed{seed}'
    given = {**run, 'seed': seed, **extra, 'workdir': workdir}
    arguments = [f'--{key}={value}' for key, value in given.items()]
    return Trial(('python', '-m', f'experiments.{name}', *arguments), workdir, parse(binary.RECIPE, arguments))


def results(trial):
    """What results.json of a trial says, or None where it is not finished."""
    saved, found = (read(trial.workdir / name) for name in ('config.json', 'results.json'))
    if saved and (differing := differing_fields(trial.config, saved)):
        shown = ', '.join(f'{name} ({was!r} there, {now!r} now)' for name, (was, now) in differing.items())
        raise ConfigError(f'{trial.workdir} belongs to another configuration: {shown}; choose another --runs')
    if not found:
        return None
    # A workdir may be evaluated again with more episodes, so that their number is no part of what differs.
    episodes = trial.config.test_episodes if isinstance(trial.config, FewShotConfig) else 1
    whole = all(score['episodes'] == episodes for score in found[found['evaluated_on']].values())
    return found if whole else None


def read(path):
    return json.loads(path.read_text()) if path.exists() else None


def execute(trial):
    """Run a trial to its end -> exit code. Ctrl-C reaches it from the terminal, SIGTERM from here."""
    child = subprocess.Popen([sys.executable, *trial.command[1:]])
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: child.terminate()}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
