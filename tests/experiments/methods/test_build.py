"""Learners that methods build: inputs of zero-shot learning, encoders, and weights with their options."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cub, methods, omniglot
from experiments.methods import batches, encoders
from experiments.methods.compatibility import structured_hinge, weighted_rank
from experiments.methods.joint_embedding import image_hinge, symmetric_hinge
from experiments.methods.options import ConfigError
from experiments.running import driver, fit
from protojax import Dataset, Episode, Splits, load_pretrained, sample_episode

NAMED = {'ale': weighted_rank, 'sje': structured_hinge, 'ds-sje': symmetric_hinge, 'da-sje': image_hinge}
KEY = jax.random.key(0)
SMALL = {'way': 2, 'shot': 1, 'query': 2, 'test_way': (2,), 'test_shot': (1,), 'test_query': 2, 'validation_way': 2}


def birds(seed, *, factor=1.0, shift=0.0, padding=0.0):
    """Six classes with 3 items of 2 crops, padded to 5 items."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(6, 5, 2, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    attributes = rng.uniform(0, 100, (6, 4)).astype(np.float32)
    items = items * factor + shift
    items[:, 3:] = padding
    return Dataset(items, np.full(6, 3, np.int32), attributes * factor + shift, tuple('abcdef'))


def zero_shot(values=None, **change):
    """Build the learner of zero-shot prototypical networks -> learner, training data, initial params."""
    train = birds(0, **change)
    config = cub.EXPERIMENT.config(**{'way': 4, 'query': 2, 'dimensions': 16, **(values or {})})
    learner = methods.build(cub.EXPERIMENT.method(config.flat), config, Splits('tiny', True, train, birds(1)))
    return learner, train, learner.init(KEY)[0]


def embedded(learner, train, params):
    """Return embeddings of the training images and scores of the classes."""
    images = learner.embed(params, {}, train.items[:, :3].reshape(-1, 2, 7))
    labels = np.repeat(np.arange(6), 3)
    episode = Episode(images[:0], labels[:0], images, labels, np.arange(6), attributes=train.attributes)
    return images, learner.classify(params, {}, episode)


@pytest.mark.parametrize('model', NAMED)
def test_the_loss_of_a_zero_shot_method(model):
    """The loss of one key is the method's loss of the drawn images, in the scores of the learner."""
    train = birds(0)
    train = train._replace(items=train.items[:, :, :1])  # one crop
    in_batches = model in ('ale', 'sje')
    values = {'query': 3} if in_batches else {'query': 2, 'dimensions': 16, 'image_start': 1.0}
    config = cub.EXPERIMENT.config(model=model, way=4, **values)
    learner = methods.build(methods.ZERO_SHOT[model], config, Splits('tiny', True, train, birds(1)))
    assert learner.zero_shot and learner.in_batches == in_batches
    (params, stats), key = learner.init(jax.random.key(0)), jax.random.key(1)
    data = Dataset(*map(jnp.asarray, train[:3]))

    @jax.jit
    def found_and_expected(params, stats, key):
        sizes = {'way': 4, 'shot': 0, 'query': 2}
        episode = batches.sample(key, data, size=3) if in_batches else sample_episode(key, data, **sizes)
        scores = learner.classify(params, stats, episode._replace(query=learner.embed(params, stats, episode.query)))
        return learner.loss(params, stats, data, key)[0], NAMED[model](scores, episode.query_labels).mean()

    np.testing.assert_allclose(*found_and_expected(params, stats, key), rtol=1e-5)


@pytest.mark.parametrize('change', [{'factor': 50.0}, {'shift': 20.0}, {'padding': 1e6}], ids=str)
def test_scale_offset_and_padding_of_the_inputs_do_not_matter(change):
    learner, train, params = zero_shot()
    params['encoder'] = jax.tree.map(lambda p: p + 1, params['encoder'])
    other, other_train, _ = zero_shot(**change)
    for ours, theirs in zip(embedded(learner, train, params), embedded(other, other_train, params), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-3)


def images(size=16):
    items = np.random.default_rng(0).integers(0, 256, (4, 3, size, size, 1), dtype=np.uint8)
    classes = Dataset(items, np.full(4, 3, np.int32), names=tuple('abcd'))
    return Splits('tiny', True, classes, classes, classes)


def few_shot(data, **values):
    """Build a few-shot learner -> config, learner."""
    config = omniglot.EXPERIMENT.config(**SMALL, **values)
    return config, methods.build(omniglot.EXPERIMENT.method(config.flat), config, data)


def scores(learner, params, batch_stats, items):
    def of_images(params, batch_stats):
        embeddings, labels = learner.embed(params, batch_stats, items[:, 0]), np.arange(4)
        return learner.classify(params, batch_stats, Episode(embeddings, labels, embeddings, labels, labels))

    return jax.jit(of_images)(params, batch_stats)


@pytest.mark.parametrize('method', [{}, {'distance': 'cosine'}], ids=str)
def test_weights_include_the_temperature_of_squared_distances(method, tmp_path):
    data, values = images(), {'kernels': 'off', 'temperature': 16.0, **method}
    config, learner = few_shot(data, **values)
    job, variables = fit.Job(config, None, data, learner, [], SimpleNamespace(path=tmp_path)), learner.init(KEY)
    driver._save_weights(job, fit.Model(None, None, *variables), {'config': config.identity})
    expected, file = scores(learner, *variables, data.train.items), str(tmp_path / 'weights.safetensors')
    weights = load_pretrained(file)
    loaded = {'encoder': weights.params, 'classifier': weights.classifier}, weights.batch_stats
    found = scores(few_shot(data, weights=file, **values)[1], *loaded, data.train.items)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    plain = few_shot(data, weights=file, **{**values, 'temperature': 1.0})[1]
    without = scores(plain, *loaded, data.train.items)
    np.testing.assert_allclose(without, expected * (16 if method else 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match='were trained with --distance=.*; set this flag'):
        few_shot(data, weights=file, distance='mahalanobis')


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'prototypes_per_class': 2}, '--prototypes_per_class=2: expected at most --shot=1'),
        ({'pretrain': 10, 'embedding': 'separate'}, '--pretrain is for one encoder'),
        ({'unlabeled': 1, 'embedding': 'separate'}, '--unlabeled is for one encoder'),
        ({'init': 'omniglot-60way-1shot', 'temperature': 64.0}, 'set --pretrain=0 --temperature=1'),
        ({'model': 'metalstm', 'test_way': (5,)}, '--way=2 --validation_way=2 --test_way=5: expected equal values'),
    ],
)
def test_options_that_contradict_each_other(values, message):
    with pytest.raises(ConfigError, match=message):
        config = omniglot.EXPERIMENT.config(**{**SMALL, **values})
        methods.build(omniglot.EXPERIMENT.method(config.flat), config, images(28))


def test_channel_statistics_leave_out_padding():
    rng = np.random.default_rng(0)
    items, counts = rng.integers(0, 256, (3, 5, 8, 8, 3), dtype=np.uint8), np.array([5, 2, 4], np.int32)
    mean, deviation = encoders.channel_statistics(Dataset(items, counts))
    pixels = np.concatenate([own[:count].reshape(-1, 3) for own, count in zip(items, counts, strict=True)]) / 255
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-6)
    np.testing.assert_allclose(deviation, pixels.std(0), rtol=1e-6)
    assert mean.dtype == deviation.dtype == np.float32
