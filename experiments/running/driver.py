"""Runs an experiment from the data to the results: load, train or go on training, evaluate, write down."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.reporting import results as report
from experiments.running import job
from experiments.running.config import identity, run_name
from experiments.running.fitting import adam, fit, fresh_fit
from experiments.running.signals import StopSignals
from experiments.running.workdir import Workdir, WorkdirError, writing
from protojax.checkpoints import Checkpoints
from protojax.devices import place
from protojax.episodes import Dataset

STAGES = ('search', 'train')


class Experiment(NamedTuple):
    """What one data set brings to the driver."""

    name: str
    recipe: Any  # the config without any flag
    load: Callable[..., Any]  # config -> Data
    problem: Callable[..., Any]  # config, Data -> Problem
    paper: Callable[..., Any]  # identity of the config that trained a model -> {setting: the paper's accuracy}
    stand_in_episodes: int  # length of training on the stand-in, where a run need not be long to show that it works


def run(config, experiment):
    """Do or finish the experiment of a config -> results, as written to results.json."""
    started = time.monotonic()
    data = experiment.load(config)
    job.meet('data')
    say(f'protojax on {data.title}: {describe(data)}')
    problem = experiment.problem(config, data)  # before the workdir, which a config that does not fit must not claim
    workdir = Workdir(config.workdir or default_workdir(config, experiment, data), config, data.title)
    say(f'{describe_devices(problem.devices)}; workdir {workdir.path}')
    try:
        return outcome(config, experiment, problem, data, workdir)
    finally:
        if not (config.evaluate_only or config.weights):
            workdir.add_seconds(time.monotonic() - started)


def outcome(config, experiment, problem, data, workdir):
    """Train, unless only an evaluation is asked for, and evaluate -> results. Those of a whole training are written."""
    origin, whole = None, True
    if config.weights:
        variables, origin = pretrained(problem, workdir)
    elif config.evaluate_only:
        variables, whole = trained(config, problem, data, workdir), (workdir.path / 'results.json').exists()
    else:
        with StopSignals() as stop:
            variables = train(config, experiment, problem, data, workdir, stop)
    split = data.test if config.evaluate_on == 'test' else data.validation
    scores = problem.test(*variables, place(on_host(split), problem.devices))
    results = report.results(config, data, scores, origin)
    say(report.table(results, experiment.paper(results['config'] if origin is None else origin['config'])))
    if not whole:
        say('This is a run that has not been trained to its end, so its results.json is not written.')
    elif workdir.writes:
        workdir.write_json('results.json', results)
        if problem.save and origin is None:
            with writing(workdir.path / 'weights.npz'):
                problem.save(workdir.path / 'weights.npz', *variables, {'results': results})
    return results


def train(config, experiment, problem, data, workdir, stop):
    """The stages of training -> params, batch_stats.

    The search trains on the training classes and keeps the state with the least validation loss. With `retrain` only
    its length counts, which `episodes` may also give: the final model trains as long on the validation classes too.
    """
    options = {'devices': problem.devices, 'workdir': workdir, 'stop': stop}
    episodes = config.episodes or (experiment.stand_in_episodes if data.synthetic else 0)
    if not (config.retrain and episodes):
        training, validation = (place(on_host(split), problem.devices) for split in (data.train, data.validation))
        best = fit(config, problem, training, validation, stage='search', episodes=episodes, **options).best
        if not config.retrain or config.evaluate_on == 'validation':
            return best.params, best.batch_stats
        episodes = max(int(best.step), 1) * config.episodes_per_step
        say(f'least validation loss after {episodes} episodes; training anew on train+validation for as long')
    training = place(on_host(*known_splits(config, data)), problem.devices)
    state = fit(config, problem, training, None, stage='train', episodes=episodes, **options).state
    return problem.settled(state, training)


def pretrained(problem, workdir):
    """What --weights hold and say of themselves -> (params, batch_stats), origin."""
    if any((workdir.path / stage).exists() for stage in STAGES):
        raise WorkdirError(f'{workdir.path} holds a run of its own; choose another --workdir for --weights')
    variables, description = problem.load()
    origin = report.origin(description)
    say(f'weights that were trained with {report.as_flags(origin["config"])}')
    return variables, origin


def trained(config, problem, data, workdir):
    """What an earlier run left in the workdir -> params, batch_stats."""
    template = fresh_fit(problem.task, adam(config, config.episodes), jax.random.key(0))
    found = {s: Checkpoints(workdir.path / s).restore(template) for s in STAGES if (workdir.path / s).exists()}
    if found.get('train'):
        return problem.settled(found['train'][1].state, place(on_host(*known_splits(config, data)), problem.devices))
    if found.get('search'):
        return found['search'][1].best.params, found['search'][1].best.batch_stats
    raise WorkdirError(f'{workdir.path} holds nothing trained; run without --evaluate_only first, or choose --workdir')


def known_splits(config, data):
    """The splits that the final model is trained on."""
    return [data.train, data.validation] if config.evaluate_on == 'test' else [data.train]


def on_host(*splits):
    """Splits as one data set: their classes one after the other."""
    first = splits[0]
    if len(splits) == 1:
        return Dataset(first.items, first.counts, first.attributes)
    classes, size = sum(len(s.counts) for s in splits), max(s.items.shape[1] for s in splits)
    items = np.zeros((classes, size, *first.items.shape[2:]), first.items.dtype)
    begin = 0
    for split in splits:  # filled in place, as a large data set should not be in memory more often than it must
        items[begin : begin + len(split.counts), : split.items.shape[1]] = split.items
        begin += len(split.counts)
    attributes = None if first.attributes is None else np.concatenate([s.attributes for s in splits])
    return Dataset(items, np.concatenate([s.counts for s in splits]), attributes)


def describe(data):
    parts = {'train': data.train, 'validation': data.validation, 'test': data.test}
    return ', '.join(f'{len(split.names)} {name} classes' for name, split in parts.items() if split is not None)


def describe_devices(devices):
    fewer = ' (more could not share the work evenly)' if len(devices) < jax.device_count() else ''
    return f'{len(devices)} of {jax.device_count()} {devices[0].platform} devices{fewer}'


def default_workdir(config, experiment, data):
    """A name that tells runs apart, and stand-ins from real data."""
    if config.weights:
        name = '-'.join(part for part in Path(config.weights).with_suffix('').parts[-2:] if part != os.sep)
        return f'runs/evaluation-of-{name}'
    kind = 'synthetic-not-' if data.synthetic else ''
    recipe = dataclasses.replace(experiment.recipe, data=config.data)  # the name says which data there are
    return f'runs/{kind}{run_name(experiment.name, recipe, identity(config))}'


def say(line):
    if jax.process_index() == 0:
        print(line, flush=True)
