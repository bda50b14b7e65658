"""Records of finished runs, from a workdir or from the published ones: experiments/results/<experiment>.jsonl.

A record is a dictionary: what results.json and timing.json of the run say, its learning curve, and its command.
Published records are lines of JSON that are appended and never edited. A flag that did not exist yet is absent from a
line, which means what the program did then.
"""

import dataclasses
import json
import math
import shlex
import statistics
from pathlib import Path

from experiments.reporting.paper import NOT_TOLD
from experiments.running.config import ConfigError
from experiments.running.identity import config_changes, config_text, config_value_text
from experiments.running.workdir_files import is_number, is_whole, read_reports, read_workdir_file
from protojax.errors import first_line
from protojax.files import write_whole

PUBLISHED = Path(__file__).parents[1] / 'results'
LOOK = 1000  # episodes between the points of a published learning curve
NEEDED = {'synthetic', 'dataset', 'config', 'seed', 'evaluated_on'}  # in every record
TIMING = ('seconds', 'devices', 'processor', 'commit')  # of timing.json
# Flags that say how long a run trains and what it is tested on. Runs of the same setting may differ in them.
LENGTHS = {'episodes', 'patience', 'validate_every', 'validation_episodes', 'log_every'}
LENGTHS |= {'test_way', 'test_shot', 'test_episodes'}


def read_record(workdir):
    """The record of a finished run, without its command; None where there is no results.json."""
    if not (Path(workdir) / 'results.json').exists():
        return None
    try:
        results, timing = (_load_record_file(Path(workdir) / name) for name in ('results.json', 'timing.json'))
        timing = {name: timing[name] for name in TIMING if name in timing}
        reports = read_reports(Path(workdir) / 'metrics.jsonl')
        # The learning curve: accuracy in % and loss on validation episodes, every LOOK episodes, or all of
        # a run that has none there.
        looks = [report for report in reports if report['split'] == 'validation']
        looks = [look for look in looks if look['episode'] % LOOK == 0] or looks
        curve = {str(look['episode']): {'accuracy': 100 * look['accuracy'], 'loss': look['loss']} for look in looks}
        record = {**results, **timing, 'curve': curve}
        check_record(record)
        return record
    except Exception as error:  # damage takes many forms
        raise ConfigError(f'{workdir} is damaged ({first_line(error)}); restore it or leave it out') from error


def _load_record_file(path):
    found = json.loads(read_workdir_file(path)) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f'{path.name} is a {type(found).__name__} instead of named values')
    return found


def check_record(record):
    """ValueError of a record that tables and pages cannot show."""
    if missing := NEEDED - record.keys():
        raise ValueError(f'results.json lacks {min(missing)}')
    split = record['evaluated_on']
    _require(split in ('test', 'validation'), 'evaluated_on')
    _require(_is_plain(record), 'some text, which is not printable,')
    _require(is_whole(record['seed']), 'seed')
    _require(isinstance(record['synthetic'], bool), 'synthetic')
    for name in ('dataset', 'features', 'devices', 'processor'):
        _require(isinstance(record.get(name, ''), str), name)
    _require(isinstance(record.get('commit'), str | None), 'commit')
    _require(_is_finite(record.get('seconds', 0)), 'seconds')
    _check_config(record['config'])
    if 'weights' in record:
        _require(isinstance(record['weights'], dict) and isinstance(record['weights'].get('config'), dict), 'weights')
    _require(isinstance(record.get(split), dict) and record[split], f'the table of {split} scores')
    for setting, score in record[split].items():
        percent = isinstance(score, dict) and all(
            _is_finite(score.get(name)) and 0 <= score[name] <= 100 for name in ('accuracy', 'ci95')
        )
        _require(percent and is_whole(score.get('episodes')), f'the score of {setting}')
    for look in record['curve'].values():
        _require(_is_finite(look['accuracy']) and _is_finite(look['loss']), 'the learning curve')


def _check_config(config):
    _require(isinstance(config, dict) and is_whole(config.get('episodes')), 'config')
    for name, value in config.items():
        values = value if isinstance(value, list) else [value]
        _require(all(isinstance(one, str | bool | None) or _is_finite(one) for one in values), f'config: {name}')
        _require(name not in ('way', 'shot') or is_whole(value), f'config: {name}')


def _require(right, name):
    if not right:
        raise ValueError(f'{name} is not as a run writes it')


def _is_plain(value):
    """Whether all text in a value from JSON is printable, and so of one line."""
    if isinstance(value, dict):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    return all(map(_is_plain, value)) if isinstance(value, list) else not isinstance(value, str) or value.isprintable()


