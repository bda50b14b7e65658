"""The neural statistician: divergences and bound against closed forms, posteriors of sets, and what it learns."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.compared.statistician import (
    StatisticianDecoder,
    context_divergence,
    divergence,
    enlarged_images,
    sample_gaussian,
    statistician_bounds,
    statistician_task,
)
from protojax.devices import AXIS
from protojax.encoders import encode
from protojax.episodes import Dataset, Episode, sample_episode

RNG = np.random.default_rng(0)
SHAPE = (16, 16, 1)


def gaussian(mean, variance):
    return jnp.concatenate([jnp.atleast_1d(jnp.float32(mean)), jnp.log(jnp.atleast_1d(jnp.float32(variance)))])


def test_divergence_has_its_closed_form():
    # KL(N(1, 4) || N(3, 9)) = log(3 / 2) + (4 + 4) / 18 - 1 / 2
    np.testing.assert_allclose(divergence(gaussian(1, 4), gaussian(3, 9)), np.log(1.5) + 8 / 18 - 0.5, rtol=1e-5)
    q = gaussian(RNG.normal(size=5), RNG.uniform(0.5, 2, 5))
    np.testing.assert_allclose(divergence(q, q), 0, atol=1e-6)


def test_divergence_is_the_mean_of_log_ratios():
    q, p = (gaussian(RNG.normal(size=3), RNG.uniform(0.5, 2, 3)) for _ in range(2))
    points = np.asarray(sample_gaussian(jax.random.key(0), jnp.tile(q[None], (200_000, 1))), np.float64)

    def log_density(gaussian):
        mean, variance = np.asarray(gaussian[:3]), np.exp(gaussian[3:])
        return (-0.5 * ((points - mean) ** 2 / variance + np.log(2 * np.pi * variance))).sum(1)

    np.testing.assert_allclose(divergence(q, p), (log_density(q) - log_density(p)).mean(), rtol=0.02)


def test_the_bound_of_an_item():
    odds, pixels = RNG.normal(size=(1, 6)), RNG.random((1, 6)) > 0.5
    q, p = gaussian([0.5, -1], [1, 2])[None], gaussian([0, 0], [1, 1])[None]
    ink = 1 / (1 + np.exp(-odds))
    likelihood = np.log(np.where(pixels, ink, 1 - ink)).sum()
    kl = 0.5 * (0.5**2) + 0.5 * (2 + 1 - 1 - np.log(2))
    np.testing.assert_allclose(statistician_bounds(jnp.float32(odds), pixels, q, p), [likelihood - kl], rtol=1e-5)
    np.testing.assert_allclose(context_divergence(q), [kl], rtol=1e-5)


@pytest.fixture(scope='module')
def problem():
    task = statistician_task(SHAPE, way=4, items=3, widths=(4,), context=6, code=2)
    # Four classes of noise around an image of their own.
    prototypes = RNG.random((4, 1, *SHAPE)) > 0.5
    items = np.where(RNG.random((4, 8, *SHAPE)) < 0.1, ~prototypes, prototypes)
    return task, *jax.jit(task.initialize)(jax.random.key(0)), Dataset(jnp.uint8(255 * items), jnp.full(4, 8))


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


def test_the_loss_is_minus_the_bound_of_a_batch(problem):
    """All of it for one key: from the embedded images and the random numbers on in NumPy, item by item."""
    task, params, batch_stats, data = problem
    key, own = jax.random.key(5), params['classifier']
    episode = sample_episode(key, data, way=4, shot=3, query=0)
    embed = jax.jit(partial(encode, task.encoder, train=True))
    h = np.asarray(embed(params['encoder'], batch_stats, episode.support)[0])
    noise = [np.asarray(jax.random.normal(jax.random.fold_in(key, n), s)) for n, s in ((1, (4, 6)), (2, (12, 2)))]
    q_c = network(own['context'], h.reshape(4, 3, -1).mean(1))
    c = np.repeat(q_c[0] + np.exp(q_c[1] / 2) * noise[0], 3, 0)
    q_z, p_z = network(own['posterior'], np.concatenate([h, c], 1)), network(own['prior'], c)
    z = q_z[0] + np.exp(q_z[1] / 2) * noise[1]
    decode = jax.jit(StatisticianDecoder((4,), SHAPE).apply)
    odds = decode({'params': own['decoder']}, np.concatenate([z, c], 1))
    ink = 1 / (1 + np.exp(-np.float64(odds)))
    pixels = np.asarray(episode.support).reshape(12, -1) > 127
    bound = -sum(kl((q_c[0][k], q_c[1][k]), (np.zeros(6), np.zeros(6))) for k in range(4))
    for n in range(12):
        likelihood = np.log(np.where(pixels[n], ink[n], 1 - ink[n])).sum()
        bound += likelihood - kl((q_z[0][n], q_z[1][n]), (p_z[0][n], p_z[1][n]))
    value, (_, metrics) = jax.jit(task.loss)(params, batch_stats, data, key)
    np.testing.assert_allclose([value, metrics['loss']], -bound / 12, rtol=1e-5)


def test_the_order_of_a_set_does_not_matter(problem):
    task, params, batch_stats, data = problem
    h = jax.jit(task.embed)(params, batch_stats, data.items[:, :4].reshape(-1, *SHAPE))
    labels = jnp.repeat(jnp.arange(4), 4)
    order = RNG.permutation(16)
    episodes = [Episode(h[o], labels[o], h, None, jnp.arange(4)) for o in (np.arange(16), order)]
    scores = [jax.jit(task.classify)(params, episode) for episode in episodes]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)
    # A query is nearest to the class that consists of itself alone.
    alone = jax.jit(task.classify)(params, Episode(h[::4], jnp.arange(4), h[::4], None, jnp.arange(4)))
    np.testing.assert_allclose(np.diag(alone), 0, atol=1e-5)
    assert (alone.argmax(1) == np.arange(4)).all()


def test_it_raises_the_bound_and_tells_classes_apart(problem):
    task, params, batch_stats, data = problem
    optimizer = optax.adam(3e-3)

    @jax.jit
    def step(params, batch_stats, state, key):
        (value, (stats, _)), gradient = jax.value_and_grad(task.loss, has_aux=True)(params, batch_stats, data, key)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), stats, state, value

    state, values = optimizer.init(params), []
    for number in range(200):
        params, batch_stats, state, value = step(params, batch_stats, state, jax.random.key(number))
        values.append(value)
    assert np.mean(values[-5:]) < 140  # coin flips have 256 log 2 = 177
    h = jax.jit(task.embed)(params, batch_stats, data.items.reshape(-1, *SHAPE)).reshape(4, 8, -1)
    labels = jnp.repeat(jnp.arange(4), 4)
    episode = Episode(h[:, :4].reshape(16, -1), labels, h[:, 4:].reshape(16, -1), None, jnp.arange(4))
    assert (jax.jit(task.classify)(params, episode).argmax(1) == labels).mean() > 0.9


def test_several_devices_share_the_work(problem):
    task, params, batch_stats, data = problem
    gradient = jax.value_and_grad(task.loss, has_aux=True)
    alone = jax.jit(gradient)(params, batch_stats, data, jax.random.key(0))
    one_of_two = lambda _: jax.lax.pmean(  # noqa: E731
        gradient(params, batch_stats, data, jax.random.key(0), axis_name=AXIS), AXIS
    )
    together = jax.jit(jax.vmap(one_of_two, axis_name=AXIS, axis_size=2))(jnp.arange(2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[0], rtol=2e-3, atol=2e-3), alone, together)


def test_a_pixel_becomes_four():
    two_pixels = jnp.arange(16.0).reshape(1, 1, 2, 8)  # of four times two channels
    top, bottom = [[0, 1], [2, 3], [8, 9], [10, 11]], [[4, 5], [6, 7], [12, 13], [14, 15]]
    np.testing.assert_array_equal(enlarged_images(two_pixels), [[top, bottom]])
