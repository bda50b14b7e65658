"""Shows that nothing is lost: runs are killed in all their stages and hit by other faults, and come to the same end.

    python -m experiments.faults --kills=100

Runs a small experiment once without interruption. Then runs of it are killed with SIGKILL, in each stage and at random
moments, and started again until they have come to their end: parameters, metrics, results and weights must be those of
the first, bit for bit. Other faults follow, such as a full disk or a workdir that is deleted. Prints tables in
Markdown; 100 kills take about half an hour on two cores.
"""

import collections
import dataclasses
import pathlib
import tempfile

from experiments.faults import kills, others
from experiments.faults.kills import kill_repeatedly
from experiments.faults.small_run import small_run_command, small_run_data_dir
from experiments.reporting.markdown import markdown_table
from experiments.running.command import launch_command
from experiments.running.config import CommandConfig, ConfigError, option


@dataclasses.dataclass(frozen=True)
class FaultsConfig(CommandConfig):
    kills: int = option(25, 'How often to kill.', minimum=0)
    seed: int = option(0, 'Random seed for the times of the kills.')
    others: bool = option(True, 'Try the other faults too.')


def run_faults(config):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        command = small_run_command(folder)
        print('a run without interruption:', ' '.join(command), flush=True)
        problems = _kill_runs(config, command, folder)
        if config.others:
            problems += _try_others(command, folder)
    if problems:
        print('\n'.join(problems))
        raise ConfigError(f'{len(problems)} faults did harm')


def _kill_runs(config, command, folder):
    """Prints how often runs were killed in which stage -> what did not end as without interruption."""
    counts, problems, ended = collections.Counter(), [], 0
    data_dir = small_run_data_dir(folder)
    for moment, number, found in kill_repeatedly(
        command, folder, kills=config.kills, seed=config.seed, data_dir=data_dir
    ):
        if moment == 'end':
            ended, problems = ended + 1, problems + found
            print(f'run {number} has come to its end{"".join(f"; {line}" for line in found)}', flush=True)
        else:
            counts[moment] += 1
            print(f'kill {counts.total()}, {moment}: run {number}', flush=True)
    rows = [(moment, counts[moment]) for moment in kills.MOMENTS]
    print('\n'.join(['', *markdown_table(('killed while', 'times'), rows)]))
    print(f'\n{counts.total()} kills of {ended} runs; {len(problems)} differences from the first run.', flush=True)
    return problems


def _try_others(command, folder):
    """Prints what became of each fault -> what did not end as it should."""
    rows, problems = [], []
    for name, (outcome, fault) in others.FAULTS.items():
        print(f'fault: {name}', flush=True)
        found = fault(command, folder)
        rows.append((name, outcome, 'no: see below' if found else 'yes'))
        problems += [f'{name}: {line}' for line in found]
    print('\n'.join(['', *markdown_table(('fault', 'expected', 'as expected'), rows)]), flush=True)
    return problems


if __name__ == '__main__':
    launch_command(FaultsConfig(), run_faults)
