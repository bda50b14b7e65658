"""The paper's tables with our figures beside the paper's: each of our rows is a command, run where results are missing.

    python -m experiments.tables --list
    python -m experiments.tables --table=cub --seeds=0,1,2
    python -m experiments.tables --table=way --data=synthetic --episodes=100 -- --validation_episodes=50

A run lies in <runs>/<data set>/<flags>/seed<n>, so tables share runs and an interrupted table goes on where it was.
Markdown, JSON and, for three tables, a chart are written to <runs>. What follows -- is passed on to every command.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from absl import flags

from experiments import cub, miniimagenet, omniglot
from experiments.reporting.comparison import LEGEND, comparison_lines, comparison_with_paper, draw_comparison
from experiments.reporting.paper import TABLES
from experiments.reporting.records import read_record
from experiments.running.config import ConfigError
from experiments.running.flags import start_with_flags
from experiments.running.trials import check_trial, execute_trial, trial
from protojax.files import write_whole

EXPERIMENTS = {program.EXPERIMENT.name: program.EXPERIMENT for program in (omniglot, miniimagenet, cub)}
PASSED_ON = ('data', 'source', 'data_dir', 'episodes')


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


def run_tables(name, options):
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


def _table_options_from_flags(arguments):
    """The options of the command line; arguments are what follows --."""
    values = flags.FLAGS
    extra = {name: getattr(values, name) for name in PASSED_ON if getattr(values, name) is not None}
    for argument in arguments:
        name, equals, value = argument.removeprefix('--').partition('=')
        if not argument.startswith('--') or not equals:
            raise ConfigError(f'{argument!r} is not of the form --flag=value')
        extra[name] = value
    if not all(seed.isdecimal() for seed in values.seeds):
        raise ConfigError(f'--seeds={",".join(values.seeds)} must be whole numbers with commas between')
    return TableOptions(values.runs, tuple(map(int, values.seeds)), extra)


def _main(argv):
    """Exit code 0, or a one-line error and another code."""
    chosen = flags.FLAGS.table
    try:
        options = _table_options_from_flags(argv[1:])
        if flags.FLAGS.list:
            print('\n'.join(_listing_of_tables([chosen] if chosen else TABLES, options)))
            return 0
        if not chosen:
            raise ConfigError(f'choose a table: --table={"|".join(TABLES)}, or --list')
        return run_tables(chosen, options)
    except ConfigError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1


def _define_table_flags():
    own = {'module_name': sys.argv[0]}  # so that --help lists the flag
    flags.DEFINE_enum('table', None, list(TABLES), 'Which table to make.', **own)
    flags.DEFINE_boolean('list', False, 'Only print the commands, of one table or of all.', **own)
    flags.DEFINE_string('runs', 'runs/tables', 'Folder of the runs and the tables.', **own)
    flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds of each row.', **own)
    for name in PASSED_ON:
        flags.DEFINE_string(name, None, f'Passed on to every row: --{name} of the experiments.', **own)


if __name__ == '__main__':
    _define_table_flags()
    start_with_flags(_main)
