"""Prototypical networks for zero-shot learning: prototypes are embedded class attributes (section 2.7).

python -m experiments.cub
"""

from typing import Any

import numpy as np

from experiments.methods import encoders
from experiments.methods.options import DISTANCES, Config, ConfigError, Method, MethodOptions, option
from protojax import Learner, LinearMap, Splits, zero_shot_learner
from protojax.distances import Distance
from protojax.encoders.linear import rooted


class Centered(MethodOptions):
    """Inputs"""

    center_inputs: bool = option(True, 'Subtract the mean over the training classes from features and attributes.')


class Scaled(Centered):
    """Inputs"""

    scale_inputs: bool = option(True, 'Divide features and attributes by their root mean square, one number for each.')
    dimensions: int = option(LinearMap.dimensions, 'Dimensions of the embedding space.', minimum=1)


class Maps(Scaled):
    """Linear maps of images and attributes"""

    unit_length: bool = option(True, 'Scale prototypes to unit norm, as in the paper.')
    image_start: float = option(0.0, 'Initial standard deviation of the image projection times sqrt(fan_in).')
    attribute_start: float = option(10.0, 'Initial standard deviation of the attribute projection times sqrt(fan_in).')
    root: bool = option(False, 'Replace image features by their square roots, scaled to unit norm. Paper: no.')
    ridge: float = option(0.0, 'Whiten image features with this ridge; 0 disables. Paper: 0.', minimum=0)


class Options(Maps):
    """Prototypical networks"""

    distance: str = option('euclidean', 'Distance; euclidean is squared.', choices=('euclidean', 'cosine'))


def build(config: Config, data: Splits, encoder: None) -> Learner:
    return learner(config, data, DISTANCES[config.method.distance])


METHOD = Method(build, Options)


def shapes(data: Splits) -> tuple[tuple[int, ...], int]:
    """Return the shape of an item and the number of attributes."""
    return data.item_shape, data.train.attributes.shape[1]


def learner(config: Config, data: Splits, distance: Distance) -> Learner:
    """Build the learner of two linear maps, of images and of attributes; with --weights, of trained maps."""
    options, (item_shape, attributes) = config.method, shapes(data)
    if config.run.weights:
        weights = encoders.to_evaluate(config.run.weights, config.flat, data)
        maps = weights.encoder, weights.attribute_encoder
        if getattr(maps[1], 'item_shape', None) != (attributes,):
            raise ConfigError(
                f'--weights={config.run.weights}: expected weights for {attributes} attributes; choose other weights'
            )
        return zero_shot_learner(*maps, item_shape, attributes, **config.episodes.sizes, distance=distance)
    images, classes = scaling(data, center=options.center_inputs, scale=options.scale_inputs, root=options.root)
    # Chosen on validation classes. A random projection of images is noise in all logits, so it starts at zero. Only the
    # direction of attribute embeddings matters, so large weights learn slowly, which gave the lower validation loss.
    images |= {'start': options.image_start, 'root': options.root, 'whitened': options.ridge > 0}
    classes |= {'start': options.attribute_start, 'unit_length': options.unit_length, 'item_shape': (attributes,)}
    maps = LinearMap(options.dimensions, **images), LinearMap(options.dimensions, **classes)
    built = zero_shot_learner(*maps, item_shape, attributes, **config.episodes.sizes, distance=distance)
    if not options.ridge:
        return built
    statistics = {'whitening': _whitening(_features(data, options.root), options.ridge)}
    return built._replace(init=lambda key: (built.init(key)[0], statistics))


def scaling(data: Splits, *, center: bool = True, scale: bool = True, root: bool = False) -> list[dict[str, Any]]:
    """Compute mean and scale of features and of attributes over the training classes, as options of LinearMap."""
    return [_mean_and_scale(vectors, center, scale) for vectors in (_features(data, root), data.train.attributes)]


def _features(data, root):
    """Return the features of all training images and crops: [N, D]."""
    train = data.train
    features = train.items[np.arange(train.items.shape[1]) < train.counts[:, None]].reshape(-1, train.items.shape[-1])
    return np.asarray(rooted(features)) if root else features


def _whitening(features, ridge):
    """Compute a matrix that turns principal components of variance v into v / (v + ridge) times a constant: -> [D, D].

    Variances are in units of their mean, before and after.
    """
    variances, directions = np.linalg.eigh(np.cov(features.T))
    variances = np.maximum(variances / variances.mean(), 0)
    gains = (variances + ridge) ** -0.5
    gains /= np.sqrt(np.mean(variances * gains**2))
    return np.float32((directions * gains) @ directions.T)


def _mean_and_scale(vectors, center, scale):
    """Compute the mean and the root mean square of the remainder: [N, D] -> [D], [].

    One scale for all dimensions: how much a dimension varies is information.
    """
    mean = vectors.mean(0) if center else np.zeros(vectors.shape[1])
    remainder = vectors.var(0) if center else np.square(vectors).mean(0)
    size = float(np.sqrt(remainder.mean())) or 1.0
    return {'mean': tuple(map(float, mean)), 'scale': size if scale else 1.0}
