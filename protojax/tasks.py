"""The paper's two learning problems, each as a set of pure functions that training and evaluation work with."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from protojax.augmentation import Augmentation, augmented, random_crop
from protojax.classifiers import Classifier, accuracies, as_learned_classifier, by_prototypes, losses
from protojax.devices import spread_over_devices
from protojax.distances import Distance, Learned, pairwise, squared_euclidean
from protojax.encoders import bind_item_shape, encode, initialize
from protojax.episodes import sample_episode


class Task(NamedTuple):
    """Pure functions of one learning problem. The parameters are {'encoder': ..., 'classifier': ...}."""

    initialize: Callable[..., Any]  # key -> params, batch_stats
    loss: Callable[..., Any]  # params, batch_stats, dataset, key, *, axis_name -> value, (batch_stats, metrics)
    embed: Callable[..., Any]  # params, batch_stats, items -> embeddings
    classify: Callable[..., Any]  # params, embedded episode -> logits
    encoder: nn.Module  # of the items
    attribute_encoder: nn.Module | None = None  # of zero-shot learning
    unlabeled: int = 0  # examples of each class that episodes have beside support and query


def few_shot_task(
    encoder: nn.Module,
    item_shape: Sequence[int],
    *,
    way: int,
    shot: int,
    query: int,
    unlabeled: int = 0,
    distance: Distance | Learned = squared_euclidean,
    classify: Classifier | Learned | None = None,
    augmentations: Sequence[Augmentation] = (),
) -> Task:
    """Learning from episodes of that way, shot and query.

    `classify` is a classifier of embedded episodes (see protojax.classifiers), by default that of prototypical networks
    with the given distance. The items of a training episode go through the `augmentations` in turn. `unlabeled` further
    examples of each class are drawn for classifiers that use them, in training as in evaluation.
    """
    classifier = as_learned_classifier(classify or by_prototypes(distance))
    bound = bind_item_shape(encoder, item_shape)  # not in training, where augmentations may change the shape

    def init(key):
        params, batch_stats = initialize(encoder, key, item_shape)
        item = jnp.zeros((1, *item_shape), jnp.uint8)
        dimensions = jax.eval_shape(partial(encode, encoder), params, batch_stats, item)[0].shape[-1]
        own = classifier.initialize(jax.random.fold_in(key, 1), dimensions)
        return {'encoder': params, 'classifier': own}, batch_stats

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = sample_episode(key, dataset, way=way, shot=shot, query=query, unlabeled=unlabeled)
        # One pass through the encoder, so that support and query share the batch statistics.
        parts = [episode.support, episode.query, *([episode.unlabeled] if unlabeled else [])]
        labels = jnp.concatenate([jnp.repeat(jnp.arange(way), n) for n in (shot, query, unlabeled)])
        items = augmented(augmentations, key, jnp.concatenate(parts), labels, way=way)
        one_pass = partial(encode, encoder, params['encoder'], batch_stats, train=True, axis_name=axis_name)
        embeddings, batch_stats = one_pass(items) if axis_name is None else spread_over_devices(one_pass, items)
        support, queries, others = jnp.split(embeddings, [way * shot, way * (shot + query)])
        episode = episode._replace(support=support, query=queries, unlabeled=others if unlabeled else None)
        logits = classifier.apply(params['classifier'], episode)
        value = losses(logits, episode.query_labels).mean()
        accuracy = accuracies(logits, episode.query_labels).mean()
        return value, (batch_stats, {'loss': value, 'accuracy': accuracy})

    def embed(params, batch_stats, items):
        return encode(bound, params['encoder'], batch_stats, items)[0]

    def classify_embedded(params, episode):
        return classifier.apply(params['classifier'], episode)

    return Task(init, loss, embed, classify_embedded, bound, unlabeled=unlabeled)


def task_started_from(task: Task, params: Any, batch_stats: Any) -> Task:
    """The task with an encoder that starts from these parameters and running statistics."""

    def init(key):
        fresh, _ = task.initialize(key)
        return {**fresh, 'encoder': params}, batch_stats

    return task._replace(initialize=init)


def zero_shot_task(
    image_encoder: nn.Module,
    attribute_encoder: nn.Module,
    item_shape: Sequence[int],
    attributes: int,
    *,
    way: int,
    query: int,
    distance: Distance = squared_euclidean,
) -> Task:
    """Episodes without support examples, whose prototypes come from the attributes of the classes (section 2.7).

    Items are [crops, features], the middle crop first; training draws one crop of each item at random.
    """
    task = few_shot_task(
        image_encoder,
        item_shape,
        way=way,
        shot=0,
        query=query,
        classify=_by_attributes(attribute_encoder, attributes, distance),
        augmentations=(random_crop,),
    )
    return task._replace(attribute_encoder=attribute_encoder)


def _by_attributes(attribute_encoder: nn.Module, attributes: int, distance: Distance) -> Learned:
    """A classifier whose prototypes are embeddings of the classes' attributes, c_k = g(v_k)."""

    def classify(params, episode):
        prototypes, _ = encode(attribute_encoder, params, {}, episode.attributes)
        return -pairwise(distance)(episode.query, prototypes)

    return Learned(lambda key, dimensions: initialize(attribute_encoder, key, (attributes,))[0], classify)
