"""Evaluation on embeddings against embedding every episode afresh, on any number of devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optax import softmax_cross_entropy_with_integer_labels as losses

from protojax import evaluation
from protojax.classifiers import accuracies
from protojax.encoders import Conv4
from protojax.episodes import Dataset, sample_episode
from protojax.evaluation import confidence, embedder, episode_scorer
from protojax.learners import few_shot_learner

SIZES = {'way': 3, 'shot': 1, 'query': 2}
EPISODES = 20
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 16, 16, 1), dtype=np.uint8)
IMAGES = Dataset(jnp.asarray(PIXELS), jnp.array([4, 3, 4, 4, 3]))
TASK = few_shot_learner(Conv4(filters=4, kernels=False), (16, 16, 1), **SIZES)
KEY = 3


@functools.cache
def variables():
    """Fresh parameters with statistics that are those of the images, so that embeddings are of a sensible size."""
    params, batch_stats = jax.jit(TASK.init)(jax.random.key(0))
    train = jax.jit(lambda stats, key: TASK.loss(params, stats, IMAGES, key)[1][0])
    for key in range(30):
        batch_stats = train(batch_stats, jax.random.key(key))
    return params, batch_stats


@functools.cache
def embedded(devices=1, batch_size=20):
    return embedder(TASK.embed, jax.devices()[:devices], batch_size=batch_size)(*variables(), IMAGES)


@functools.cache
def scorer(devices):
    return episode_scorer(TASK.classify, jax.devices()[:devices], **SIZES, episodes=EPISODES)


def score(devices, key=KEY):
    return scorer(devices)(*variables(), embedded(), jax.random.key(key))


def afresh(params, batch_stats, key):
    """Loss and accuracy of one episode whose images go through the encoder."""
    episode = sample_episode(key, IMAGES, **SIZES)
    support, queries = (TASK.embed(params, batch_stats, items) for items in (episode.support, episode.query))
    logits = TASK.classify(params, batch_stats, episode._replace(support=support, query=queries))
    return losses(logits, episode.query_labels).mean(), accuracies(logits, episode.query_labels).mean()


def test_embedding_once_is_embedding_every_episode_afresh():
    keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(KEY)))(jnp.arange(EPISODES))
    loss, accuracy = map(np.asarray, jax.jit(jax.vmap(afresh, (None, None, 0)))(*variables(), keys))
    found = score(1)
    np.testing.assert_allclose(found.loss, loss.mean(), rtol=1e-4)
    np.testing.assert_allclose(found.accuracy, 100 * accuracy.mean(), rtol=1e-5)
    np.testing.assert_allclose(found.ci95, 100 * 1.96 * accuracy.std(ddof=1) / EPISODES**0.5, rtol=1e-5)
    assert found.episodes == EPISODES
    assert 0 < found.accuracy < 100
    assert loss.std() > 0


@pytest.mark.parametrize('devices, batch_size', [(8, 3), (3, 4)])  # 20 images: parts of 24 and 12
def test_every_image_is_embedded_once_and_in_its_place(devices, batch_size):
    found = embedded(devices, batch_size)
    assert found.items.shape == (5, 4, 4)
    expected = jax.jit(TASK.embed)(*variables(), IMAGES.items.reshape(20, 16, 16, 1))
    np.testing.assert_allclose(found.items.reshape(20, 4), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(np.diff(expected, axis=0)).max(1).min() > 1e-3  # no two images look the same to it
    np.testing.assert_array_equal(found.counts, IMAGES.counts)


def test_score_depends_on_the_key_alone():
    eight = score(8)  # 20 episodes do not divide by 8
    one_by_one = episode_scorer(TASK.classify, jax.devices()[:3], **SIZES, episodes=EPISODES, one_by_one=True)
    for found in (eight, one_by_one(*variables(), embedded(), jax.random.key(KEY))):
        np.testing.assert_allclose(found, score(1), rtol=1e-5)
    assert score(8) == eight
    assert score(1, key=KEY + 1).loss != score(1).loss


def test_parts_score_the_same_and_tell_how_far_they_are(monkeypatch):
    monkeypatch.setattr(evaluation, 'EPISODES_PER_DISPATCH', 4)
    monkeypatch.setattr(evaluation, 'EPISODES_AT_ONCE', 2)
    in_parts, shares = episode_scorer(TASK.classify, jax.devices()[:1], **SIZES, episodes=EPISODES), []
    found = in_parts(*variables(), embedded(), jax.random.key(KEY), shares.append)
    np.testing.assert_allclose(found, score(1), rtol=1e-5)
    np.testing.assert_allclose(shares, [0, 0, 0.2, 0.4, 0.6])  # of five parts, two are under way


def test_confidence_by_hand():
    # deviations -2, -1, 0, 3 of mean 3: variance 14 / 3
    np.testing.assert_allclose(confidence(np.array([1.0, 2.0, 3.0, 6.0])), 1.96 * (14 / 3) ** 0.5 / 2, rtol=1e-12)
    assert confidence(np.array([5.0])) == 0
