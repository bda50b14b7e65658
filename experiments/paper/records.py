"""Records of finished runs, read from a workdir or published in experiments/results/<experiment>.jsonl.

A record is a dictionary with the contents of results.json and timing.json, the learning curve and the command of a run.
Published records are lines of JSON; they are appended and not edited, except for a command that would run something
else because a default has changed. If a record lacks a flag, the flag did not exist yet when the run was made.
"""

import functools
import json
import math
import shlex
import statistics
from collections.abc import Iterable
from pathlib import Path

from experiments.methods.options import ConfigError, text
from experiments.paper.tables import UNNAMED
from experiments.running import config as configuration
from experiments.running import metrics
from experiments.running.workdir import read_json, reading
from protojax.files import write_whole

PUBLISHED = Path(__file__).parents[1] / 'results'
CURVE_STEP = 1000  # episodes between the points of a published learning curve
TIMING = ('seconds', 'devices', 'processor', 'commit')  # published fields of timing.json
# Flags for the length of training and for the test. Runs of the same setting may differ in them.
LENGTHS = {'episodes', 'patience', 'validate_every', 'validation_episodes', 'log_every'}
LENGTHS |= {'test_way', 'test_shot', 'test_episodes'}


def read(workdir: str | Path) -> dict | None:
    """Return the record of a finished run, without its command, or None if there is no results.json."""
    workdir = Path(workdir)
    results, timing = read_json(workdir / 'results.json'), read_json(workdir / 'timing.json', {})
    if results is None:
        return None
    scores = [report for report in metrics.read(workdir) if report['split'] == 'validation']
    scores = [score for score in scores if score['episode'] % CURVE_STEP == 0] or scores
    curve = {str(one['episode']): {'accuracy': 100 * one['accuracy'], 'loss': one['loss']} for one in scores}
    record = {**results, **{name: timing[name] for name in TIMING if name in timing}, 'curve': curve}
    with reading(workdir / 'results.json'):
        check(record)
    return record


def check(record: dict) -> None:
    """Raise ValueError, KeyError or TypeError if tables and pages could not show a record."""
    scores = record[record['evaluated_on']].values()
    numbers = [record['seed'], record['config']['episodes'], record.get('seconds', 0)]
    numbers += [look[name] for look in record['curve'].values() for name in ('accuracy', 'loss')]
    numbers += [score[name] for score in scores for name in ('accuracy', 'ci95', 'episodes')]
    if not scores or not all(math.isfinite(number) for number in numbers):
        raise ValueError('expected finite scores')


def of_training(record: dict) -> dict:
    """Return the record as one of the run that trained the model, if a later run evaluated weights from a file."""
    if 'weights' not in record:
        return record
    trained = record['weights']['config']
    if 'seed' not in trained:
        raise ConfigError('the weights file does not contain the config of its training')
    if trained.get('evaluate_on') != record['evaluated_on'] and trained.get('retrain', True):
        raise ConfigError('these weights were trained on different classes than such a run uses')
    return {**record, 'seed': trained['seed'], 'config': {**trained, 'evaluate_on': record['evaluated_on']}}


def command(experiment: configuration.Experiment, record: dict) -> str:
    """Return the command that reproduces a record today, without the flags that its recipe implies."""
    config, (_, tested, _) = record['config'], _length(record)
    model = {name: config[name] for name in ('way', 'shot') if 'shot' in config}
    flags = model | configuration.changes(experiment, config, ignoring=(*model, 'seed', 'data'))
    if model and tested != experiment.config().episodes.test_episodes:
        flags['test_episodes'] = tested
    if record.get('features', UNNAMED) != UNNAMED:  # not part of the config
        flags['features'] = record['features']
    flags['seed'] = record['seed']
    given = configuration.flags_text(flags)
    if shlex.join(given.split(' ')) != given or given.count(' ') != len(flags) - 1:
        raise ConfigError(f'{given} would need quotes in a published command; rename a value')
    return f'python -m experiments.{experiment.name} {given}'


def flags_of(command: str) -> dict[str, str]:
    """Return the flags of a command as text."""
    return dict(flag[2:].split('=', 1) for flag in command.split() if flag.startswith('--'))


def published(experiment: str) -> list[dict]:
    """Return all published records of an experiment, the oldest first."""
    path = PUBLISHED / f'{experiment}.jsonl'
    return _parsed(path.read_text()) if path.exists() else []


@functools.cache
def _parsed(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def append(experiment: str, record: dict) -> None:
    """Publish a record unless it has been published already."""
    known = published(experiment)
    if record not in known:
        lines = [json.dumps(one, ensure_ascii=False) + '\n' for one in (*known, record)]
        write_whole(PUBLISHED / f'{experiment}.jsonl', ''.join(lines))


def select(records: Iterable[dict], wanted: dict) -> list[dict]:
    """Return the runs with the wanted values and otherwise default values except for their length, one per seed.

    If several lengths match, the longest training and test count, then the largest number of columns, then the last
    line.
    """
    found = []
    for record in records:
        given = flags_of(record['command'])
        values = record['config'] | given
        known = all(_number(values.get(name)) == _number(value) for name, value in wanted.items())
        if known and not given.keys() - wanted.keys() - LENGTHS - {'seed', 'features'}:
            found.append(record)
    found.sort(key=_length)
    runs = {record['seed']: record for record in found if without_seed(record) == without_seed(found[-1])}
    return [runs[seed] for seed in sorted(runs)]


def _number(value: object) -> float | str:
    """Return the number that a value or its text is, so that 4 equals 4.0; otherwise the text."""
    try:
        return float(text(value))
    except ValueError:
        return text(value)


def select_published(experiment: str, wanted: dict) -> list[dict]:
    """Return the published runs with the wanted values: on the test classes or else on the validation classes.

    With one shot, matching and prototypical networks are the same model, so a run of either counts as both. (Columns
    of a one-shot matching network are 1-shot episodes.)
    """
    known, models = published(experiment), [wanted]
    if (wanted.get('model'), wanted.get('shot')) == ('matching', 1):
        models.append({**wanted, 'model': 'prototypical'})
    choices = [{'evaluate_on': split, **model} for split in ('test', 'validation') for model in models]
    return next(filter(None, (select(known, choice) for choice in choices)), [])


def _length(record: dict) -> tuple:
    """Return training episodes (infinite with early stopping), test episodes and number of columns."""
    scores = record[record['evaluated_on']]
    tested = max(score['episodes'] for score in scores.values())
    return record['config']['episodes'] or float('inf'), tested, len(scores)


def without_seed(record: dict) -> str:
    """Return the command of a record without its seed."""
    return record['command'].removesuffix(f' --seed={record["seed"]}')


def score(runs: Iterable[dict], column: str) -> dict | None:
    """Return mean accuracy and half-width of the 95 % CI over runs with different seeds, or None without runs."""
    scores = {run['seed']: run[run['evaluated_on']].get(column) for run in runs}
    scores = {seed: score for seed, score in scores.items() if score}
    if not scores:
        return None
    means = {name: statistics.mean(score[name] for score in scores.values()) for name in ('accuracy', 'ci95')}
    return {**means, 'seeds': {seed: score['accuracy'] for seed, score in scores.items()}}


def cell(ours: dict | None) -> str:
    """Format a score: mean over the seeds ± half-width of the 95 % CI of one run [lowest and highest seed]."""
    if ours is None:
        return 'not run'
    values = ours['seeds'].values()
    spread = f' [{min(values):.2f}, {max(values):.2f}]' if len(values) > 1 else ''
    return f'{ours["accuracy"]:.2f} ± {ours["ci95"]:.2f}{spread}'
