"""The paper's two learning problems, few-shot and zero-shot, as pure functions for training and evaluation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from protojax import augmentation, devices, encoders, episodes
from protojax.classifiers import Logits, accuracies, by_distance, prototypical
from protojax.distances import Distance, Parametric, pairwise, squared_euclidean


class Learner(NamedTuple):
    """Pure functions and properties of one learning method. Its params are {'encoder': ..., 'classifier': ...}."""

    init: Callable[..., Any]  # key -> params, batch_stats
    loss: Callable[..., Any]  # params, batch_stats, dataset, key, *, axis_name -> value, (batch_stats, metrics)
    embed: Callable[..., jax.Array]  # params, batch_stats, items [N, ...] -> embeddings [N, D]
    classify: Callable[..., jax.Array]  # params, batch_stats, embedded Episode -> logits [Q, way]
    encoder: nn.Module  # encoder of the items
    attribute_encoder: nn.Module | None = None  # encoder of class attributes, in zero-shot learning
    unlabeled: int = 0  # unlabelled examples per class in each episode
    zero_shot: bool = False  # evaluated on all items of all classes, not on episodes
    adapts: bool = False  # trains on each support set: `embed` returns the items, episodes are scored one at a time
    in_batches: bool = False  # draws from all classes: the training data must be on the device
    metrics: Sequence[str] = ('loss', 'accuracy')  # names of the metrics that `loss` returns
    by_accuracy: bool = False  # the best checkpoint has the highest validation accuracy, not the lowest loss


def few_shot_learner(
    encoder: nn.Module,
    item_shape: Sequence[int],
    *,
    way: int,
    shot: int,
    query: int,
    unlabeled: int = 0,
    distance: Distance | Parametric | None = None,
    classify: Logits | Parametric = prototypical,
    augmentations: Sequence[augmentation.Augmentation] = (),
) -> Learner:
    """Build a learner that trains on episodes of the given way, shot and query.

    Args:
        encoder: Network that embeds the items; see `protojax.encoders` for its contract.
        item_shape: Shape of one item, e.g. (28, 28, 1).
        way: Classes per training episode.
        shot: Support examples per class.
        query: Queries per class.
        unlabeled: Unlabelled examples per class, for classifiers that use them.
        distance: Distance for `classify`; by default squared Euclidean.
        classify: Function of queries, support and labels such as `prototypical` or `matching`, or a `Parametric` of
            params and an embedded episode.
        augmentations: Random changes of the items in training, applied in this order.
    """
    if isinstance(classify, Parametric) and distance is not None:
        raise ValueError('distance has no effect on a Parametric classifier; build the classifier with it')
    classifier = classify if isinstance(classify, Parametric) else by_distance(classify, distance)
    bound = encoders.bind_item_shape(encoder, item_shape)  # for `embed`; in training, the shape may differ

    def init(key):
        params, batch_stats = encoders.init(encoder, key, item_shape)
        learned = classifier.init(jax.random.fold_in(key, 1), encoders.dimensions(encoder, item_shape))
        return {'encoder': params, 'classifier': learned}, batch_stats

    def loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = episodes.sample_episode(key, dataset, way=way, shot=shot, query=query, unlabeled=unlabeled)
        # Support and query share the batch statistics, so they are embedded in one pass.
        parts = [episode.support, episode.query, *([episode.unlabeled] if unlabeled else [])]
        labels = jnp.concatenate([jnp.repeat(jnp.arange(way), n) for n in (shot, query, unlabeled)])
        items = augmentation.apply(augmentations, key, jnp.concatenate(parts), labels, way=way)
        encode = partial(encoders.encode, encoder, params['encoder'], batch_stats, train=True, axis_name=axis_name)
        embeddings, batch_stats = devices.spread(encode, items, axis_name)
        support, queries, others = jnp.split(embeddings, [way * shot, way * (shot + query)])
        episode = episode._replace(support=support, query=queries, unlabeled=others if unlabeled else None)
        logits = classifier.apply(params['classifier'], episode)
        value = optax.softmax_cross_entropy_with_integer_labels(logits, episode.query_labels).mean()
        accuracy = accuracies(logits, episode.query_labels).mean()
        return value, (batch_stats, {'loss': value, 'accuracy': accuracy})

    def embed(params, batch_stats, items):
        return encoders.encode(bound, params['encoder'], batch_stats, items)[0]

    def classify_embedded(params, batch_stats, episode):
        return classifier.apply(params['classifier'], episode)

    return Learner(init, loss, embed, classify_embedded, bound, unlabeled=unlabeled)


def started_from(learner: Learner, params: Any, batch_stats: Any) -> Learner:
    """Replace the initial parameters and running statistics of a learner's encoder."""

    def init(key):
        return {**learner.init(key)[0], 'encoder': params}, batch_stats

    return learner._replace(init=init)


def zero_shot_learner(
    image_encoder: nn.Module,
    attribute_encoder: nn.Module,
    item_shape: Sequence[int],
    attributes: int,
    *,
    way: int,
    query: int,
    distance: Distance = squared_euclidean,
) -> Learner:
    """Build a learner whose prototypes are embedded class attributes, c_k = g(v_k) (section 2.7).

    Args:
        image_encoder: Network f that embeds items.
        attribute_encoder: Network g that embeds attributes.
        item_shape: [crops, features], with the middle crop first; training uses one random crop of each item.
        attributes: Number of attributes of a class.
        way: Classes per training episode.
        query: Queries per class.
        distance: Distance between queries and prototypes.
    """

    def init(key, dimensions):
        return encoders.init(attribute_encoder, key, (attributes,))[0]

    def classify(params, episode):
        prototypes, _ = encoders.encode(attribute_encoder, params, {}, episode.attributes)
        return -pairwise(distance)(episode.query, prototypes)

    options: Any = {'classify': Parametric(init, classify), 'augmentations': (augmentation.random_crop,)}
    learner = few_shot_learner(image_encoder, item_shape, way=way, shot=0, query=query, **options)
    return learner._replace(attribute_encoder=attribute_encoder, zero_shot=True)
