"""The runs behind our published figures: experiments/results/<name>/results.json, taken over from workdirs."""

import dataclasses
import json
from pathlib import Path

from experiments import cub, miniimagenet, omniglot
from experiments.running.config import ConfigError, as_text, changes, run_name
from protojax.files import write_whole

RUNS = Path(__file__).parents[1] / 'results'
BINARIES = {'Omniglot': omniglot, 'miniImageNet': miniimagenet, 'CUB-200-2011': cub}
LOOK = 1000  # episodes between the points of a published learning curve


def add(workdir):
    """Take over the results of a workdir."""
    paths = [workdir / name for name in ('results.json', 'timing.json', 'metrics.jsonl')]
    if missing := [path for path in paths if not path.exists()]:
        raise ConfigError(f'there is no {missing[0]}; --add wants the workdir of a finished run')
    results, timing, metrics = (path.read_text() for path in paths)
    results, timing = json.loads(results), json.loads(timing)
    if results['synthetic']:
        raise ConfigError(f'{workdir} is a run on synthetic data, which no figure is published of')
    target = RUNS / name(results) / 'results.json'
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, json.dumps({**results, **timing, 'curve': curve(metrics)}, indent=1) + '\n')


def curve(metrics):
    """Accuracy in % and loss on validation episodes at every LOOK episodes that a run looked at, from lines of JSON."""
    reports = [json.loads(report) for report in metrics.splitlines()]
    looks = [report for report in reports if report['split'] == 'validation' and report['episode'] % LOOK == 0]
    return {str(look['episode']): {'accuracy': 100 * look['accuracy'], 'loss': look['loss']} for look in looks}


def runs():
    """The runs under experiments/results, by data set, split and setting: {(dataset, split): {flags: [runs]}}."""
    found = {}
    for path in sorted(RUNS.glob('*/results.json')):
        run = json.loads(path.read_text())
        group = found.setdefault((run['dataset'], run['evaluated_on']), {})
        group.setdefault(setting(run), []).append(run)
    return found


def name(run):
    """Of its folder."""
    binary = BINARIES[run['dataset']]
    return run_name(binary.EXPERIMENT.name, on_real_data(binary.RECIPE), run['config'])


def command_flags(run):
    """The flags that lead to a run."""
    return (*setting(run), f'--seed={run["seed"]}')


def setting(run):
    """The flags that lead to a run but for its seed, without those that the recipe gives."""
    config, binary = run['config'], BINARIES[run['dataset']]
    model = ('way', 'shot') if binary is omniglot else ()
    flags = {name: config[name] for name in model}
    flags |= changes(on_real_data(binary.RECIPE), config, beside=(*model, 'seed'))
    if 'shot' in config:
        tested = max(score['episodes'] for score in scores(run).values())
        flags |= {'test_episodes': tested} if tested != binary.RECIPE.test_episodes else {}
    return tuple(as_flag(name, value) for name, value in flags.items())


def on_real_data(recipe):
    return dataclasses.replace(recipe, data='real')


def as_flag(name, value):
    if isinstance(value, bool):
        return f'--{name}' if value else f'--no{name}'
    return f'--{name}={as_text(value)}'


def scores(run):
    return run[run['evaluated_on']]
