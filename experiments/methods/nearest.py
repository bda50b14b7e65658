"""Nearest neighbours on the features of a classifier, the baseline of Ravi and Larochelle (2017).

The encoder learns with a linear layer to classify all training classes, on mini-batches instead of episodes. At test
time the layer is dropped, and a query gets the label of the nearest support example.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from optax import softmax_cross_entropy_with_integer_labels as cross_entropy

from experiments.methods import batches, encoders
from experiments.methods.options import DISTANCES, Augmented, Config, ConfigError, Method, option
from protojax import Episode, Learner, Splits, few_shot_learner
from protojax.augmentation import Augmentation
from protojax.distances import Distance, Parametric, cosine, pairwise

# Settings of --pretrain.
PRETRAINING = {'optimizer': 'momentum', 'learning_rate': 0.05, 'schedule': 'cosine', 'weight_decay': 5e-4}
PRETRAINING_BATCH = 128  # images


class Options(Augmented):
    """Nearest neighbours on classifier features"""

    distance: str = option('cosine', 'Distance to the support examples.', choices=('euclidean', 'cosine'))


def build(config: Config, data: Splits, encoder: nn.Module) -> Learner:
    options, batch = config.method, config.episodes.way * config.episodes.per_class
    fields = {'distance': DISTANCES[options.distance], 'augmentations': options.augmentations}
    return learner(encoder, data.item_shape, batches.classes(data), batch=batch, **fields)


METHOD = Method(build, Options, {'way': 8, 'query': 15, 'last_scale': 1.0}, encoders.CONVOLUTIONAL)


def pretraining(config: Config, data: Splits, encoder: nn.Module) -> tuple[Config, Learner]:
    """Return configuration and learner of --pretrain, which trains the encoder before the first episode."""
    episodes, at_once = config.method.pretrain, config.training.episodes_per_step
    if episodes % at_once:
        raise ConfigError(f'--pretrain={episodes}: expected a multiple of --episodes_per_step={at_once}')
    options = {'batch': PRETRAINING_BATCH, 'augmentations': config.method.augmentations}
    built = learner(encoder, data.item_shape, batches.classes(data), **options)
    training = dataclasses.replace(config.training, episodes=episodes, clip_norm=0.0, **PRETRAINING)
    return dataclasses.replace(config, training=training), built


def learner(
    encoder: nn.Module,
    item_shape: Sequence[int],
    classes: int,
    *,
    batch: int,
    distance: Distance = cosine,
    augmentations: Sequence[Augmentation] = (),
) -> Learner:
    """Build a learner from mini-batches of `batch` images; `classes`: maximum number of training classes."""

    def init_layer(key, dimensions):
        kernel = nn.initializers.lecun_normal()(key, (dimensions, classes))
        return {'kernel': kernel, 'bias': jnp.zeros(classes)}

    def layer(params, batch_stats, episode):
        scores = episode.query @ params['classifier']['kernel'] + params['classifier']['bias'][None]
        return scores[:, : episode.way]

    classify = Parametric(init_layer, lambda params, episode: logits(episode, distance))
    tested = few_shot_learner(encoder, item_shape, way=2, shot=1, query=1, classify=classify)
    draw = partial(batches.sample, size=batch)
    tested = tested._replace(in_batches=True, by_accuracy=True)
    return batches.trained(tested, draw, cross_entropy, score=layer, augmentations=augmentations)


def logits(episode: Episode, distance: Distance = cosine) -> jax.Array:
    """Compute minus the distance to the nearest support example of each class: embedded episode -> [Q, way]."""
    distances = pairwise(distance)(episode.query, episode.support)  # [Q, N]
    return -jax.ops.segment_min(distances.T, episode.support_labels, episode.way).T
