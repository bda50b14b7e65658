"""Runs an experiment: load the data, train or resume, evaluate, write the results."""

import time
from functools import partial
from typing import Any

import jax

from experiments import methods
from experiments.methods import nearest
from experiments.running import config as configuration
from experiments.running import evaluate, fit, metrics, placement, progress, provenance, results
from experiments.running.config import Config, Experiment
from experiments.running.fit import Job
from experiments.running.multihost import StopSignals, connect
from experiments.running.workdir import Workdir, WorkdirError, default_path, writing
from protojax import Dataset, Pretrained, learners, load_pretrained, photo_weights, pretrained, save_pretrained
from protojax.checkpoints import Checkpoints
from protojax.errors import WeightsError, first_line
from protojax.hub_weights import REPOSITORIES

STAGES = ('pretrain', 'search', 'train')


def run(config: Config, experiment: Experiment) -> dict[str, Any]:
    """Run or resume an experiment and return the contents of results.json."""
    started, flat = time.monotonic(), config.flat
    recipe = flat.get('recipe', '')
    if unused := [f'--{name}' for name in experiment.recipes.get(recipe, ()) if name not in flat]:
        _print(f'note: --recipe={recipe} sets {" ".join(unused)}, which this method or encoder does not have')
    for name in (config.run.weights, config.method.init):
        if name not in ('', *photo_weights.PACKAGED, *REPOSITORIES):
            pretrained.path(name)  # fail fast: loading the data can take minutes
    with progress.phase('loading the data'):
        data = experiment.load(config)
    splits = {'train': data.train, 'validation': data.validation, 'test': data.test}
    classes = {name: split.names for name, split in splits.items() if split is not None}
    sizes = ', '.join(f'{len(names)} {split} classes' for split, names in classes.items())
    _print(f'protojax on {data.title}: {sizes}')
    # Before the workdir is created: a configuration that does not match the data must not claim it.
    learner = methods.build(experiment.method(config.flat), config, data)
    configuration.check_sizes(config, data, zero_shot=learner.zero_shot, unlabeled=learner.unlabeled)
    devices = placement.devices_for(config, learner)
    connect(devices)
    workdir = Workdir(config.run.workdir or default_path(config, experiment, data), config, data.title)
    _print(f'{provenance.describe_devices(devices)}; workdir {workdir.path}')
    workdir.write_json('classes.json', classes)
    init = config.method.init
    origin = results.origin(load_pretrained(init)) if init else None  # now: the file may be deleted later
    job = Job(config, experiment, data, learner, devices, workdir, origin)
    try:
        if config.run.weights:
            return _evaluate_weights(job)
        if config.run.evaluate_only:
            return _evaluate(job, _restored(job), complete=(workdir.path / 'results.json').exists())
        with StopSignals() as stop:
            trained = _train(job._replace(stop=stop))
        return _evaluate(job, trained)
    finally:
        if not (config.run.evaluate_only or config.run.weights):
            workdir.add_seconds(time.monotonic() - started)


def _train(job: Job) -> fit.Model:
    """Run the stages of training.

    The search trains on the training classes and keeps the model with the lowest validation loss. With --retrain, the
    final model is trained from scratch on training and validation classes, for --episodes or, if this is 0, for the
    number of episodes that the search found. With --pretrain, both start from an encoder that was trained on
    mini-batches to classify all training classes.
    """
    config, data, training = job.config, job.data, job.config.training
    # No variable refers to placed data, so that the devices never hold the data of two stages at once.
    if length := config.method.pretrain:
        first_config, first = nearest.pretraining(config, data, job.learner.encoder)
        first_job = job._replace(config=first_config, learner=first)
        state = fit.stage(first_job, 'pretrain', job.placed(data.train, in_batches=True), episodes=length).state
        start = jax.device_get((state.params['encoder'], state.batch_stats))
        job = job._replace(learner=learners.started_from(job.learner, *start))
    episodes = training.episodes or (job.experiment.synthetic_episodes if data.synthetic else 0)
    place = partial(job.placed, in_batches=job.learner.in_batches)
    if not (training.retrain and episodes):
        score = evaluate.evaluators(config, job.learner, job.devices).validate
        validate = partial(score, dataset=job.placed(data.validation))
        search = fit.stage(job, 'search', place(data.train), validate=validate, episodes=episodes)
        if not training.retrain or config.run.evaluate_on == 'validation':
            return search.best
        found = max(int(search.best.step), 1) * training.episodes_per_step
        episodes = found if training.retrain_length == 'best' else int(search.state.step) * training.episodes_per_step
        _print(f'best checkpoint after {found} episodes; retraining on train+validation for {episodes}')
    return fit.stage(job, 'train', place(*_training_splits(job).values()), episodes=episodes).last


