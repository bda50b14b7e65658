"""DA-SJE and DS-SJE (Reed et al. 2016), with attributes in place of text.

Images and attributes are projected to one space, F(x, a) = theta(x) . phi(a). The asymmetric loss (DA) requires that
an image scores higher with its class than with the other classes of the episode; the symmetric loss (DS) also requires
that a class scores higher with its images than with other images. Both are means of hinges with margin 1.
"""

from functools import partial

import jax
import jax.numpy as jnp

from experiments.methods import batches, zero_shot
from experiments.methods.compatibility import Losses, violations
from experiments.methods.options import Config, Method
from protojax import Learner, Splits, sample_episode
from protojax.augmentation import random_crop


def build(config: Config, data: Splits, encoder: None, *, losses: Losses) -> Learner:
    draw = partial(sample_episode, shot=0, **config.episodes.sizes)
    return batches.trained(zero_shot.learner(config, data, _minus_dot), draw, losses, augmentations=(random_crop,))


def _minus_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute minus the inner product, so that the nearest class has the highest score: [D], [D] -> []."""
    return -jnp.dot(a, b)


def image_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Compute the mean over classes of max(0, 1(y != y_n) + F(x_n, y) - F(x_n, y_n)): [N, way], [N] -> [N]."""
    return violations(scores, labels).mean(1)


def symmetric_hinge(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Add to `image_hinge` a mean over all images for the class of each image: [N, way], [N] -> [N].

    The terms of this mean are max(0, 1 + F(x_m, y_n) - F(x_n, y_n)) for images m of another class than image n, else 0.
    """
    of_class = scores[:, labels].T  # [n, m]: score of image m with the class of image n
    own = jnp.take_along_axis(scores, labels[:, None], 1)
    others = labels[:, None] != labels[None, :]
    hinges = jnp.where(others, jax.nn.relu(1 + of_class - own), 0)
    return image_hinge(scores, labels) + hinges.mean(1)


class Symmetric(zero_shot.Maps):
    """DS-SJE: inner products of two embeddings, symmetric loss"""


class Asymmetric(zero_shot.Maps):
    """DA-SJE: inner products of two embeddings, asymmetric loss"""


DS_SJE = Method(partial(build, losses=symmetric_hinge), Symmetric, {'episodes': 1000})
DA_SJE = Method(partial(build, losses=image_hinge), Asymmetric, {'episodes': 1000})
