"""From a config and its data to a task of protojax: what the names that flags take stand for."""

from functools import partial

import jax.numpy as jnp
import numpy as np

from experiments.running.config import ConfigError
from protojax import classifiers, distances
from protojax.augmentation import flip, jitter, mirror, shift
from protojax.devices import usable_devices
from protojax.encoders import Conv4, LinearMap, ResNet12
from protojax.pretrained import load_pretrained
from protojax.tasks import few_shot_task, zero_shot_task

ENCODERS = {
    'conv4': lambda config: Conv4(
        kernel_init=config.kernel_init, scale_init=config.scale_init, kernels=config.kernels == 'auto'
    ),
    'resnet12': lambda config: ResNet12(),
    'resnet12-wide': lambda config: ResNet12(widths=(64, 160, 320, 640)),
}
DISTANCES = {
    'euclidean': distances.squared_euclidean,
    'cosine': distances.cosine,
    'mahalanobis': distances.learned_mahalanobis(),
}


def build_few_shot_task(config, data):
    """Episodes of classes with a few support examples each -> Task."""
    check_few_shot_sizes(config, data)
    item_shape = data.train.items.shape[2:]
    if config.weights:
        encoder = matching_weights(config, item_shape).encoder
    else:
        encoder = ENCODERS[config.encoder](config).clone(item_shape=item_shape)
        if config.pixels == 'standardized':
            mean, std = channel_statistics(data.train)
            encoder = encoder.clone(mean=tuple(map(float, mean)), std=tuple(map(float, std)))
    return few_shot_task(
        encoder.clone(dtype=jnp.dtype(config.precision)),
        item_shape,
        way=config.way,
        shot=config.shot,
        query=config.query,
        classify=classifier(config),
        augmentations=augmentations(config),
    )


def classifier(config):
    """What --model and --distance stand for."""
    # Embeddings by weights from a file are such that their squared distances need no temperature.
    temperature = 1.0 if config.weights and config.distance == 'euclidean' else config.temperature
    if config.distance == 'diagonal':
        return classifiers.by_gaussians(temperature=temperature)
    distance = DISTANCES[config.distance]
    if config.model == 'matching':
        return classifiers.by_matching(distance, temperature=temperature)
    return classifiers.by_prototypes(distance, temperature=temperature, per_class=config.prototypes_per_class)


def augmentations(config):
    """What is done to the images of training episodes."""
    available = {
        mirror: config.mirror,
        flip: config.flip,
        partial(shift, pixels=config.shift): config.shift,
        partial(jitter, strength=config.jitter): config.jitter,
    }
    return [augmentation for augmentation, wanted in available.items() if wanted]


def matching_weights(config, item_shape):
    """The weights that a config names, if they are of images like those of the data -> Pretrained."""
    weights = load_pretrained(config.weights)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.description['item_shape'], item_shape))
    if theirs != ours:
        raise ConfigError(f'--weights={config.weights} are of {theirs} items, but here they are {ours}; give others')
    return weights


def channel_statistics(split):
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
    """Episodes of classes that are known by their attributes alone -> Task."""
    check_episodes(data.train, 'training', way=config.way, items={'query': config.query})
    items, counts, _, attributes = data.train
    features = items[np.arange(items.shape[1]) < counts[:, None]].reshape(-1, items.shape[-1])
    item_shape, size = items.shape[2:], attributes.shape[1]
    # Starts chosen on validation classes: a random map of images is noise in all logits, so it starts at zero. Of the
    # attributes' weights only the direction counts, so large ones learn slowly, which gave the lower validation loss.
    image_map = LinearMap(config.dimensions, **center_and_scale(features), start=0.0)
    attribute_map = LinearMap(
        config.dimensions, **center_and_scale(attributes), start=10.0, unit_length=True, item_shape=(size,)
    )
    if config.weights:
        weights = matching_weights(config, item_shape)
        image_map, attribute_map = weights.encoder, weights.attribute_encoder
    return zero_shot_task(image_map, attribute_map, item_shape, size, way=config.way, query=config.query)


def center_and_scale(vectors):
    """Mean, and root mean square of what is left, as options of LinearMap: [N, D] -> [D], [].

    One scale for all dimensions: that some vary more than others tells which of them matter.
    """
    return {'mean': tuple(map(float, vectors.mean(0))), 'scale': float(np.sqrt(vectors.var(0).mean())) or 1.0}


def devices_for(config):
    """The devices that share the work of a step."""
    items = config.way * config.items_per_class
    try:
        return usable_devices(items if config.episodes_per_step == 1 else config.episodes_per_step)
    except ValueError as error:
        raise ConfigError(f'{error}; change --way, --shot, --query or --episodes_per_step') from error


def check_few_shot_sizes(config, data):
    """Raise where an episode asks for more classes, or more examples of a class, than there are."""
    check_episodes(data.train, 'training', way=config.way, items={'shot': config.shot, 'query': config.query})
    if not (config.retrain and (config.episodes or data.synthetic)):
        items = {'shot': config.shot, 'test_query': config.test_query}
        check_episodes(data.validation, 'validation', way=config.validation_way, items=items, way_flag='validation_way')
    final = data.test if config.evaluate_on == 'test' else data.validation
    items = {'test_shot': max(config.test_shot), 'test_query': config.test_query}
    check_episodes(final, config.evaluate_on, way=max(config.test_way), items=items, way_flag='test_way')


def check_episodes(split, name, *, way, items, way_flag='way'):
    """Raise where a split has fewer than `way` classes, or a class fewer items than are asked for: {flag: number}."""
    if split is None:
        raise ConfigError(f'there are no {name} classes in these data; prepare them from a --source that has them')
    if way > len(split.names):
        raise ConfigError(f'--{way_flag}={way}, but there are {len(split.names)} {name} classes; lower --{way_flag}')
    smallest = int(split.counts.argmin())
    there, wanted = int(split.counts[smallest]), sum(items.values())
    if wanted > there:
        # Lowering one flag is enough where it leaves at least one item.
        enough = [f'--{flag}' for flag, number in items.items() if number > wanted - there]
        advice = ' or '.join(enough[::-1]) or ' and '.join(f'--{flag}' for flag in items)
        asked = ' + '.join(f'--{flag}={number}' for flag, number in items.items())
        raise ConfigError(
            f'{asked} is {wanted}, but the {name} class {split.names[smallest]} has {there} items; lower {advice}'
        )
