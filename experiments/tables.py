"""Reproduce a table of the paper: run the command of each row unless its results exist, and compare with the paper.

    python -m experiments.tables --list --table=5 --seeds=0 --source=FOLDER
    python -m experiments.tables --table=3 --seeds=0,1,2 --source=FOLDER
    python -m experiments.tables --table=way --data=synthetic --episodes=100 -- --validation_episodes=50

Each run is stored in <runs>/<data set>/<flags>/seed<n>, so tables share runs and an interrupted table resumes.
Markdown, JSON and, for three tables, a chart are written to <runs>. Flags after -- are passed to every command.
"""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from experiments import cub, miniimagenet, omniglot
from experiments.paper import comparison, records, trials
from experiments.paper.tables import TABLES, Table
from experiments.paper.trials import Trial
from experiments.running.cli import launch_command
from experiments.running.config import ConfigError, DataOptions, option
from protojax.files import write_whole

EXPERIMENTS = {program.EXPERIMENT.name: program.EXPERIMENT for program in (omniglot, miniimagenet, cub)}


NUMBERED = {str(table.number): name for name, table in TABLES.items()}


class Options(NamedTuple):
    """Options common to all rows."""

    runs: str
    seeds: tuple[int, ...]
    extra: dict[str, str]  # further flags


def planned(table: Table, runs: Iterable[dict], options: Options) -> list[Trial]:
    """Return the trials with the flags of some rows, one per seed, without duplicates."""
    experiment, shared = EXPERIMENTS[table.experiment], {'runs': options.runs, 'extra': options.extra}
    found = [trials.plan(experiment, run, seed, **shared) for run in runs for seed in options.seeds]
    return list({trial.workdir: trial for trial in found}.values())


def _all_trials(table: Table, options: Options) -> list[Trial]:
    return planned(table, (run for row in table.rows for run in row.runs), options)


def result(trial: Trial) -> dict | None:
    """Return the record of a trial, or None if it is not finished."""
    trials.check(trial)
    record = records.read(trial.workdir)
    # The number of test episodes is not part of a run's identity: a workdir may be evaluated again with more.
    episodes = trial.config.flat.get('test_episodes', 1)
    complete = record and all(score['episodes'] == episodes for score in record[record['evaluated_on']].values())
    return record if complete else None


def write(name: str, options: Options) -> str:
    """Write a table with all finished runs and return its Markdown."""
    table, folder = TABLES[name], Path(options.runs)
    runs_of = lambda run: list(filter(None, map(result, planned(table, [run], options))))  # noqa: E731
    found = comparison.collect(table, runs_of)
    commands = [shlex.join(trial.command) for trial in _all_trials(table, options)]
    lines = [f'# {table.title}', '', *comparison.lines(table, found), '', comparison.LEGEND, '', table.note, '']
    text = '\n'.join([*lines, '```sh', *commands, '```', ''])
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f'{name}.md', text)
    write_whole(folder / f'{name}.json', json.dumps({**found, 'commands': commands}, indent=2) + '\n')
    comparison.draw(name, found, folder)
    return text


def make(name: str, options: Options) -> int:
    """Run the missing trials of a table, write the table after each, and return an exit code."""
    missing = [trial for trial in _all_trials(TABLES[name], options) if result(trial) is None]
    text = write(name, options)
    for i, trial in enumerate(missing):
        print(f'\n[{i + 1}/{len(missing)}] {shlex.join(trial.command)}', flush=True)
        code = trials.execute(trial)
        text = write(name, options)
        if code:
            print(f'\nexit code {code}; rerun the command to resume the table', file=sys.stderr)
            return code
    print(f'\n{text}\nwritten to {Path(options.runs) / name}.md and .json')
    return 0


def _listing(names: Iterable[str], options: Options) -> Iterator[str]:
    for name in names:
        yield f'# {TABLES[name].title}: --table={name}'
        for row in TABLES[name].rows:
            yield f'# {row.name}' + (f', {row.features} features' if row.features else '')
            yield from (shlex.join(trial.command) for trial in planned(TABLES[name], row.runs, options))


class TablesConfig(DataOptions):
    table: str = option('', 'Table to reproduce: number in the paper, or name.', choices=('', *NUMBERED, *TABLES))
    list: bool = option(False, 'Only print the commands of --table, or of all tables.')
    runs: str = option('runs/tables', 'Directory of the runs and tables.')
    seeds: tuple[int, ...] = option((0, 1, 2), 'Seeds of each row.')
    episodes: int = option(0, 'Training episodes of each row; 0 = the default of its method.', minimum=0)


def parse(config: TablesConfig, arguments: Iterable[str]) -> Options:
    """Return the options of a config and of the arguments after --."""
    passed_on = {'data': config.data, 'source': config.source, 'data_dir': config.data_dir, 'episodes': config.episodes}
    extra = {name: str(value) for name, value in passed_on.items() if value != getattr(TablesConfig, name)}
    for argument in arguments:
        name, equals, value = argument.removeprefix('--').partition('=')
        if not argument.startswith('--') or not equals:
            raise ConfigError(f'expected --flag=value, got {argument!r}')
        extra[name] = value
    return Options(config.runs, config.seeds, extra)


def run(config: TablesConfig, arguments: Iterable[str]) -> None:
    """Make a table or list all tables."""
    options, name = parse(config, arguments), NUMBERED.get(config.table, config.table)
    if config.list:
        print('\n'.join(_listing([name] if name else TABLES, options)))
    elif not name:
        raise ConfigError(f'choose a table: --table={"|".join([*NUMBERED, *TABLES])}, or --list')
    elif code := make(name, options):
        sys.exit(code)


if __name__ == '__main__':
    launch_command(TablesConfig, run, arguments=True)