def _is_finite(value):
    return is_number(value) and math.isfinite(value)


def training_record(record):
    """The record as that of the run which trained the model, where a later program evaluated weights from a file."""
    if 'weights' not in record:
        return record
    trained = record['weights']['config']
    if 'seed' not in trained:
        raise ConfigError('the file of these weights does not say how they were trained')
    if trained.get('evaluate_on') != record['evaluated_on'] and trained.get('retrain', True):
        raise ConfigError('these weights were trained on other classes than those that such a run is trained on')
    return {**record, 'seed': trained['seed'], 'config': {**trained, 'evaluate_on': record['evaluated_on']}}


def record_command(experiment, record):
    """The command that leads to a record today: without flags that its recipe gives, and that have been deleted."""
    config, recipe = record['config'], dataclasses.replace(experiment.recipe, data=record['config']['data'])
    model = ('way', 'shot') if 'shot' in config else ()
    flags = {name: config[name] for name in model} | config_changes(recipe, config, beside=(*model, 'seed'))
    if model and _record_length(record)[1] != recipe.test_episodes:
        flags['test_episodes'] = _record_length(record)[1]
    if record.get('features', NOT_TOLD) != NOT_TOLD:  # said of the data, not found in them
        flags['features'] = record['features']
    flags['seed'] = record['seed']
    for name, value in flags.items():
        text = config_value_text(value)
        if text and shlex.quote(text) != text:
            raise ConfigError(f'--{name}={text} cannot stand in a published command: it would have to be quoted')
    return f'python -m experiments.{experiment.name} {config_text(flags)}'


def record_flags(command):
    """The flags of a command: {name: value as text}."""
    return dict(flag[2:].split('=', 1) for flag in command.split() if flag.startswith('--'))


def published_records(experiment):
    """All published records of an experiment, the oldest first."""
    path = PUBLISHED / f'{experiment}.jsonl'
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_record(experiment, record):
    """Publish a record, unless it is there already."""
    known = published_records(experiment)
    if record not in known:
        PUBLISHED.mkdir(exist_ok=True)
        lines = [json.dumps(one, ensure_ascii=False) + '\n' for one in (*known, record)]
        write_whole(PUBLISHED / f'{experiment}.jsonl', ''.join(lines))


def select_records(records, wanted):
    """The runs with the wanted values and nothing else changed but their length, one per seed.

    Of settings that differ in length the one with the longest training and test counts, then the one with most columns,
    of equal ones the last line.
    """
    found = []
    for record in records:
        given = record_flags(record['command'])
        values = {name: config_value_text(value) for name, value in record['config'].items()} | given
        known = all(values.get(name) == config_value_text(value) for name, value in wanted.items())
        if known and not given.keys() - wanted.keys() - LENGTHS - {'seed', 'features'}:
            found.append(record)
    found.sort(key=_record_length)
    runs = {record['seed']: record for record in found if record_without_seed(record) == record_without_seed(found[-1])}
    return [runs[seed] for seed in sorted(runs)]


def select_published_records(experiment, wanted):
    """The published runs with the wanted values: on the test classes, or else on the validation classes."""
    known = published_records(experiment)
    test, validation = (select_records(known, {**wanted, 'evaluate_on': split}) for split in ('test', 'validation'))
    return test or validation


def _record_length(record):
    """Episodes of training and of test, and columns; where the validation loss chooses, training is longest."""
    scores = record[record['evaluated_on']]
    tested = max(score['episodes'] for score in scores.values())
    return record['config']['episodes'] or float('inf'), tested, len(scores)


def record_without_seed(record):
    return record['command'].removesuffix(f' --seed={record["seed"]}')


def score_of_records(runs, column):
    """Accuracy and half width of its interval in a column, means over runs of different seeds; None without any."""
    scores = {run['seed']: run[run['evaluated_on']].get(column) for run in runs}
    scores = {seed: score for seed, score in scores.items() if score}
    if not scores:
        return None
    means = {name: statistics.mean(score[name] for score in scores.values()) for name in ('accuracy', 'ci95')}
    return {**means, 'seeds': {seed: score['accuracy'] for seed, score in scores.items()}}


def record_cell(ours):
    """A score as text: mean over the seeds ± half width of the interval of one run [lowest and highest seed]."""
    if ours is None:
        return 'not run'
    values = ours['seeds'].values()
    spread = f' [{min(values):.2f}, {max(values):.2f}]' if len(values) > 1 else ''
    return f'{ours["accuracy"]:.2f} ± {ours["ci95"]:.2f}{spread}'
