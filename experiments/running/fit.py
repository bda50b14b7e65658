"""The training loop: from initial parameters or a checkpoint to the end of one stage."""

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.running.config import OPTIMIZERS, Config, Experiment, Training
from experiments.running.metrics import Writer
from experiments.running.placement import placed
from experiments.running.progress import bar, phase
from experiments.running.workdir import Workdir
from protojax import Dataset, Learner, Splits, TrainState, create_state, hosted, parallelize, place, train_step
from protojax.checkpoints import Checkpoints
from protojax.training import STEPS_AHEAD, train_steps


class Model(NamedTuple):
    """A model in training."""

    loss: Any  # float32 [], on the validation classes; minus the accuracy for learners `by_accuracy`
    step: Any  # int32 [], number of updates
    params: Any
    batch_stats: Any


class Fit(NamedTuple):
    """State of a stage, the contents of a checkpoint."""

    state: TrainState
    best: Model  # model with the lowest validation loss

    @property
    def last(self) -> Model:
        """Return the model after the last update."""
        return Model(None, self.state.step, self.state.average, self.state.batch_stats)


class Job(NamedTuple):
    """A run in progress."""

    config: Config
    experiment: Experiment
    data: Splits
    learner: Learner
    devices: Sequence[jax.Device]
    workdir: Workdir
    started_from: dict | None = None  # origin of the weights of --init
    stop: Callable[[], bool] = lambda: False  # whether to save a checkpoint and raise Interrupted

    def placed(self, *splits: Dataset, in_batches: bool = False) -> Dataset:
        """Concatenate splits in the memory that --placement selects."""
        return placed(self.config.run.placement, self.devices, *splits, in_batches=in_batches)


class Interrupted(Exception):
    """Training was asked to stop; a checkpoint has been saved."""


class Diverged(RuntimeError):
    """The loss is not finite."""


