"""Runs an experiment from the data to the results: load, train or go on training, evaluate, write down."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax

from experiments.reporting.verdict import verdict_lines
from experiments.running.building import (
    build_few_shot_task,
    build_pretraining,
    build_tested_task,
    check_few_shot_sizes,
    keeps_temperature,
)
from experiments.running.config import Config
from experiments.running.evaluating import evaluators
from experiments.running.fitting import fit_stage, fitting_optimizer, fresh_fit
from experiments.running.hardware import describe_devices
from experiments.running.illustrating import illustrate
from experiments.running.job import connect_job
from experiments.running.placement import devices_for, placed
from experiments.running.progress import phase
from experiments.running.results import results_as_flags, results_of_run, results_origin, results_table
from experiments.running.signals import StopSignals
from experiments.running.workdir import Workdir, WorkdirError, default_workdir, writing_workdir
from protojax.checkpoints import Checkpoints
from protojax.datasets import Data
from protojax.errors import WeightsError, first_line
from protojax.photo_weights import PACKAGED
from protojax.pretrained import Pretrained, check_pretrained_fit, load_pretrained, pretrained_path, save_pretrained
from protojax.tasks import Task, task_started_from

STAGES = ('pretrain', 'search', 'train')


class Experiment(NamedTuple):
    """What one data set brings to the driver."""

    name: str
    recipe: Config  # without any flag
    load: Callable[[Config], Data]
    build: Callable[[Config, Data], Task] = build_few_shot_task
    details: Callable[[Config, Data], dict] = lambda config, data: {}  # what else results.json should say of the data
    stand_in_episodes: int = 1000  # length of training on a stand-in, which need not be long to show that it works


class ExperimentRun(NamedTuple):
    """An experiment under way."""

    config: Config
    experiment: Experiment
    data: Data
    task: Task
    devices: list
    workdir: Workdir
    started_from: dict | None = None  # what the weights of --init say of themselves


def run_experiment(config, experiment):
    """Do or finish the experiment of a config -> results, as written to results.json."""
    started = time.monotonic()
    for name in (config.weights, getattr(config, 'init', '')):
        if name not in ('', *PACKAGED):
            pretrained_path(name)  # a wrong name is told before minutes are spent on data
    with phase('loading the data'):
        data = experiment.load(config)
    splits = {'train': data.train, 'validation': data.validation, 'test': data.test}
    classes = {name: split.names for name, split in splits.items() if split is not None}
    sizes = ', '.join(f'{len(names)} {split} classes' for split, names in classes.items())
    _say(f'protojax on {data.title}: {sizes}')
    task = experiment.build(config, data)  # before the workdir, which a config that does not fit must not claim
    if task.unlabeled:
        check_few_shot_sizes(config, data, task.unlabeled)
    devices = devices_for(config, task)
    connect_job(devices)
    workdir = Workdir(config.workdir or default_workdir(config, experiment, data), config, data.title)
    _say(f'{describe_devices(devices)}; workdir {workdir.path}')
    workdir.write_json('classes.json', classes)
    init = getattr(config, 'init', '')
    start = results_origin(load_pretrained(init).description) if init else None  # the file may be gone at the end
    this = ExperimentRun(config, experiment, data, task, devices, workdir, start)
    try:
        if config.weights:
            return _evaluate_run_of_weights(this)
        if config.evaluate_only:
            variables, episodes = _trained_earlier(this)
            return _evaluate_run(this, variables, episodes, whole=(workdir.path / 'results.json').exists())
        with StopSignals() as stop:
            variables, episodes = _train_in_stages(this, stop)
        return _evaluate_run(this, variables, episodes)
    finally:
        if not (config.evaluate_only or config.weights):
            workdir.add_seconds(time.monotonic() - started)


def _train_in_stages(run, stop):
    """The stages of training -> (params, batch_stats), episodes that led to them.

    The search trains on the training classes and keeps the state with the lowest validation loss. With `retrain` only
    its length counts, which `episodes` may also give: the final model trains as long on the validation classes too.
    Before both, `pretrain` may give the encoder a start by ordinary batches of the training classes.
    """
    config, data, devices = run.config, run.data, run.devices
    options = {'devices': devices, 'workdir': run.workdir, 'stop': stop}
    if getattr(config, 'pretrain', 0):
        run = run._replace(task=_pretrained_task(run, options))
    episodes = config.episodes or (run.experiment.stand_in_episodes if data.synthetic else 0)
    if not (config.retrain and episodes):
        training, validation = (placed(config, devices, split) for split in (data.train, data.validation))
        validate = evaluators(config, run.task, devices).validate
        search = fit_stage(
            config, run.task, training, validation, validate=validate, stage='search', episodes=episodes, **options
        )
        if not config.retrain or config.evaluate_on == 'validation':
            return _best_of_stage(search, config)
        found = max(int(search.best.step), 1) * config.episodes_per_step
        episodes = found if config.retrain_length == 'best' else int(search.state.step) * config.episodes_per_step
        _say(f'lowest validation loss after {found} episodes; training anew on train+validation for {episodes}')
    training = placed(config, devices, *_known_splits(run).values())
    return _last_of_stage(fit_stage(config, run.task, training, stage='train', episodes=episodes, **options), config)


def _known_splits(run):
    """The classes that the final model learns from: {name: Split}."""
    names = ['train']
    if run.config.retrain and run.config.evaluate_on == 'test':
        names.append('validation')
    return {name: getattr(run.data, name) for name in names}


def _pretrained_task(run, options):
    """The task with an encoder that has learned to tell all training classes apart."""
    config, task = build_pretraining(run.config, run.data, run.task.encoder)
    training = placed(config, run.devices, run.data.train)
    state = fit_stage(config, task, training, stage='pretrain', episodes=config.episodes, **options).state
    return task_started_from(run.task, *jax.device_get((state.params['encoder'], state.batch_stats)))


def _best_of_stage(fitted, config):
    """What had the lowest validation loss -> (params, batch_stats), episodes."""
    return (fitted.best.params, fitted.best.batch_stats), int(fitted.best.step) * config.episodes_per_step


def _last_of_stage(fitted, config):
    """What the last episode left -> (params, batch_stats), episodes."""
    return (fitted.state.average, fitted.state.batch_stats), int(fitted.state.step) * config.episodes_per_step


def _trained_earlier(run):
    """What an earlier start left in the workdir -> (params, batch_stats), episodes that led to them."""
    config, path = run.config, run.workdir.path
    template = fresh_fit(run.task, fitting_optimizer(config, config.episodes), jax.random.key(0))
    found = {s: Checkpoints(path / s).restore(template) for s in STAGES[1:] if (path / s).exists()}
    if found.get('train'):
        return _last_of_stage(found['train'][1], config)
    if found.get('search'):
        return _best_of_stage(found['search'][1], config)
    raise WorkdirError(f'{path} holds nothing trained; run without --evaluate_only first, or choose --workdir')


def _evaluate_run(run, variables, episodes=None, *, whole=True, origin=None):
    """The final table of params and batch_stats -> results. Those of a whole training are written."""
    config, workdir = run.config, run.workdir
    split = run.data.test if config.evaluate_on == 'test' else run.data.validation
    task, params = build_tested_task(config, run.task), {**variables[0], 'batch_stats': variables[1]}
    evaluate = evaluators(config, task, run.devices)
    with phase(f'evaluating: embedding {split.counts.sum():,} items') as tell:
        embedded = evaluate.embed(*variables, placed(config, run.devices, split), tell)
    about = {**run.experiment.details(config, run.data), **({} if episodes is None else {'trained_episodes': episodes})}
    results = results_of_run(config, run.data, evaluate.test(params, embedded), about, origin)
    _say(results_table(results, run.experiment.name))
    advice = {} if origin is None else {'advice': 'give other --weights'}
    for line in verdict_lines(results[config.evaluate_on], workdir.metrics(), **advice):
        _say(line)
    if not whole:
        _say('This run has not been trained to its end, so its results.json is not written.')
    elif workdir.writes:
        workdir.write_json('results.json', results)
        written = ['results.json']
        if origin is None:
            with writing_workdir(workdir.path / 'weights.safetensors'):
                save_experiment_weights(run, variables, results)
            written.append('weights.safetensors')
        if config.pictures == 'on':
            with phase('drawing pictures'):
                written += illustrate(config, task, params, embedded, split, run.data.title, workdir)
        _say(f'written to {workdir.path}:\n  {", ".join(written)}')
    return results


def _evaluate_run_of_weights(run):
    """The final table of what --weights names -> results."""
    if any((run.workdir.path / stage).exists() for stage in STAGES):
        raise WorkdirError(f'{run.workdir.path} holds a run of its own; choose another --workdir for --weights')
    weights = load_pretrained(run.config.weights, encoder=run.task.encoder)
    origin = results_origin(weights.description)
    _say(f'weights that were trained with {results_as_flags(origin["config"])}')
    params = {'encoder': weights.params, 'classifier': weights.classifier}
    expected = jax.eval_shape(run.task.initialize, jax.random.key(0))
    try:
        for part, found, shapes in zip(('params', 'batch_stats'), (params, weights.batch_stats), expected, strict=True):
            check_pretrained_fit(found, shapes, part)
    except ValueError as error:
        raise WeightsError(
            f'--weights={run.config.weights} are not of this method ({first_line(error)}); give the flags of their '
            'training, or other weights'
        ) from error
    return _evaluate_run(run, (params, weights.batch_stats), origin=origin)


def save_experiment_weights(run, variables, results):
    """Everything that was learned, in a file of its own."""
    config, (params, batch_stats) = run.config, variables
    encoder = run.task.encoder
    if getattr(config, 'temperature', 1) != 1 and keeps_temperature(config, encoder):
        encoder = encoder.clone(scale=encoder.scale * config.temperature**-0.5)
    item_shape = run.data.train.items.shape[2:]
    known = {name: len(split.names) for name, split in _known_splits(run).items()}
    description = {'results': results, 'trained_on': known}
    if run.started_from:
        description['started_from'] = run.started_from
    weights = Pretrained(
        encoder, params['encoder'], batch_stats, description, run.task.attribute_encoder, params['classifier']
    )
    save_pretrained(run.workdir.path / 'weights.safetensors', weights, item_shape)


def _say(line):
    if jax.process_index() == 0:
        print(line, flush=True)
