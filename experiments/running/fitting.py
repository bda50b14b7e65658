"""The training loop: from a fresh state or a checkpoint to the end of one stage."""

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.running.choices import OPTIMIZERS
from experiments.running.progress import Progress, phase
from experiments.running.workdir import WorkdirMetrics
from protojax.checkpoints import Checkpoints
from protojax.devices import parallelize, place
from protojax.episodes import Dataset
from protojax.hosted import hosted_episodes
from protojax.training import STEPS_AHEAD, TrainState, create_state, train_step, train_steps


class _Best(NamedTuple):
    """The state with the least validation loss so far."""

    loss: Any  # float32 []
    step: Any  # int32 []
    params: Any
    batch_stats: Any


class _Fit(NamedTuple):
    """All that a stage must know to go on: what a checkpoint holds."""

    state: TrainState
    best: _Best


class FittingInterrupted(Exception):
    """The user or the machine asked to stop; a checkpoint has been saved."""


class FittingDiverged(RuntimeError):
    """The loss is not a finite number any more."""


def fit_stage(config, task, dataset, validation=None, *, validate=None, stage, episodes, devices, workdir, stop):
    """Train for some episodes (0: no limit), or until the loss on `validation` has not improved for long.

    Goes on from the newest checkpoint of the stage. `stop()` says whether to save and raise FittingInterrupted.
    """
    per_step, patience = config.episodes_per_step, config.patience * config.validate_every
    init_key, episode_key = jax.random.split(jax.random.key(config.seed))
    learning_rate, optimizer = fitting_schedule(config, episodes), fitting_optimizer(config, episodes)
    checkpoints = Checkpoints(workdir.path / stage)
    with phase(f'{stage}: preparing'):
        fresh = fresh_fit(task, optimizer, init_key)
        step, (state, best) = checkpoints.restore(fresh) or (0, fresh)
        state = place(state, devices)
        saved, metrics = step, WorkdirMetrics(workdir, stage, step * per_step)
    advance = fitting_stepper(config, task.loss, optimizer, devices)

    feed = itertools.repeat(dataset)
    if not isinstance(dataset.items, jax.Array):
        sizes = {'way': config.way, 'items': config.items_per_class + task.unlabeled, 'per_step': per_step}
        feed = hosted_episodes(dataset, episode_key, step, **sizes)

    def due(interval):
        return step % (interval // per_step) == 0

    def finished():
        exhausted = validation is not None and (step - int(best.step)) * per_step >= patience
        return exhausted or (episodes and step * per_step >= episodes)

    with Progress(stage, episodes, done=step * per_step, quiet=not workdir.writes) as bar:
        while not finished():
            state, step = advance(state, step, episodes, next(feed), episode_key)
            if due(config.log_every):
                means = {name: float(total) * per_step / config.log_every for name, total in state.totals.items()}
                _check_finite(state, stage, per_step, saved)
                metrics.write(step * per_step, 'train', **means, learning_rate=float(learning_rate(step - 1)))
                bar.note = f'loss {means["loss"]:.4f}, {100 * means["accuracy"]:.1f} % right'
            if validation is not None and due(config.validate_every):
                variables = state.average, state.batch_stats
                with bar.phase('validating'):
                    score = validate(*variables, validation)
                metrics.write(step * per_step, 'validation', loss=score.loss, accuracy=score.accuracy / 100)
                if score.loss < best.loss:
                    best = _Best(jnp.float32(score.loss), jnp.int32(step), *jax.device_get(variables))
            bar.update(step * per_step, episodes or int(best.step) * per_step + patience)
            # Processes of one job must agree on when to stop, so they ask each other only now and then.
            asked = (jax.process_count() == 1 or due(config.log_every)) and stop()
            if asked or finished() or due(config.checkpoint_every):
                _check_finite(state, stage, per_step, saved)
                checkpoints.save(step, _Fit(state, best))
                saved = step
            if asked and not finished():
                raise FittingInterrupted(f'stopped at episode {step * per_step}; the same command goes on from there')
    metrics.close()
    checkpoints.close()
    return _Fit(state, best)


def fresh_fit(task, optimizer, key):
    """Where a stage begins."""
    params, batch_stats = task.initialize(key)
    best = _Best(jnp.float32(jnp.inf), jnp.int32(0), params, batch_stats)
    return _Fit(create_state(params, batch_stats, optimizer), best)


def fitting_schedule(config, episodes):
    """The learning rate by step: halved every so many episodes, or falling to zero along a cosine over all of them."""
    rate = config.learning_rate
    if config.schedule == 'cosine':
        return optax.cosine_decay_schedule(rate, max(episodes // config.episodes_per_step, 1))
    if config.halve_every:
        return optax.exponential_decay(rate, config.halve_every // config.episodes_per_step, 0.5, staircase=True)
    return optax.constant_schedule(rate)


def fitting_optimizer(config, episodes):
    """The optimizer of a config, with that learning rate."""
    clip = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    steps = OPTIMIZERS[config.optimizer](fitting_schedule(config, episodes))
    return optax.chain(*clip, optax.add_decayed_weights(config.weight_decay), steps)


def fitting_stepper(config, loss, optimizer, devices):
    """A function that takes a state some steps further, as many at once as suits the platform."""
    per_step = config.episodes_per_step
    intervals = (config.log_every, config.validate_every, config.checkpoint_every)
    at_once = math.gcd(*intervals) // per_step
    options = {
        'loss': loss,
        'optimizer': optimizer,
        'episodes': per_step,
        'report_every': config.log_every // per_step,
        'average_decay': config.average_decay,
    }
    one = parallelize(partial(train_step, **options), devices, donate=True)
    many = parallelize(partial(train_steps, steps=at_once, **options), devices, donate=True)

    def advance(state, step, episodes, dataset, key):
        many_fit = devices[0].platform != 'cpu' and isinstance(dataset, Dataset)
        many_fit = many_fit and step % at_once == 0  # so that no interval ends between two dispatches
        if many_fit and (not episodes or step + at_once <= episodes // per_step):
            return many(state, dataset, key), step + at_once
        state = one(state, dataset, key)
        if step % STEPS_AHEAD == 0:
            jax.block_until_ready(state.step)
        return state, step + 1

    return advance


def _check_finite(state, stage, per_step, saved):
    failed = int(state.failed_at)
    if failed >= 0:
        remedy = 'leave out --pretrain' if stage == 'pretrain' else 'lower --learning_rate'
        raise FittingDiverged(
            f'the loss of episode {failed * per_step} is not finite; {remedy}. '
            f'The last good checkpoint is that of episode {saved * per_step}'
        )