def stage(job: Job, name: str, dataset: Dataset, *, episodes: int, validate: Callable[..., Any] | None = None) -> Fit:
    """Train for a number of episodes, or until the validation loss has not improved for --patience validations.

    Resumes from the newest checkpoint of the stage.

    Args:
        job: Learner to train, with configuration, devices and workdir.
        name: 'pretrain', 'search' or 'train', also the folder of the checkpoints.
        dataset: Training classes, on the devices or on the host.
        episodes: Number of training episodes; 0 = no limit.
        validate: Returns the validation Score of params and batch_stats.
    """
    config, learner, workdir, training = job.config, job.learner, job.workdir, job.config.training
    patience, per_step = training.patience * training.validate_every, training.episodes_per_step
    init_key, episode_key = jax.random.split(jax.random.key(config.run.seed))
    checkpoints = Checkpoints(workdir.path / name)
    title = 'train' if name == 'search' and not training.retrain else name
    with phase(f'{title}: preparing'):
        initial = fresh(learner, optimizer(training, episodes), init_key)
        step, (state, best) = checkpoints.restore(initial) or (0, initial)
        state = place(state, job.devices)
        saved, metrics = step, Writer(workdir, name, step * per_step)
    note, feed = '', itertools.repeat(dataset)
    advance, rate = stepper(training, learner.loss, job.devices, episodes), schedule(training, episodes)
    if not isinstance(dataset.items, jax.Array):
        sizes = {'way': config.episodes.way, 'items': config.episodes.per_class + learner.unlabeled}
        feed = hosted.episodes(dataset, episode_key, step, **sizes, per_step=per_step)

    def due(interval):
        return step % (interval // per_step) == 0

    def finished():
        exhausted = validate is not None and (step - int(best.step)) * per_step >= patience
        return exhausted or (episodes and step * per_step >= episodes)

    with contextlib.closing(metrics), bar(title, episodes, done=step * per_step, postfix='compiling') as shown:
        while not finished():
            state, step = advance(state, step, next(feed), episode_key)
            if due(training.log_every):
                means = {key: float(total) * per_step / training.log_every for key, total in state.totals.items()}
                _check_finite(state, name, per_step, saved)
                metrics.write(step * per_step, 'train', **means, learning_rate=float(rate(step - 1)))
                note = f'loss {means["loss"]:.4f}, {100 * means["accuracy"]:.1f} % correct'
            if validate is not None and due(training.validate_every):
                variables = state.average, state.batch_stats
                shown.set_postfix_str('validating', refresh=False)
                score = validate(*variables)
                metrics.write(step * per_step, 'validation', loss=score.loss, accuracy=score.accuracy / 100)
                value = -score.accuracy if learner.by_accuracy else score.loss
                if value < best.loss:
                    best = Model(jnp.float32(value), jnp.int32(step), *jax.device_get(variables))
            shown.set_postfix_str(note, refresh=False)
            shown.total = episodes or int(best.step) * per_step + patience
            shown.update(step * per_step - shown.n)
            # Processes must agree on when to stop, so they only ask each other from time to time.
            asked = (jax.process_count() == 1 or due(training.log_every)) and job.stop()
            if asked or finished() or due(training.checkpoint_every):
                _check_finite(state, name, per_step, saved)
                checkpoints.save(step, Fit(state, best))
                saved = step
            if asked and not finished():
                raise Interrupted(f'stopped at episode {step * per_step}; rerun the same command to resume')
    checkpoints.close()
    return Fit(state, best)


def fresh(learner: Learner, optimizer: optax.GradientTransformation, key: jax.Array) -> Fit:
    """Return the state at the start of a stage."""
    params, batch_stats = learner.init(key)
    best = Model(jnp.float32(jnp.inf), jnp.int32(0), params, batch_stats)
    return Fit(create_state(params, batch_stats, optimizer, learner.metrics), best)


def schedule(training: Training, episodes: int) -> optax.Schedule:
    """Return the learning rate as a function of the step."""
    rate, per_step = training.learning_rate, training.episodes_per_step
    if training.schedule == 'cosine':
        return optax.cosine_decay_schedule(rate, max(episodes // per_step, 1))
    if training.halve_every:
        return optax.exponential_decay(rate, training.halve_every // per_step, 0.5, staircase=True)
    return optax.constant_schedule(rate)


def optimizer(training: Training, episodes: int) -> optax.GradientTransformation:
    """Return the optimizer with its learning rate, weight decay and clipping."""
    clip = [optax.clip_by_global_norm(training.clip_norm)] if training.clip_norm else []
    steps = OPTIMIZERS[training.optimizer](schedule(training, episodes))
    return optax.chain(*clip, optax.add_decayed_weights(training.weight_decay), steps)


def stepper(training: Training, loss: Callable, devices: Sequence[jax.Device], episodes: int) -> Callable:
    """Make a function state, step, dataset, key -> state, step; on GPU and TPU it takes several steps at once."""
    per_step = training.episodes_per_step
    at_once = math.gcd(training.log_every, training.validate_every, training.checkpoint_every) // per_step
    options = {
        'loss': loss,
        'optimizer': optimizer(training, episodes),
        'episodes': per_step,
        'report_every': training.log_every // per_step,
        'average_decay': training.average_decay,
    }
    one = parallelize(partial(train_step, **options), devices, donate=True)
    many = parallelize(partial(train_steps, steps=at_once, **options), devices, donate=True)

    def advance(state, step, dataset, key):
        # Only multiples of at_once, so that no interval ends between two dispatches.
        many_fit = devices[0].platform != 'cpu' and isinstance(dataset, Dataset) and step % at_once == 0
        if many_fit and (not episodes or step + at_once <= episodes // per_step):
            return many(state, dataset, key), step + at_once
        state = one(state, dataset, key)
        if step % STEPS_AHEAD == 0:
            jax.block_until_ready(state.step)
        return state, step + 1

    return advance


def _check_finite(state, name, per_step, saved):
    failed = int(state.failed_at)
    if failed >= 0:
        hint = 'remove --pretrain' if name == 'pretrain' else 'check the data or lower --learning_rate'
        last = f'the last valid checkpoint is of episode {saved * per_step}'
        raise Diverged(f'the loss of episode {failed * per_step} is not finite; {hint} ({last})')
