"""What the driver works with: a task of protojax with the devices that share it and the scores that are reported."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.running.config import ConfigError
from protojax.augmentation import mirror, shift
from protojax.devices import usable_devices
from protojax.encoders import Conv4, LinearMap
from protojax.encoders.conv4 import scale_embeddings
from protojax.evaluation import embedder, episode_scorer, statistics_pass, zero_shot_scorer
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained
from protojax.tasks import Task, few_shot_task, zero_shot_task


def no_weights():
    raise ConfigError('--weights are of a few-shot encoder alone; here more is learned than that')


class Problem(NamedTuple):
    """A task, its devices, and its two evaluations."""

    task: Task
    devices: list
    settled: Callable[..., Any]  # TrainState, training Dataset -> params and batch_stats to evaluate
    validate: Callable[..., Any]  # params, batch_stats, Dataset -> Score
    test: Callable[..., Any]  # params, batch_stats, Dataset -> {setting: Score}
    load: Callable[..., Any] = no_weights  # what --weights names -> (params, batch_stats), description
    save: Callable[..., Any] | None = None  # file, params, batch_stats, description


def few_shot_problem(config, data, *, mean=(0.0,), std=(1.0,)):
    """Episodes of classes with a few support examples each -> Problem."""
    check_few_shot_sizes(config, data)
    weights = fitting_weights(config, data) if config.weights else None
    encoder = weights.encoder if weights else Conv4(mean=mean, std=std)
    encoder = encoder.clone(
        kernel_init=config.kernel_init,
        scale_init=config.scale_init,
        kernels=config.kernels == 'auto',
        dtype=jnp.dtype(config.precision),
    )
    task = few_shot_task(
        encoder,
        data.train.items.shape[2:],
        way=config.way,
        shot=config.shot,
        query=config.query,
        model=config.model,
        distance=config.distance,
        temperature=config.temperature,
        per_class=config.prototypes_per_class,
        changes=training_changes(config),
    )
    devices = shared_by(config, config.way * (config.shot + config.query))
    embed = embedder(task.embed, devices)
    scorer = partial(episode_scorer, task.classify, devices, query=config.test_query)
    score_validation = scorer(way=config.validation_way, shot=config.shot, episodes=config.validation_episodes)
    validation_key, test_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))

    measure_statistics = statistics_pass(task.statistics, devices)

    def settled(state, dataset):
        if config.test_statistics == 'running':
            return state.average, state.batch_stats
        return state.average, measure_statistics(state.average, state.batch_stats, dataset)

    def validate(params, batch_stats, dataset):
        return score_validation(params, embed(params, batch_stats, dataset), validation_key)

    def test(params, batch_stats, dataset):
        embedded = embed(params, batch_stats, dataset)
        scores = {}
        for way, shot in itertools.product(config.test_way, config.test_shot):
            score = scorer(way=way, shot=shot, episodes=config.test_episodes)
            scores[f'{way}-way {shot}-shot'] = score(params, embedded, test_key)
        return scores

    # Embeddings by weights from a file are such that their squared distances need no temperature.
    shrink = config.temperature**-0.5 if config.distance == 'euclidean' else 1.0

    def load():
        params = {'encoder': scale_embeddings(weights.params, 1 / shrink), 'distance': {}}
        return (params, weights.batch_stats), weights.description

    def save(path, params, batch_stats, description):
        weights = Pretrained(encoder, scale_embeddings(params['encoder'], shrink), batch_stats, description)
        save_pretrained(path, weights, data.train.items.shape[2:])

    learns_distance = config.distance in ('mahalanobis', 'diagonal')  # then the encoder is not all that was learned
    return Problem(task, devices, settled, validate, test, *(() if learns_distance else (load, save)))


def fitting_weights(config, data):
    """The weights that a config names, if they are of images like those of the data."""
    weights = load_pretrained(config.weights)
    theirs, ours = ('x'.join(map(str, s)) for s in (weights.description['item_shape'], data.train.items.shape[2:]))
    if theirs != ours:
        raise ConfigError(f'--weights={config.weights} are of {theirs} images, but here they are {ours}; give others')
    return weights


def training_changes(config):
    """What is done to the images of training episodes."""
    changes = []
    if config.mirror:
        changes.append(mirror)
    if config.shift:
        changes.append(partial(shift, pixels=config.shift))
    return changes


def zero_shot_problem(config, data):
    """Episodes of classes that are known by their attributes alone -> Problem."""
    check_episodes(data.train, 'training', way=config.way, items=config.query, flags=('way', 'query'))
    items, counts, _, attributes = data.train
    features = items[np.arange(items.shape[1]) < counts[:, None]].reshape(-1, items.shape[-1])
    # Starts chosen on validation classes: a random map of images is noise in all logits, so it starts at zero. Of the
    # attributes' weights only the direction counts, so large ones learn slowly, which gave the lower validation loss.
    image_map = LinearMap(config.dimensions, **centre_and_scale(features), start=0.0)
    attribute_map = LinearMap(config.dimensions, **centre_and_scale(attributes), start=10.0, unit_length=True)
    item_shape, attributes = items.shape[2:], attributes.shape[1]
    task = zero_shot_task(image_map, attribute_map, item_shape, attributes, way=config.way, query=config.query)
    devices = shared_by(config, config.way * config.query)
    embed = embedder(task.embed, devices)
    score = zero_shot_scorer(task.classify, devices)

    def test(params, batch_stats, dataset):
        per_image, per_class = score(params, embed(params, batch_stats, dataset))
        way = dataset.counts.shape[0]
        return {f'{way}-way per image': per_image, f'{way}-way per class': per_class}

    def validate(params, batch_stats, dataset):
        return next(iter(test(params, batch_stats, dataset).values()))

    return Problem(task, devices, lambda state, dataset: (state.average, state.batch_stats), validate, test)


def centre_and_scale(vectors):
    """Mean, and root mean square of what is left, as options of LinearMap: [N, D] -> [D], [].

    One scale for all dimensions: that some vary more than others tells which of them matter.
    """
    return {'mean': tuple(map(float, vectors.mean(0))), 'scale': float(np.sqrt(vectors.var(0).mean())) or 1.0}


def shared_by(config, items):
    """The devices for episodes of that many items."""
    try:
        return usable_devices(items if config.episodes_per_step == 1 else config.episodes_per_step)
    except ValueError as error:
        raise ConfigError(f'{error}; change --way, --shot, --query or --episodes_per_step') from error


def check_few_shot_sizes(config, data):
    """Raise where an episode asks for more classes, or more examples of a class, than there are."""
    check_episodes(data.train, 'training', way=config.way, items=config.shot + config.query, flags=('way', 'query'))
    if not (config.retrain and (config.episodes or data.synthetic)):
        items, flags = config.shot + config.test_query, ('validation_way', 'test_query')
        check_episodes(data.validation, 'validation', way=config.validation_way, items=items, flags=flags)
    final = data.test if config.evaluate_on == 'test' else data.validation
    items = max(config.test_shot) + config.test_query
    check_episodes(final, config.evaluate_on, way=max(config.test_way), items=items, flags=('test_way', 'test_query'))


def check_episodes(split, name, *, way, items, flags):
    """Raise where a split has fewer than `way` classes or a class of fewer than `items`, naming the flags to lower."""
    if split is None:
        raise ConfigError(f'there are no {name} classes in these data; prepare them from a --source that has them')
    if way > len(split.names):
        raise ConfigError(f'--{flags[0]}={way}, but there are {len(split.names)} {name} classes; lower --{flags[0]}')
    smallest = int(split.counts.argmin())
    if items > split.counts[smallest]:
        raise ConfigError(
            f'shot + query = {items}, but the {name} class {split.names[smallest]} has {split.counts[smallest]} items; '
            f'lower --{flags[1]}'
        )