def _training_splits(job: Job) -> dict[str, Dataset]:
    """Return the splits that the final model is trained on."""
    both = job.config.training.retrain and job.config.run.evaluate_on == 'test'
    return {name: getattr(job.data, name) for name in ('train', *(['validation'] if both else []))}


def _restored(job: Job) -> fit.Model:
    """Return the model in the checkpoints of the workdir."""
    training, path = job.config.training, job.workdir.path
    template = fit.fresh(job.learner, fit.optimizer(training, training.episodes), jax.random.key(0))
    for stage in ('train', 'search'):
        found = Checkpoints(path / stage).restore(template) if (path / stage).exists() else None
        if found:
            return found[1].last if stage == 'train' else found[1].best
    raise WorkdirError(f'{path} contains no trained model; run without --evaluate_only first, or choose --workdir')


def _evaluate(job: Job, model: fit.Model, *, complete: bool = True, origin: dict | None = None) -> dict[str, Any]:
    """Compute the final table; write it if training is complete."""
    config, workdir, variables = job.config, job.workdir, (model.params, model.batch_stats)
    split = job.data.test if config.run.evaluate_on == 'test' else job.data.validation
    learner = config.method.tested(job.learner)
    evaluators = evaluate.evaluators(config, learner, job.devices)
    with progress.phase(f'evaluating: embedding {split.counts.sum():,} examples') as report:
        embedded = evaluators.embed(*variables, job.placed(split), report)
    scores = evaluators.test(*variables, embedded)
    about = {**job.experiment.details(config, job.data)}
    if model.step is not None:
        about['trained_episodes'] = int(model.step) * config.training.episodes_per_step
    found = results.of_run(config, job.data, scores, about, origin)
    _print(results.table(found, job.experiment.name))
    losses = [line['loss'] for line in metrics.read(workdir.path) if line['split'] == 'train']
    hint = 'choose other --weights' if origin else 'train longer or lower --learning_rate'
    for line in results.diagnosis(scores, losses, hint=hint):
        _print(line)
    if not complete:
        _print('Training is not complete, so results.json is not written.')
    elif workdir.writes:
        workdir.write_json('results.json', found)
        written = ['results.json']
        if origin is None:
            with writing(workdir.path / 'weights.safetensors'):
                _save_weights(job, model, found)
            written.append('weights.safetensors')
        if config.run.pictures == 'on':
            from experiments.drawing import run as pictures  # imported late: loads Matplotlib

            with progress.phase('drawing plots'):
                evaluated = split, embedded, learner, jax.device_get(variables), config.episodes
                written += pictures.draw(workdir, job.data.title, *evaluated, evaluate.keys(config)[1])
        _print(f'written to {workdir.path}:\n  {", ".join(written)}')
    return found


def _evaluate_weights(job: Job) -> dict[str, Any]:
    """Compute the final table of --weights."""
    name = job.config.run.weights
    if any((job.workdir.path / stage).exists() for stage in STAGES):
        raise WorkdirError(f'{job.workdir.path} contains another run; choose another --workdir for --weights')
    weights = load_pretrained(name, encoder=job.learner.encoder)
    origin = results.origin(weights)
    _print(f'weights trained with {results.as_flags(origin["config"])}')
    params = {'encoder': weights.params, 'classifier': weights.classifier}
    found = {'params': params, 'batch_stats': weights.batch_stats}
    expected = jax.eval_shape(job.learner.init, jax.random.key(0))
    try:
        pretrained.check_fit(found, dict(zip(found, expected, strict=True)))
    except ValueError as error:
        reason = first_line(error)
        raise WeightsError(f'--weights={name} do not match this method ({reason}); set their training flags') from error
    return _evaluate(job, fit.Model(None, None, params, weights.batch_stats), origin=origin)


def _save_weights(job: Job, model: fit.Model, found: dict[str, Any]) -> None:
    """Write all trained parameters to weights.safetensors."""
    encoder = job.config.method.with_temperature(job.learner.encoder)
    known = {name: len(split.names) for name, split in _training_splits(job).items()}
    description = {'results': found, 'trained_on': known}
    if job.started_from:
        description['started_from'] = job.started_from
    params, attribute_encoder = model.params, job.learner.attribute_encoder
    parts = (params['encoder'], model.batch_stats, description, attribute_encoder, params['classifier'])
    weights = Pretrained(encoder, *parts)
    save_pretrained(job.workdir.path / 'weights.safetensors', weights, job.data.item_shape)


def _print(line):
    if jax.process_index() == 0:
        print(line, flush=True)
