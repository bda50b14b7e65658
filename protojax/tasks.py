"""The paper's two learning problems, each as a set of functions that training and evaluation work with."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from protojax import classifiers, distances
from protojax.devices import spread
from protojax.encoders import encode, initialize
from protojax.encoders.conv4 import MOMENTUM
from protojax.episodes import sample_episode


class Task(NamedTuple):
    """Pure functions of one learning problem."""

    initialize: Callable[..., Any]  # key -> params, batch_stats
    loss: Callable[..., Any]  # see protojax.training
    embed: Callable[..., Any]  # params, batch_stats, items -> embeddings
    classify: Callable[..., Any]  # params, queries, support, support labels, *, way -> logits
    statistics: Callable[..., Any] | None = None  # params, batch_stats, items, *, axis_name -> those of the items alone


def few_shot_task(
    encoder, item_shape, *, way, shot, query, model='prototypical', distance='euclidean', changes=(), **options
):
    """Prototypical or matching networks, learned from episodes of that way, shot and query -> Task.

    `distance` is euclidean, cosine, mahalanobis or diagonal; the images of a training episode go through the `changes`
    (see protojax.augmentation) in turn; `options` are those of `few_shot_logits`.
    """
    classify = partial(few_shot_logits, model=model, distance=distance, **options)

    def init(key):
        params, batch_stats = initialize(encoder, key, item_shape)
        item = jnp.zeros((1, *item_shape), jnp.uint8)
        dimensions = jax.eval_shape(partial(encode, encoder), params, batch_stats, item)[0].shape[-1]
        return {'encoder': params, 'distance': _learned_parameters(distance, dimensions)}, batch_stats

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = sample_episode(key, dataset, way=way, shot=shot, query=query)
        images = jnp.concatenate([episode.support, episode.query])  # one pass, so they share the batch statistics
        labels = jnp.concatenate([episode.support_labels, episode.query_labels])
        for number, change in enumerate(changes, 1):
            images = change(jax.random.fold_in(key, number), images, labels, way=way)
        one_pass = partial(encode, encoder, params['encoder'], batch_stats, train=True, axis_name=axis_name)
        embeddings, batch_stats = one_pass(images) if axis_name is None else spread(one_pass, images)
        support, queries = jnp.split(embeddings, [way * shot])
        logits = classify(params, queries, support, episode.support_labels, way=way)
        metrics = _metrics(logits, episode.query_labels)
        return metrics['loss'], (batch_stats, metrics)

    def embed(params, batch_stats, items):
        return encode(encoder, params['encoder'], batch_stats, items)[0]

    def statistics(params, batch_stats, items, *, axis_name=None):
        nothing = jax.tree.map(jnp.zeros_like, batch_stats)
        _, part = encode(encoder, params['encoder'], nothing, items, train=True, axis_name=axis_name)
        return jax.tree.map(lambda s: s / (1 - MOMENTUM), part)  # a running average of zeros has this share of them

    return Task(init, loss, embed, classify, statistics)


def few_shot_logits(params, queries, support, labels, *, way, model, distance, temperature=1.0, per_class=1):
    """Scores of each class: [Q, D], [N, D], [N] -> [Q, way]."""
    learned = params['distance']
    if distance == 'diagonal':
        variance = jax.nn.softplus(learned['variance'])
        return classifiers.diagonal(queries, support, labels, variance, way=way) / temperature
    if distance == 'mahalanobis':
        metric = distances.mahalanobis(learned['factor'] @ learned['factor'].T)
    else:
        metric = {'euclidean': distances.squared_euclidean, 'cosine': distances.cosine}[distance]

    def scaled(a, b):
        return metric(a, b) / temperature

    if model == 'matching':
        return classifiers.matching(queries, support, labels, way=way, distance=scaled)
    return classifiers.prototypical(queries, support, labels, way=way, distance=scaled, per_class=per_class)


def zero_shot_task(image_map, attribute_map, item_shape, attributes, *, way, query):
    """Prototypes from the meta-data of classes, c_k = g(v_k), in episodes of that way and query -> Task.

    Items are [crops, features], the middle crop first; training draws one crop of each at random. The attribute map
    gives unit length.
    """

    def init(key):
        image_key, attribute_key = jax.random.split(key)
        image_params, _ = initialize(image_map, image_key, item_shape[1:])
        attribute_params, _ = initialize(attribute_map, attribute_key, (attributes,))
        return {'images': image_params, 'attributes': attribute_params}, {}

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode_key, crop_key = jax.random.split(key)
        episode = sample_episode(episode_key, dataset, way=way, shot=0, query=query)
        crops = jax.random.randint(crop_key, (way * query, 1, 1), 0, item_shape[0])
        features = jnp.take_along_axis(episode.query, crops, 1)[:, 0]
        one_pass = partial(encode, image_map, params['images'], batch_stats)
        embeddings, _ = one_pass(features) if axis_name is None else spread(one_pass, features)
        logits = classify(params, embeddings, dataset.attributes[episode.classes])
        metrics = _metrics(logits, episode.query_labels)
        return metrics['loss'], (batch_stats, metrics)

    def embed(params, batch_stats, items):
        return encode(image_map, params['images'], batch_stats, items[:, 0])[0]

    def classify(params, queries, attributes):
        prototypes = encode(attribute_map, params['attributes'], {}, attributes)[0]
        return -distances.pairwise(distances.squared_euclidean)(queries, prototypes)

    return Task(init, loss, embed, classify)


def _learned_parameters(distance, dimensions):
    """What a distance learns besides the encoder; at the start each is the squared Euclidean one."""
    if distance == 'mahalanobis':
        return {'factor': jnp.eye(dimensions)}
    if distance == 'diagonal':
        return {'variance': jnp.full((dimensions,), jnp.log(jnp.expm1(0.5)))}  # softplus of it is 1/2, as in -d = -2d/2
    return {}


def _metrics(logits, labels):
    loss = classifiers.losses(logits, labels).mean()
    return {'loss': loss, 'accuracy': classifiers.accuracies(logits, labels).mean()}
