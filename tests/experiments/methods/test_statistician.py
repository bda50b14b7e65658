"""The neural statistician: bound and divergences against NumPy, and posteriors of sets."""

from functools import partial

import jax
import numpy as np
import pytest

from experiments.methods.statistician import Decoder, enlarged, learner
from protojax.encoders import encode
from protojax.episodes import Dataset, Episode, sample_episode
from tests.helpers import made_up
from tests.helpers.steps import on_one_and_more

RNG = np.random.default_rng(0)
SHAPE, KEY = (16, 16, 1), jax.random.key(5)


@pytest.fixture(scope='module')
def problem():
    task = learner(SHAPE, way=4, items=3, widths=(4,), context=6, code=2)
    # Four classes of noise around an image of their own.
    prototypes = RNG.random((4, 1, *SHAPE)) > 0.5
    items = np.where(RNG.random((4, 8, *SHAPE)) < 0.1, ~prototypes, prototypes)
    data = jax.device_put(Dataset(np.uint8(255 * items), np.full(4, 8, np.int32)))
    return task, *made_up.variables(task.init), data


@pytest.fixture(scope='module')
def alone_and_together(problem):
    """Return loss and gradient on one device and on two."""
    task, *given = problem
    return on_one_and_more(task.loss, *given, KEY, devices=2)


def dense(params, x):
    return x @ np.asarray(params['kernel']) + np.asarray(params['bias'])


def network(params, x):
    """Mean and log-variance of a Gaussian, of each row of x."""
    hidden = dense(params['Dense_1'], x)
    mean, log = np.split(dense(params['Dense_0'], np.where(hidden > 0, hidden, np.expm1(hidden))), 2, 1)
    return mean, 5 * np.tanh(log / 5)


def kl(q, p):
    """Summed over the dimensions of one Gaussian and of the other."""
    return sum(
        0.5 * (np.log(v / u) + (u + (m - n) ** 2) / v - 1)
        for m, u, n, v in zip(q[0], np.exp(q[1]), p[0], np.exp(p[1]), strict=True)
    )


def test_the_loss_is_minus_the_bound_of_a_batch(problem, alone_and_together):
    """All of it for one key: from the embedded images and the random numbers on in NumPy, item by item."""
    task, params, batch_stats, data = problem
    own = params['classifier']
    sample = partial(sample_episode, way=4, shot=3, query=0)
    episode = jax.jit(sample)(KEY, data)
    embed = jax.jit(partial(encode, task.encoder, train=True))
    h = np.asarray(embed(params['encoder'], batch_stats, episode.support)[0])
    normal = jax.jit(lambda n, shape: jax.random.normal(jax.random.fold_in(KEY, n), shape), static_argnums=1)
    noise = [np.asarray(normal(n, shape)) for n, shape in ((1, (4, 6)), (2, (12, 2)))]
    q_c = network(own['context'], h.reshape(4, 3, -1).mean(1))
    c = np.repeat(q_c[0] + np.exp(q_c[1] / 2) * noise[0], 3, 0)
    q_z, p_z = network(own['posterior'], np.concatenate([h, c], 1)), network(own['prior'], c)
    z = q_z[0] + np.exp(q_z[1] / 2) * noise[1]
    decode = jax.jit(Decoder((4,), SHAPE).apply)
    odds = decode({'params': own['decoder']}, np.concatenate([z, c], 1))
    ink = 1 / (1 + np.exp(-np.float64(odds)))
    pixels = np.asarray(episode.support).reshape(12, -1) > 127
    bound = -sum(kl((q_c[0][k], q_c[1][k]), (np.zeros(6), np.zeros(6))) for k in range(4))
    for n in range(12):
        likelihood = np.log(np.where(pixels[n], ink[n], 1 - ink[n])).sum()
        bound += likelihood - kl((q_z[0][n], q_z[1][n]), (p_z[0][n], p_z[1][n]))
    (value, (_, metrics)), _ = alone_and_together[0]
    np.testing.assert_allclose([value, metrics['loss']], -bound / 12, rtol=1e-5)


def test_a_query_takes_the_class_with_the_least_divergence_from_it(problem):
    """Minus KL(q(c | D_k) || q(c | {x})), in this direction."""
    task, params, _, _ = problem
    h = RNG.normal(size=(6, 256)).astype(np.float32)
    episode = Episode(h[:4], np.array([0, 0, 1, 1]), h[4:], None, np.arange(2))
    of_sets, of_queries = (
        network(params['classifier']['context'], x) for x in (h[:4].reshape(2, 2, -1).mean(1), h[4:])
    )
    expected = [[-kl(c, x) for c in zip(*of_sets, strict=True)] for x in zip(*of_queries, strict=True)]
    np.testing.assert_allclose(jax.jit(task.classify)(params, {}, episode), expected, rtol=1e-4)


def test_the_order_of_a_set_does_not_matter(problem):
    task, params, batch_stats, data = problem
    h = np.asarray(jax.jit(task.embed)(params, batch_stats, np.asarray(data.items)[:, :4].reshape(-1, *SHAPE)))
    labels = np.repeat(np.arange(4), 4)
    order = RNG.permutation(16)
    episodes = [Episode(h[o], labels[o], h, None, np.arange(4)) for o in (np.arange(16), order)]
    scores = [jax.jit(task.classify)(params, {}, episode) for episode in episodes]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_several_devices_share_the_work(alone_and_together):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-3), *alone_and_together)


def test_a_pixel_becomes_four():
    two_pixels = np.arange(16.0).reshape(1, 1, 2, 8)  # of four times two channels
    top, bottom = [[0, 1], [2, 3], [8, 9], [10, 11]], [[4, 5], [6, 7], [12, 13], [14, 15]]
    np.testing.assert_array_equal(enlarged(two_pixels), [[top, bottom]])
