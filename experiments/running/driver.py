"""Runs an experiment from the data to the results: load, train or go on training, evaluate, write down."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

from experiments.reporting import results as report
from experiments.reporting import verdict
from experiments.running import job
from experiments.running.building import as_tested, build_few_shot_task, devices_for
from experiments.running.config import Config, identity, run_name
from experiments.running.evaluating import evaluators
from experiments.running.fitting import fit, fresh_fit, make_optimizer
from experiments.running.illustrating import illustrate
from experiments.running.placement import placed
from experiments.running.progress import phase
from experiments.running.signals import StopSignals
from experiments.running.workdir import Workdir, WorkdirError, writing
from protojax.checkpoints import Checkpoints
from protojax.datasets import Data
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained
from protojax.tasks import Task

STAGES = ('search', 'train')


class Experiment(NamedTuple):
    """What one data set brings to the driver."""

    name: str
    recipe: Config  # without any flag
    load: Callable[[Config], Data]
    build: Callable[[Config, Data], Task] = build_few_shot_task
    details: Callable[[Config, Data], dict] = lambda config, data: {}  # what else results.json should say of the data
    stand_in_episodes: int = 1000  # length of training on a stand-in, which need not be long to show that it works


class Run(NamedTuple):
    """An experiment under way."""

    config: Config
    experiment: Experiment
    data: Data
    task: Task
    devices: list
    workdir: Workdir


def run(config, experiment):
    """Do or finish the experiment of a config -> results, as written to results.json."""
    started = time.monotonic()
    if config.weights:
        load_pretrained(config.weights)  # a wrong name is told before minutes are spent on data
    with phase('loading the data'):
        data = experiment.load(config)
    devices = devices_for(config)
    job.connect(devices)
    say(f'protojax on {data.title}: {describe(data)}')
    task = experiment.build(config, data)  # before the workdir, which a config that does not fit must not claim
    workdir = Workdir(config.workdir or default_workdir(config, experiment, data), config, data.title)
    say(f'{describe_devices(devices)}; workdir {workdir.path}')
    workdir.write_json('classes.json', class_names(data))
    this = Run(config, experiment, data, task, devices, workdir)
    try:
        if config.weights:
            return evaluate_weights(this)
        if config.evaluate_only:
            variables, episodes = trained(this)
            return evaluate(this, variables, episodes, whole=(workdir.path / 'results.json').exists())
        with StopSignals() as stop:
            variables, episodes = train(this, stop)
        return evaluate(this, variables, episodes)
    finally:
        if not (config.evaluate_only or config.weights):
            workdir.add_seconds(time.monotonic() - started)


def train(run, stop):
    """The stages of training -> (params, batch_stats), episodes that led to them.

    The search trains on the training classes and keeps the state with the lowest validation loss. With `retrain` only
    its length counts, which `episodes` may also give: the final model trains as long on the validation classes too.
    """
    config, data, devices = run.config, run.data, run.devices
    options = {'devices': devices, 'workdir': run.workdir, 'stop': stop}
    episodes = config.episodes or (run.experiment.stand_in_episodes if data.synthetic else 0)
    if not (config.retrain and episodes):
        training, validation = (placed(config, devices, split) for split in (data.train, data.validation))
        _, validate, _ = evaluators(config, run.task, devices)
        search = fit(
            config, run.task, training, validation, validate=validate, stage='search', episodes=episodes, **options
        )
        best = search.best
        if not config.retrain or config.evaluate_on == 'validation':
            return best_of(search, config)
        found = max(int(best.step), 1) * config.episodes_per_step
        episodes = found if config.retrain_length == 'best' else int(search.state.step) * config.episodes_per_step
        say(f'lowest validation loss after {found} episodes; training anew on train+validation for {episodes}')
    training = placed(config, devices, *known_splits(config, data))
    return last_of(fit(config, run.task, training, stage='train', episodes=episodes, **options), config)


def best_of(fit, config):
    """What had the lowest validation loss -> (params, batch_stats), episodes."""
    return (fit.best.params, fit.best.batch_stats), int(fit.best.step) * config.episodes_per_step


def last_of(fit, config):
    """What the last episode left -> (params, batch_stats), episodes."""
    return (fit.state.average, fit.state.batch_stats), int(fit.state.step) * config.episodes_per_step


def trained(run):
    """What an earlier start left in the workdir -> (params, batch_stats), episodes that led to them."""
    config, path = run.config, run.workdir.path
    template = fresh_fit(run.task, make_optimizer(config, config.episodes), jax.random.key(0))
    found = {s: Checkpoints(path / s).restore(template) for s in STAGES if (path / s).exists()}
    if found.get('train'):
        return last_of(found['train'][1], config)
    if found.get('search'):
        return best_of(found['search'][1], config)
    raise WorkdirError(f'{path} holds nothing trained; run without --evaluate_only first, or choose --workdir')


def evaluate(run, variables, episodes=None, *, whole=True, origin=None):
    """The final table of params and batch_stats -> results. Those of a whole training are written."""
    config, workdir = run.config, run.workdir
    split = run.data.test if config.evaluate_on == 'test' else run.data.validation
    task, params = as_tested(config, run.task), {**variables[0], 'batch_stats': variables[1]}
    embed, _, test = evaluators(config, task, run.devices)
    with phase(f'evaluating: embedding {split.counts.sum():,} items'):
        embedded = embed(*variables, placed(config, run.devices, split))
    about = {**run.experiment.details(config, run.data), **({} if episodes is None else {'trained_episodes': episodes})}
    results = report.results(config, run.data, test(params, embedded), about, origin)
    say(report.table(results, run.experiment.name))
    for line in verdict.warnings(results[config.evaluate_on], workdir.metrics()):
        say(line)
    if not whole:
        say('This run has not been trained to its end, so its results.json is not written.')
    elif workdir.writes:
        workdir.write_json('results.json', results)
        written = ['results.json']
        if origin is None:
            with writing(workdir.path / 'weights.safetensors'):
                save_weights(run, variables, results)
            written.append('weights.safetensors')
        if config.pictures == 'on':
            with phase('drawing pictures'):
                written += illustrate(config, task, params, embedded, split, run.data.title, workdir)
        say(f'written to {workdir.path}: {", ".join(written)}')
    return results


def evaluate_weights(run):
    """The final table of what --weights names -> results."""
    if any((run.workdir.path / stage).exists() for stage in STAGES):
        raise WorkdirError(f'{run.workdir.path} holds a run of its own; choose another --workdir for --weights')
    weights = load_pretrained(run.config.weights, encoder=run.task.encoder)
    origin = report.origin(weights.description)
    say(f'weights that were trained with {report.as_flags(origin["config"])}')
    params = {'encoder': weights.params, 'classifier': weights.classifier}
    return evaluate(run, (params, weights.batch_stats), origin=origin)


def save_weights(run, variables, results):
    """Everything that was learned, in a file of its own."""
    config, (params, batch_stats) = run.config, variables
    encoder = run.task.encoder
    if getattr(config, 'temperature', 1) != 1 and config.distance == 'euclidean' and hasattr(encoder, 'scale'):
        # Squared distances then need no temperature.
        encoder = encoder.clone(scale=encoder.scale * config.temperature**-0.5)
    item_shape = run.data.train.items.shape[2:]
    weights = Pretrained(
        encoder, params['encoder'], batch_stats, {'results': results}, run.task.attribute_encoder, params['classifier']
    )
    save_pretrained(run.workdir.path / 'weights.safetensors', weights, item_shape)


def known_splits(config, data):
    """The splits that the final model is trained on."""
    return [data.train, data.validation] if config.evaluate_on == 'test' else [data.train]


def class_names(data):
    """{split: names of its classes}, for the splits that there are."""
    splits = {'train': data.train, 'validation': data.validation, 'test': data.test}
    return {name: split.names for name, split in splits.items() if split is not None}


def describe(data):
    return ', '.join(f'{len(names)} {split} classes' for split, names in class_names(data).items())


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
