"""From a config and its data to a task of protojax."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from experiments.compared.clustering import clustering_task
from experiments.compared.compatibility import compatibility_task, structured_hinge, weighted_rank
from experiments.compared.context import in_context
from experiments.compared.decoupled import decoupled_classifier, decoupled_encoder
from experiments.compared.finetuning import fine_tuned
from experiments.compared.joint_embedding import joint_embedding_task
from experiments.compared.metalstm import metalstm_task
from experiments.compared.nearest import nearest_task
from experiments.compared.statistician import statistician_task
from experiments.running.choices import DISTANCES, ENCODERS
from experiments.running.config import PRETRAINING, PRETRAINING_BATCH, ConfigError
from experiments.running.own_images import load_weights_for_own_images
from experiments.running.results import results_origin
from protojax import classifiers
from protojax.augmentation import flip, jitter, mirror, shift
from protojax.encoders import LinearMap, encode
from protojax.pretrained import load_pretrained
from protojax.tasks import few_shot_task, task_started_from, zero_shot_task

METHOD = ('model', 'distance', 'context', 'embedding', 'prototypes_per_class')  # flags that weights are used with


def build_few_shot_task(config, data, encoder=None):
    """Episodes of classes with a few support examples each, or what another --model learns from -> Task.

    `encoder` stands in for what --encoder says.
    """
    if config.init:
        if encoder is not None:
            raise ConfigError(
                f'--init={config.init} brings its encoder, but this program has one of its own; leave it out'
            )
        return _build_started_task(config, data)
    check_few_shot_sizes(config, data)
    item_shape = data.train.items.shape[2:]
    sizes = {'way': config.way, 'shot': config.shot, 'query': config.query}
    if config.model == 'statistician':
        if item_shape[-1] != 1:
            raise ConfigError('--model=statistician draws in black and white: it is for Omniglot')
        return statistician_task(item_shape, way=config.way, items=config.shot + config.query)
    encoder = _build_for_this_machine(config, encoder or _build_few_shot_encoder(config, data, item_shape))
    if config.model == 'metalstm':
        return metalstm_task(encoder.clone(filters=32), item_shape, **sizes)
    if config.model == 'nearest':
        options = {'distance': DISTANCES[config.distance], 'augmentations': build_augmentations(config)}
        batch = config.way * (config.shot + config.query)
        return nearest_task(encoder, item_shape, _training_classes(data), batch=batch, **options)
    classify = _build_classifier(config, encoder)
    if config.context == 'fce':
        classify = in_context(classify)
    if config.embedding == 'separate':
        encoder, classify = decoupled_encoder(encoder), decoupled_classifier(classify)
    return few_shot_task(encoder, item_shape, classify=classify, augmentations=build_augmentations(config), **sizes)


def _build_started_task(config, data):
    """The task that starts from the weights of --init, with their encoder."""
    weights, item_shape = load_weights_for_own_images(config.init, flag='init'), data.train.items.shape[2:]
    encoder = weights.encoder.clone(item_shape=item_shape)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.encoder.item_shape, item_shape))
    if getattr(encoder, 'sphere', False) and theirs != ours:
        raise ConfigError(f'--init={config.init} holds the mean embedding of {theirs} images, but here they are {ours}')
    try:
        embed = partial(encode, encoder, weights.params, weights.batch_stats)
        dimensions = jax.eval_shape(embed, jax.ShapeDtypeStruct((1, *item_shape), jnp.uint8))[0].shape[1]
    except Exception:  # networks for other channels, or with too many layers for so small an image, fail in many ways
        dimensions = 0
    if not dimensions:
        raise ConfigError(f'--init={config.init} is of {theirs} images and cannot embed those of {ours}; give others')
    task = build_few_shot_task(dataclasses.replace(config, init=''), data, encoder)
    return task_started_from(task, weights.params, weights.batch_stats)


def build_pretraining(config, data, encoder):
    """How --pretrain trains an encoder before the first episode -> its Config, Task."""
    options = {'batch': PRETRAINING_BATCH, 'augmentations': build_augmentations(config)}
    task = nearest_task(encoder, data.train.items.shape[2:], _training_classes(data), **options)
    return dataclasses.replace(config, episodes=config.pretrain, clip_norm=0.0, **PRETRAINING), task


def _training_classes(data):
    """How many classes a training set may have at most: with --retrain those of validation too."""
    return sum(len(split.names) for split in (data.train, data.validation) if split is not None)


def _build_few_shot_encoder(config, data, item_shape):
    """What --encoder stands for, or the encoder of --weights."""
    if config.weights:
        return _weights_to_build_from(config, item_shape).encoder
    if min(item_shape[:2]) < 16:  # four blocks, each of which halves the image, would leave nothing of it
        raise ConfigError(f'images of {item_shape[0]}x{item_shape[1]} pixels are too small; 16x16 is the least')
    at_test = {'two_sided': config.two_sided, 'sphere': config.sphere}
    encoder = ENCODERS[config.encoder](config).clone(item_shape=item_shape, **at_test)
    if config.pixels == 'standardized':
        mean, std = _channel_statistics(data.train)
        encoder = encoder.clone(mean=tuple(map(float, mean)), std=tuple(map(float, std)))
    return encoder


def _build_for_this_machine(config, encoder):
    """The encoder with the type of its activations and the kernels that flags ask for."""
    if not hasattr(encoder, 'dtype') and config.precision != 'float32':
        raise ConfigError(
            f'--precision={config.precision}, but {type(encoder).__name__} has no field dtype; leave it out'
        )
    wanted = {'dtype': jnp.dtype(config.precision), 'kernels': config.kernels == 'auto'}
    return encoder.clone(**{name: value for name, value in wanted.items() if hasattr(encoder, name)})


def keeps_temperature(config, encoder):
    """Whether weights are saved with an encoder whose squared distances need no temperature any more."""
    return config.distance == 'euclidean' and config.context == 'none' and hasattr(encoder, 'scale')


def _build_classifier(config, encoder):
    """What --model and --distance stand for."""
    temperature = 1.0 if config.weights and keeps_temperature(config, encoder) else config.temperature
    if config.distance == 'diagonal':
        return classifiers.by_gaussians(temperature=temperature)
    distance = DISTANCES[config.distance]
    if config.model == 'matching':
        return classifiers.by_matching(distance, temperature=temperature)
    return classifiers.by_prototypes(distance, temperature=temperature, per_class=config.prototypes_per_class)


def build_tested_task(config, task):
    """The task as it is in the final table, where --finetune trains it further on each support set."""
    steps = getattr(config, 'finetune', 0)
    return fine_tuned(task, steps=steps, rate=config.finetune_rate) if steps else task


def build_augmentations(config):
    """What is done to the images of training episodes."""
    available = {
        mirror: config.mirror,
        flip: config.flip,
        partial(shift, pixels=config.shift): config.shift,
        partial(jitter, strength=config.jitter): config.jitter,
    }
    return [augmentation for augmentation, wanted in available.items() if wanted]


def _weights_to_build_from(config, item_shape):
    """The weights that a config names, if they are of images like those of the data -> Pretrained."""
    weights = load_pretrained(config.weights)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.description['item_shape'], item_shape))
    if theirs != ours:
        raise ConfigError(f'--weights={config.weights} are of {theirs} items, but here they are {ours}; give others')
    trained = results_origin(weights.description)['config']
    for name in METHOD:
        if hasattr(config, name) and trained.get(name, getattr(config, name)) != getattr(config, name):
            raise ConfigError(f'--weights={config.weights} were trained with --{name}={trained[name]}; give this flag')
    return weights


def _channel_statistics(split):
    """Mean and standard deviation of each channel over all images of a split, in units of x / 255: [C], [C]."""
    channels = split.items.shape[-1]
    histogram = np.zeros((channels, 256), np.int64)  # exact, and class by class: no copy of the images as numbers
    for items, images in zip(split.items, split.counts, strict=True):
        for channel in range(channels):
            histogram[channel] += np.bincount(items[:images, ..., channel].reshape(-1), minlength=256)
    values, weights = np.arange(256) / 255, histogram / histogram.sum(1, keepdims=True)
    mean = weights @ values
    return mean.astype(np.float32), np.sqrt(weights @ values**2 - mean**2).astype(np.float32)


def build_zero_shot_task(config, data):
    """Episodes of classes that are known by their attributes alone, or what another --model learns from -> Task."""
    _check_episodes(data.train, 'training', way=config.way, items={'query': config.query})
    items, counts, _, attributes = data.train
    features = items[np.arange(items.shape[1]) < counts[:, None]].reshape(-1, items.shape[-1])
    sizes = items.shape[2:], attributes.shape[1]
    options = config.center_inputs, config.scale_inputs
    scaling = [_center_and_scale(vectors, *options) for vectors in (features, attributes)]
    if config.model in ('ale', 'sje'):
        losses = structured_hinge if config.model == 'sje' else weighted_rank
        means = {'mean': scaling[0]['mean'], 'attribute_mean': scaling[1]['mean']}
        return compatibility_task(losses, *sizes, batch=config.query, **means)
    if config.model == 'clustering':
        options = {'dimensions': config.dimensions, 'attribute_mean': scaling[1]['mean'], **scaling[0]}
        return clustering_task(*sizes, _training_classes(data), batch=config.way * config.query, **options)
    maps = _build_zero_shot_maps(config, *sizes, *scaling)
    episode = {'way': config.way, 'query': config.query}
    if config.model in ('ds-sje', 'da-sje'):
        return joint_embedding_task(*maps, *sizes, symmetric=config.model == 'ds-sje', **episode)
    return zero_shot_task(*maps, *sizes, distance=DISTANCES[config.distance], **episode)


def _build_zero_shot_maps(config, item_shape, attributes, image_scaling, attribute_scaling):
    """The linear maps of images and of attributes, those of --weights where they are given."""
    if config.weights:
        weights = _weights_to_build_from(config, item_shape)
        theirs = getattr(weights.attribute_encoder, 'item_shape', None)
        if theirs != (attributes,):
            raise ConfigError(f'--weights={config.weights} know no classes by {attributes} attributes; give others')
        return weights.encoder, weights.attribute_encoder
    # Starts chosen on validation classes: a random map of images is noise in all logits, so it starts at zero. Of the
    # attributes' weights only the direction counts, so large ones learn slowly, which gave the lower validation loss.
    image_map = LinearMap(config.dimensions, **image_scaling, start=config.image_start)
    attribute_map = LinearMap(
        config.dimensions,
        **attribute_scaling,
        start=config.attribute_start,
        unit_length=config.unit_length,
        item_shape=(attributes,),
    )
    return image_map, attribute_map


def _center_and_scale(vectors, center, scale):
    """Mean, and root mean square of what is left, as options of LinearMap: [N, D] -> [D], [].

    One scale for all dimensions: that some vary more than others tells which of them matter.
    """
    mean = vectors.mean(0) if center else np.zeros(vectors.shape[1])
    left = vectors.var(0) if center else np.square(vectors).mean(0)
    size = float(np.sqrt(left.mean())) or 1.0
    return {'mean': tuple(map(float, mean)), 'scale': size if scale else 1.0}


def check_few_shot_sizes(config, data, unlabeled=0):
    """Raise where an episode asks for more classes, or more examples of a class, than there are."""
    check = partial(_check_episodes, unlabeled=unlabeled)
    check(data.train, 'training', way=config.way, items={'shot': config.shot, 'query': config.query})
    if not (config.retrain and (config.episodes or data.synthetic)):
        way, items = config.validation_way, {'shot': config.shot, 'test_query': config.test_query}
        check(data.validation, 'validation', way=way, items=items, way_flag='validation_way')
    final = data.test if config.evaluate_on == 'test' else data.validation
    items = {'test_shot': max(config.test_shot), 'test_query': config.test_query}
    check(final, config.evaluate_on, way=max(config.test_way), items=items, way_flag='test_way')


def _check_episodes(split, name, *, way, items, unlabeled=0, way_flag='way'):
    """Raise where a split has fewer than `way` classes, or a class fewer items than are asked for.

    items: {flag: number}; unlabeled: how many others the task takes of each class.
    """
    if split is None:
        raise ConfigError(f'there are no {name} classes in these data; prepare them from a --source that has them')
    if way > len(split.names):
        raise ConfigError(f'--{way_flag}={way}, but there are {len(split.names)} {name} classes; lower --{way_flag}')
    smallest = int(split.counts.argmin())
    there, wanted = int(split.counts[smallest]), sum(items.values()) + unlabeled
    if wanted > there:
        # Lowering one flag is enough where it leaves at least one item.
        enough = [f'--{flag}' for flag, number in items.items() if number > wanted - there]
        advice = ' or '.join(enough[::-1]) or ' and '.join(f'--{flag}' for flag in items)
        asked = ' + '.join(f'--{flag}={number}' for flag, number in items.items())
        asked += f' + {unlabeled} unlabeled' if unlabeled else ''
        raise ConfigError(
            f'{asked} is {wanted}, but the {name} class {split.names[smallest]} has {there} items; lower {advice}'
        )
