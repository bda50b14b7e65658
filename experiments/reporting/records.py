"""Records of finished runs, from a workdir or from the published ones: experiments/results/<experiment>.jsonl.

A record is a dictionary: what results.json and timing.json of the run say, its learning curve, and its command.
Published records are lines of JSON that are appended and never edited. A flag that did not exist yet is absent from a
line, which means what the program did then.
"""

import dataclasses
import json
import statistics
from pathlib import Path

from experiments.running.config import ConfigError, as_text, changes
from protojax.files import write_whole

PUBLISHED = Path(__file__).parents[1] / 'results'
LOOK = 1000  # episodes between the points of a published learning curve
# Flags that say how long a run trains and is tested. Runs of the same setting may differ in them.
LENGTHS = {'episodes', 'patience', 'validate_every', 'validation_episodes', 'test_episodes', 'log_every'}


def read(workdir):
    """The record of a finished run, without its command; None where there is no results.json."""
    results, timing = (load(Path(workdir) / name) for name in ('results.json', 'timing.json'))
    if results is None:
        return None
    metrics = Path(workdir) / 'metrics.jsonl'
    return {**results, **(timing or {}), 'curve': curve(metrics.read_text() if metrics.exists() else '')}


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def curve(metrics):
    """Accuracy in % and loss on validation episodes at every LOOK episodes that a run looked at, from lines of JSON."""
    reports = [json.loads(report) for report in metrics.splitlines()]
    looks = [report for report in reports if report['split'] == 'validation' and report['episode'] % LOOK == 0]
    return {str(look['episode']): {'accuracy': 100 * look['accuracy'], 'loss': look['loss']} for look in looks}


def of_training(record):
    """The record as that of the run which trained the model, where a later program evaluated weights from a file."""
    if 'weights' not in record:
        return record
    trained = record['weights']['config']
    if trained.get('evaluate_on') != record['evaluated_on'] and trained.get('retrain', True):
        raise ConfigError('these weights were trained on other classes than those that such a run is trained on')
    return {**record, 'seed': trained['seed'], 'config': {**trained, 'evaluate_on': record['evaluated_on']}}


def command(experiment, record):
    """The command that leads to a record today: without flags that its recipe gives, and that have been deleted."""
    config, recipe = record['config'], dataclasses.replace(experiment.recipe, data=record['config']['data'])
    model = ('way', 'shot') if 'shot' in config else ()
    flags = {name: config[name] for name in model} | changes(recipe, config, beside=(*model, 'seed'))
    if model and length(record)[1] != recipe.test_episodes:
        flags['test_episodes'] = length(record)[1]
    flags['seed'] = record['seed']
    return ' '.join([f'python -m experiments.{experiment.name}', *(f'--{n}={as_text(v)}' for n, v in flags.items())])


def flags(command):
    """The flags of a command: {name: value as text}."""
    return dict(flag[2:].split('=', 1) for flag in command.split() if flag.startswith('--'))


def published(experiment):
    """All published records of an experiment, the oldest first."""
    path = PUBLISHED / f'{experiment}.jsonl'
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(experiment, record):
    """Publish a record, unless it is there already."""
    known = published(experiment)
    if record not in known:
        PUBLISHED.mkdir(exist_ok=True)
        lines = [json.dumps(one, ensure_ascii=False) + '\n' for one in (*known, record)]
        write_whole(PUBLISHED / f'{experiment}.jsonl', ''.join(lines))


def select(records, wanted):
    """The runs with the wanted values and nothing else changed but their length, one per seed.

    Of settings that differ in length the one with the longest training and test counts, of equal ones the last line.
    """
    found = []
    for record in records:
        given = flags(record['command'])
        values = {name: as_text(value) for name, value in record['config'].items()} | given
        known = all(values.get(name) == as_text(value) for name, value in wanted.items())
        if known and not given.keys() - wanted.keys() - LENGTHS - {'seed'}:
            found.append(record)
    found.sort(key=length)
    runs = {record['seed']: record for record in found if without_seed(record) == without_seed(found[-1])}
    return [runs[seed] for seed in sorted(runs)]


def length(record):
    """Episodes of training and test; where the validation loss chooses, training is longest."""
    tested = max(score['episodes'] for score in record[record['evaluated_on']].values())
    return record['config']['episodes'] or float('inf'), tested


def without_seed(record):
    return record['command'].removesuffix(f' --seed={record["seed"]}')


def score(runs, column):
    """Accuracy and half width of its interval in a column, means over runs of different seeds; None without any."""
    scores = {run['seed']: run[run['evaluated_on']].get(column) for run in runs}
    scores = {seed: score for seed, score in scores.items() if score}
    if not scores:
        return None
    means = {name: statistics.mean(score[name] for score in scores.values()) for name in ('accuracy', 'ci95')}
    return {**means, 'seeds': {seed: score['accuracy'] for seed, score in scores.items()}}


def cell(ours):
    """A score as text: mean over the seeds ± half width of the interval of one run [lowest and highest seed]."""
    if ours is None:
        return '-'
    values = ours['seeds'].values()
    spread = f' [{min(values):.2f}, {max(values):.2f}]' if len(values) > 1 else ''
    return f'{ours["accuracy"]:.2f} ± {ours["ci95"]:.2f}{spread}'
