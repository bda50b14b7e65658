"""The paper's tables with our figures beside the paper's: each of our rows is a command, run where results are missing.

    python -m experiments.tables --list
    python -m experiments.tables --table=cub --seeds=0,1,2
    python -m experiments.tables --table=way --data=synthetic --episodes=100 -- --validation_episodes=50

A run lies in <runs>/<data set>/<flags>/seed<n>, so tables share runs and an interrupted table goes on where it was.
Markdown, JSON and, for two tables, a figure are written to <runs>. What follows -- is passed on to every command.
"""

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

from absl import app, flags

from experiments.reporting import charts as figures
from experiments.reporting.paper import TABLES
from experiments.running.config import ConfigError
from experiments.running.trials import execute, results, trial
from protojax.files import write_whole

LEGEND = (
    'Accuracy in %. Ours: means over the seeds of the accuracy and of the half width of its 95 % interval in a run; '
    "the range is that of the seeds' accuracies. Quoted rows are other systems, as the paper gives them."
)
PASSED_ON = ('data', 'source', 'data_dir', 'episodes')


class Options(NamedTuple):
    """What all rows share."""

    runs: str
    seeds: tuple[int, ...]
    extra: dict[str, str]  # further flags and their values


def trials(table, run, options):
    """The trials of one run's flags: seed -> Trial."""
    make = partial(trial, table.binary, run, runs=options.runs, extra=options.extra)
    return {seed: make(seed) for seed in options.seeds}


def row_trials(table, row, options):
    """All trials behind a row, each once."""
    runs = [run for i, run in enumerate(row.runs) if run not in row.runs[:i]]
    return [one for run in runs for one in trials(table, run, options).values()]


def collect(table, options):
    """Our figures and the paper's, as written to the JSON file."""
    rows = []
    for row in table.rows:
        runs = row.runs if len(row.runs) > 1 else (row.runs or (None,)) * len(table.columns)
        cells = {}
        for column, paper, run in zip(table.columns, row.paper, runs, strict=True):
            ours = None if run is None else mean_score(trials(table, run, options), column)
            cells[column] = {'ours': ours, 'paper': quoted(paper)}
        commands = [shlex.join(one.command) for one in row_trials(table, row, options)]
        rows.append({'name': row.name, 'runs': row.runs, 'cells': cells, 'commands': commands})
    return {'title': table.title, 'note': table.note, 'columns': table.columns, 'rows': rows}


def mean_score(trials, column):
    """Accuracy and interval of a column, means over the seeds whose trials are finished; None without any."""
    found = {seed: results(one) for seed, one in trials.items()}
    found = {seed: r for seed, r in found.items() if r and column in r[r['evaluated_on']]}
    if not found:
        return None
    scores = {seed: r[r['evaluated_on']][column] for seed, r in found.items()}
    means = {name: sum(s[name] for s in scores.values()) / len(scores) for name in ('accuracy', 'ci95')}
    labels = {'synthetic data' for r in found.values() if r['synthetic']}
    labels |= {f'{r["evaluated_on"]} classes' for r in found.values() if r['evaluated_on'] != 'test'}
    return {**means, 'seeds': {seed: s['accuracy'] for seed, s in scores.items()}, 'labels': sorted(labels)}


def quoted(text):
    """A figure of the paper: '43.40 ± 0.78' -> accuracy, ci95."""
    accuracy, _, ci95 = text.partition(' ± ')
    return None if text == '-' else {'accuracy': float(accuracy), 'ci95': float(ci95) if ci95 else None}


def markdown(found, table):
    """The collected figures as a Markdown page."""
    header = ['', *(f'{column}, {whose}' for column in table.columns for whose in ('ours', 'paper'))]
    lines = [f'# {table.title}', '', line(header), line(['---'] * len(header))]
    for row, collected in zip(table.rows, found['rows'], strict=True):
        ours = [shown(collected['cells'][column]['ours']) if row.runs else '' for column in table.columns]
        name = row.name if row.runs else f'{row.name} (quoted)'
        lines.append(line([name, *(cell for pair in zip(ours, row.paper, strict=True) for cell in pair)]))
    commands = [command for row in found['rows'] for command in row['commands']]
    return '\n'.join([*lines, '', LEGEND, '', table.note, '', '```', *commands, '```', ''])


def line(cells):
    return f'| {" | ".join(cells)} |'


def shown(ours):
    if ours is None:
        return '-'
    seeds, values = ', '.join(map(str, ours['seeds'])), ours['seeds'].values()
    spread = f'seeds {seeds}: {min(values):.2f} to {max(values):.2f}' if len(values) > 1 else f'seed {seeds}'
    return f'{ours["accuracy"]:.2f} ± {ours["ci95"]:.2f} ({"; ".join([spread, *ours["labels"]])})'


def write(name, options):
    """Write a table as far as it is known -> its Markdown."""
    found, folder = collect(TABLES[name], options), Path(options.runs)
    text = markdown(found, TABLES[name])
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f'{name}.md', text)
    write_whole(folder / f'{name}.json', json.dumps(found, indent=2) + '\n')
    if name in figures.FIGURES:
        write_whole(folder / f'{name}.svg', figures.FIGURES[name](found))
    return text


def run(name, options):
    """Run what is missing of a table, and write the table after each run -> exit code."""
    everything = [one for row in TABLES[name].rows for one in row_trials(TABLES[name], row, options)]
    missing = [one for one in everything if results(one) is None]
    text = write(name, options)
    for i, one in enumerate(missing):
        print(f'\n[{i + 1}/{len(missing)}] {shlex.join(one.command)}', flush=True)
        code = execute(one)
        text = write(name, options)
        if code:
            print(f'\nended with code {code}; start the table again to go on', file=sys.stderr)
            return code
    print(f'\n{text}\nwritten to {Path(options.runs) / name}.md and .json')
    return 0


def listing(names, options):
    """Every row of the tables as commands."""
    for name in names:
        yield f'# {TABLES[name].title}: --table={name}'
        for row in TABLES[name].rows:
            yield f'# {row.name}' + ('' if row.runs else ': quoted from the paper')
            yield from (shlex.join(one.command) for one in row_trials(TABLES[name], row, options))


def options_from_flags(arguments):
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
    return Options(values.runs, tuple(map(int, values.seeds)), extra)


def main(argv):
    """Exit code 0, or a one-line error and another code."""
    chosen = flags.FLAGS.table
    try:
        options = options_from_flags(argv[1:])
        if flags.FLAGS.list:
            print('\n'.join(listing([chosen] if chosen else TABLES, options)))
            return 0
        if not chosen:
            raise ConfigError(f'choose a table: --table={"|".join(TABLES)}, or --list')
        return run(chosen, options)
    except ConfigError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1


def define_flags():
    own = {'module_name': sys.argv[0]}  # so that --help lists the flag
    flags.DEFINE_enum('table', None, list(TABLES), 'Which table to make.', **own)
    flags.DEFINE_boolean('list', False, 'Only print the commands, of one table or of all.', **own)
    flags.DEFINE_string('runs', 'runs/tables', 'Folder of the runs and the tables.', **own)
    flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds of each row.', **own)
    for name in PASSED_ON:
        flags.DEFINE_string(name, None, f'Passed on to every row: --{name} of the experiments.', **own)


if __name__ == '__main__':
    define_flags()
    app.run(main)
