"""Fine-tuning on the support set of a test episode, from the images on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax import softmax_cross_entropy_with_integer_labels as losses

from experiments.methods import finetuning
from protojax import Conv4, Episode, cosine, few_shot_learner, matching
from protojax.classifiers import by_distance

SHAPE = (16, 16, 1)
ENCODER = Conv4(filters=4, kernels=False, item_shape=SHAPE)
LEARNER = few_shot_learner(ENCODER, SHAPE, way=3, shot=1, query=2, classify=by_distance(matching, cosine))
IMAGES = np.random.default_rng(0).integers(0, 256, (9, *SHAPE), dtype=np.uint8)
LABELS = jnp.arange(3)


@pytest.fixture(scope='module')
def variables():
    return jax.jit(LEARNER.init)(jax.random.key(0))


def of_images(learner, variables):
    """The scores that a learner gives to raw images."""
    params, batch_stats = variables
    embed = jax.jit(learner.embed)
    support, queries = (embed(params, batch_stats, items) for items in (IMAGES[:3], IMAGES[3:]))
    episode = Episode(support, LABELS, queries, None, LABELS)
    return jax.jit(learner.classify)(params, batch_stats, episode)


def test_no_steps_change_nothing(variables):
    tuned = of_images(finetuning.tuned(LEARNER, steps=0, rate=0.1), variables)
    np.testing.assert_allclose(tuned, of_images(LEARNER, variables), rtol=1e-5, atol=1e-6)


def test_steps_are_gradient_descent_on_the_support_set(variables):
    """Without movement the support set is its own queries, and one step follows from the gradient by hand."""
    params, batch_stats = variables

    def loss(params):
        support = LEARNER.embed(params, batch_stats, IMAGES[:3])
        return losses(LEARNER.classify(params, {}, Episode(support, LABELS, support, LABELS, LABELS)), LABELS).mean()

    moved = jax.tree.map(lambda p, g: p - 0.5 * g, params, jax.jit(jax.grad(loss))(params))
    tuned = of_images(finetuning.tuned(LEARNER, steps=1, rate=0.5, pixels=0), variables)
    np.testing.assert_allclose(tuned, of_images(LEARNER, (moved, batch_stats)), rtol=1e-4, atol=1e-5)
    assert not np.allclose(tuned, of_images(LEARNER, variables), atol=1e-3)
