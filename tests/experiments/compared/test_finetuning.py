"""Fine-tuning on the support set of a test episode, from the images on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.compared.finetuning import fine_tuned
from protojax.classifiers import by_matching, losses
from protojax.distances import cosine
from protojax.encoders import Conv4
from protojax.episodes import Episode
from protojax.tasks import few_shot_task

SHAPE = (16, 16, 1)
TASK = few_shot_task(
    Conv4(filters=4, kernels=False, item_shape=SHAPE), SHAPE, way=3, shot=1, query=2, classify=by_matching(cosine)
)
IMAGES = np.random.default_rng(0).integers(0, 256, (9, *SHAPE), dtype=np.uint8)
LABELS = jnp.arange(3)


@pytest.fixture(scope='module')
def variables():
    return jax.jit(TASK.initialize)(jax.random.key(0))


def of_images(task, variables):
    """The scores that a task gives to raw images."""
    params, batch_stats = variables
    embed = jax.jit(task.embed)
    support, queries = (embed(params, batch_stats, items) for items in (IMAGES[:3], IMAGES[3:]))
    episode = Episode(support, LABELS, queries, None, LABELS)
    return jax.jit(task.classify)({**params, 'batch_stats': batch_stats}, episode)


def test_no_steps_change_nothing(variables):
    tuned = of_images(fine_tuned(TASK, steps=0, rate=0.1), variables)
    np.testing.assert_allclose(tuned, of_images(TASK, variables), rtol=1e-5, atol=1e-6)


def test_steps_are_gradient_descent_on_the_support_set(variables):
    """Without movement the support set is its own queries, and one step follows from the gradient by hand."""
    params, batch_stats = variables

    def loss(params):
        support = TASK.embed(params, batch_stats, IMAGES[:3])
        return losses(TASK.classify(params, Episode(support, LABELS, support, LABELS, LABELS)), LABELS).mean()

    moved = jax.tree.map(lambda p, g: p - 0.5 * g, params, jax.jit(jax.grad(loss))(params))
    tuned = of_images(fine_tuned(TASK, steps=1, rate=0.5, pixels=0), variables)
    np.testing.assert_allclose(tuned, of_images(TASK, (moved, batch_stats)), rtol=1e-4, atol=1e-5)
    assert not np.allclose(tuned, of_images(TASK, variables), atol=1e-3)
