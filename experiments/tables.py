"""The paper's tables with our figures beside the paper's: each of our rows is a command, run where results are missing.

    python -m experiments.tables --list
    python -m experiments.tables --table=cub --seeds=0,1,2
    python -m experiments.tables --table=way --data=synthetic --episodes=100 -- --validation_episodes=50

A run lies in <runs>/<data set>/<flags>/seed<n>, so tables share runs and an interrupted table goes on where it was.
Markdown, JSON and, for three tables, a chart are written to <runs>. What follows -- is passed on to every command.
"""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from experiments import cub, miniimagenet, omniglot
from experiments.publishing.comparison import LEGEND, comparison_lines, comparison_with_paper, draw_comparison
from experiments.publishing.records import read_record
from experiments.reporting.paper import TABLES
from experiments.running.command import launch_command
from experiments.running.config import CommandConfig, ConfigError, option
from experiments.running.trials import check_trial, execute_trial, trial
from protojax.files import write_whole

EXPERIMENTS = {program.EXPERIMENT.name: program.EXPERIMENT for program in (omniglot, miniimagenet, cub)}
PASSED_ON = ('data', 'source', 'data_dir', 'episodes')


def _passed_on(name):
    return option('', f'Passed on to every row: --{name} of the experiments.')


class TableOptions(NamedTuple):
    """What all rows share."""

    runs: str
    seeds: tuple[int, ...]
    extra: dict[str, str]  # further flags and their values


def _trials_of_table(table, run, options):
    """The trials of one run's flags, one per seed."""
    experiment = EXPERIMENTS[table.experiment]
    return [trial(experiment, run, seed, runs=options.runs, extra=options.extra) for seed in options.seeds]


def _trials_of_table_row(table, row, options):
    """All trials behind a row, each once."""
    runs = [run for i, run in enumerate(row.runs) if run not in row.runs[:i]]
    return [one for run in runs for one in _trials_of_table(table, run, options)]


def _all_trials(table, options):
    """Those of all rows, each once, as some rows share theirs."""
    found = [one for row in table.rows for one in _trials_of_table_row(table, row, options)]
    return list({one.workdir: one for one in found}.values())


def _result_for_table(trial):
    """The record of a trial, or None where it is not finished."""
    check_trial(trial)
    record = read_record(trial.workdir)
    # A workdir may be evaluated again with more episodes, so that their number is no part of what differs.
    episodes = trial.config.test_episodes if hasattr(trial.config, 'shot') else 1
    whole = record and all(score['episodes'] == episodes for score in record[record['evaluated_on']].values())
    return record if whole else None


def write_table(name, options):
    """Write a table as far as it is known -> its Markdown."""
    table, folder = TABLES[name], Path(options.runs)
    found = comparison_with_paper(
        table, lambda run: list(filter(None, map(_result_for_table, _trials_of_table(table, run, options))))
    )
    commands = [shlex.join(one.command) for one in _all_trials(table, options)]
    lines = [f'# {table.title}', '', *comparison_lines(table, found), '', LEGEND, '', table.note, '']
    text = '\n'.join([*lines, '```sh', *commands, '```', ''])
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f'{name}.md', text)
    write_whole(folder / f'{name}.json', json.dumps({**found, 'commands': commands}, indent=2) + '\n')
    draw_comparison(name, found, folder)
    return text


def make_table(name, options):
    """Run what is missing of a table, and write the table after each run -> exit code."""
    missing = [one for one in _all_trials(TABLES[name], options) if _result_for_table(one) is None]
    text = write_table(name, options)
    for i, one in enumerate(missing):
        print(f'\n[{i + 1}/{len(missing)}] {shlex.join(one.command)}', flush=True)
        code = execute_trial(one)
        text = write_table(name, options)
        if code:
            print(f'\nended with code {code}; start the table again to go on', file=sys.stderr)
            return code
    print(f'\n{text}\nwritten to {Path(options.runs) / name}.md and .json')
    return 0


def _listing_of_tables(names, options):
    """Every row of the tables as commands."""
    for name in names:
        yield f'# {TABLES[name].title}: --table={name}'
        for row in TABLES[name].rows:
            yield f'# {row.name}' + (f', {row.features} features' if row.features else '')
            yield from (shlex.join(one.command) for one in _trials_of_table_row(TABLES[name], row, options))


@dataclasses.dataclass(frozen=True)
class TablesConfig(CommandConfig):
    table: str = option('', 'Which table to make.', choices=('', *TABLES))
    list: bool = option(False, 'Only print the commands, of one table or of all.')
    runs: str = option('runs/tables', 'Folder of the runs and the tables.')
    seeds: tuple[int, ...] = option((0, 1, 2), 'Seeds of each row.')
    data: str = _passed_on('data')
    source: str = _passed_on('source')
    data_dir: str = _passed_on('data_dir')
    episodes: str = _passed_on('episodes')


def table_options(config, arguments):
    """The options of a TablesConfig; arguments are what follows --."""
    extra = {name: getattr(config, name) for name in PASSED_ON if getattr(config, name)}
    for argument in arguments:
        name, equals, value = argument.removeprefix('--').partition('=')
        if not argument.startswith('--') or not equals:
            raise ConfigError(f'{argument!r} is not of the form --flag=value')
        extra[name] = value
    return TableOptions(config.runs, config.seeds, extra)


def run_tables(config, arguments):
    """Make a table, or list them all."""
    options = table_options(config, arguments)
    if config.list:
        print('\n'.join(_listing_of_tables([config.table] if config.table else TABLES, options)))
    elif not config.table:
        raise ConfigError(f'choose a table: --table={"|".join(TABLES)}, or --list')
    elif code := make_table(config.table, options):
        sys.exit(code)


if __name__ == '__main__':
    launch_command(TablesConfig(), run_tables, arguments=True)
