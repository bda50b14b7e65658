"""DA-SJE and DS-SJE (Reed et al. 2016), with attributes in place of text.

A linear map of images and one of attributes meet in one space, F(x, a) = theta(x) . phi(a). The asymmetric form (DA)
asks that an image scores its own class higher than the others of the episode; the symmetric one (DS) asks besides that
a class scores its own images higher than those of other classes. Both are means of hinges with margin 1.
"""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.compared.batches import trained_on_batches
from experiments.compared.compatibility import compatibility_violations
from protojax.augmentation import random_crop
from protojax.episodes import sample_episode
from protojax.tasks import Task, zero_shot_task


def joint_embedding_task(
    image_encoder: nn.Module,
    attribute_encoder: nn.Module,
    item_shape: Sequence[int],
    attributes: int,
    *,
    way: int,
    query: int,
    symmetric: bool,
) -> Task:
    """DS-SJE or, where it is not symmetric, DA-SJE, on episodes of that way and query."""
    sizes = {'way': way, 'query': query}
    task = zero_shot_task(image_encoder, attribute_encoder, item_shape, attributes, distance=_minus_dot, **sizes)
    losses = symmetric_hinge if symmetric else image_hinge
    return trained_on_batches(task, partial(sample_episode, shot=0, **sizes), losses, augmentations=(random_crop,))


def _minus_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Minus the inner product, so that the nearest class is the one with the highest score: [D], [D] -> []."""
    return -jnp.dot(a, b)


def image_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """For each image the mean over classes of max(0, 1(y != y_n) + F(x_n, y) - F(x_n, y_n)): [N, way], [N] -> [N]."""
    return compatibility_violations(scores, labels).mean(1)


def symmetric_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """`image_hinge`, and for the class of each image a mean over all images: [N, way], [N] -> [N].

    The second part is max(0, 1 + F(x_m, y_n) - F(x_n, y_n)) for images m of another class than image n, and 0 for those
    of its own.
    """
    of_class = scores[:, labels].T  # [n, m]: how the class of image n scores image m
    own = jnp.take_along_axis(scores, labels[:, None], 1)
    others = labels[:, None] != labels[None, :]
    hinges = jnp.where(others, jax.nn.relu(1 + of_class - own), 0)
    return image_hinge(scores, labels) + hinges.mean(1)
