"""What zero-shot learning makes of its inputs, and what few-shot learning puts into weights."""

import dataclasses
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cub
from experiments.compared.batches import sample_batch
from experiments.compared.compatibility import structured_hinge, weighted_rank
from experiments.compared.joint_embedding import image_hinge, symmetric_hinge
from experiments.running import building
from experiments.running.building import (
    _channel_statistics,
    build_augmentations,
    build_few_shot_task,
    build_zero_shot_task,
)
from experiments.running.config import ConfigError, FewShotConfig, ZeroShotConfig
from experiments.running.driver import ExperimentRun, _evaluate_run_of_weights, save_experiment_weights
from experiments.running.identity import config_to_json, configured
from protojax.datasets import Data, Split
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.errors import WeightsError
from protojax.pretrained import load_pretrained

CONFIG = ZeroShotConfig(way=4, query=2, dimensions=16)


def split(seed, *, factor=1.0, shift=0.0, padding=0.0):
    """Six classes with 3 items of 2 crops, in room for 5."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(6, 5, 2, 7)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)
    attributes = rng.uniform(0, 100, (6, 4)).astype(np.float32)
    items = items * factor + shift
    items[:, 3:] = padding
    names = tuple(f'class{k}' for k in range(6))
    return Split(items, np.full(6, 3, np.int32), names, attributes * factor + shift)


def problem(**change):
    train = split(0, **change)
    return build_zero_shot_task(CONFIG, Data('tiny', True, train, split(1, **change), None)), train


def embedded(task, train, params):
    """Embeddings of the training images and scores of the classes."""
    images = task.embed(params, {}, train.items[:, :3].reshape(-1, 2, 7))
    labels = np.repeat(np.arange(6), 3)
    episode = Episode(images[:0], labels[:0], images, labels, np.arange(6), attributes=train.attributes)
    return images, task.classify(params, episode)


NAMED = {'ale': weighted_rank, 'sje': structured_hinge, 'ds-sje': symmetric_hinge, 'da-sje': image_hinge}


@pytest.mark.parametrize('model', NAMED)
def test_a_name_stands_for_the_loss_of_its_system(model):
    """The loss of one key is that of the drawn images, which have one crop each, in the scores of the task."""
    train = split(0)
    train = train._replace(items=train.items[:, :, :1])
    batches = model in ('ale', 'sje')
    values = {'query': 3} if batches else {'query': 2, 'dimensions': 16, 'image_start': 1.0}
    config = configured(cub.RECIPE, {'model': model, 'way': 4, **values})
    task = build_zero_shot_task(config, Data('tiny', True, train, split(1), None))
    (params, stats), key = task.initialize(jax.random.key(0)), jax.random.key(1)
    data = Dataset(*map(jnp.asarray, (train.items, train.counts, train.attributes)))

    @jax.jit
    def found_and_expected(params, stats, key):
        episode = sample_batch(key, data, size=3) if batches else sample_episode(key, data, way=4, shot=0, query=2)
        scores = task.classify(params, episode._replace(query=task.embed(params, stats, episode.query)))
        expected = NAMED[model](scores, episode.query_labels).mean()
        return task.loss(params, stats, data, key)[0], expected

    np.testing.assert_allclose(*found_and_expected(params, stats, key), rtol=1e-5)


def test_ale_and_sje_learn_from_one_image_at_a_time():
    for model in ('ale', 'sje'):
        config = configured(cub.RECIPE, {'model': model})
        assert (config.query, config.optimizer, config.weight_decay) == (1, 'sgd', 0)


def test_way_shot_and_query_of_training_are_those_of_the_flags(monkeypatch):
    monkeypatch.setattr(building, 'few_shot_task', lambda *args, **options: options)
    classes = Split(np.zeros((8, 10, 16, 16, 1), np.uint8), np.full(8, 10, np.int32), tuple('abcdefgh'))
    given = {'way': 7, 'shot': 3, 'query': 4}
    config = FewShotConfig(**given, test_way=(2,), test_shot=(1,), test_query=5, validation_way=2)
    built = build_few_shot_task(config, Data('tiny', True, classes, classes, classes))
    assert {name: built[name] for name in given} == given


def test_training_starts_from_equal_scores_of_all_classes():
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    images, logits = embedded(task, train, params)
    assert not images.any()
    np.testing.assert_allclose(logits, np.full((18, 6), -1), rtol=1e-5)  # prototypes have unit length
    gradient = jax.jit(jax.grad(lambda p: jax.nn.log_softmax(embedded(task, train, p)[1])[:, 0].sum()))(params)
    assert np.linalg.norm(gradient['encoder']['Dense_0']['kernel']) > 1


@pytest.mark.parametrize('change', [{'factor': 50.0}, {'shift': 20.0}, {'padding': 1e6}], ids=str)
def test_unit_origin_and_padding_of_the_inputs_do_not_matter(change):
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    params['encoder'] = jax.tree.map(lambda p: p + 1, params['encoder'])
    other_task, other_train = problem(**change)
    for ours, others in zip(embedded(task, train, params), embedded(other_task, other_train, params), strict=True):
        np.testing.assert_allclose(others, ours, rtol=1e-3, atol=1e-3)


def test_inputs_keep_their_relative_spread():
    """Dimension k of the features varies k times as much as the first, and still does so when scaled."""
    task, train = problem()
    params, _ = task.initialize(jax.random.key(0))
    kernel = np.eye(7, 16, dtype=np.float32)
    images, _ = embedded(task, train, {**params, 'encoder': {'Dense_0': {'kernel': kernel, 'bias': np.zeros(16)}}})
    expected = train.items[:, :3, 0].reshape(-1, 7).std(0)
    np.testing.assert_allclose(images[:, :7].std(0) / images[:, 0].std(), expected / expected[0], rtol=1e-4)
    every_crop = train.items[:, :3].reshape(-1, 7)
    scale = np.sqrt(((every_crop - every_crop.mean(0)[None]) ** 2).mean())
    np.testing.assert_allclose(images[:, :7].std(0), expected / scale, rtol=1e-4)


def built(**values):
    train = split(0)
    task = build_zero_shot_task(dataclasses.replace(CONFIG, **values), Data('tiny', True, train, split(1), None))
    params, _ = task.initialize(jax.random.key(0))
    return task, train, params


def test_flags_say_what_is_done_to_the_inputs_of_zero_shot_learning():
    kernel, identity = np.eye(7, 16, dtype=np.float32), {}
    for name in ('center_inputs', 'scale_inputs'):
        task, train, params = built(**{name: False})
        params['encoder'] = {'Dense_0': {'kernel': kernel, 'bias': np.zeros(16)}}
        identity[name] = embedded(task, train, params)[0][:, :7]
    items = train.items[:, :3, 0].reshape(-1, 7)
    every = train.items[:, :3].reshape(-1, 7)
    np.testing.assert_allclose(identity['scale_inputs'], items - every.mean(0)[None], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(identity['center_inputs'], items / np.sqrt((every**2).mean()), rtol=1e-3, atol=1e-4)


def test_flags_say_how_the_maps_of_zero_shot_learning_start_and_end():
    task, train, params = built(image_start=2.0, attribute_start=0.5)
    usual = [1 / 7**0.5, 1 / 4**0.5]
    for part, times, size in zip(('encoder', 'classifier'), (2.0, 0.5), usual, strict=True):
        np.testing.assert_allclose(params[part]['Dense_0']['kernel'].std(), times * size, rtol=0.3)
    by_cosine = embedded(*built(distance='cosine', image_start=2.0)[:2], params)[1]
    assert (by_cosine <= 1e-5).all() and (by_cosine >= -2 - 1e-5).all()
    free = built(unit_length=False)[0]
    images, logits = embedded(free, train, params)
    lengths = -logits[0] - (images[0] ** 2).sum()  # |c|^2 - 2 z.c
    assert np.ptp(lengths) > 0.1 and free.attribute_encoder.unit_length is False


@pytest.mark.parametrize('mirrors, pixels', [(False, 0), (True, 0), (False, 2), (True, 2)])
def test_flags_say_how_training_images_are_changed(mirrors, pixels):
    image = np.zeros((1, 9, 9, 1), np.uint8)
    image[:, 4, 2] = 255  # right of the middle when mirrored, in other rows when moved
    rows, columns = set(), set()
    for seed in range(50):
        changed = image
        for change in build_augmentations(FewShotConfig(mirror=mirrors, shift=pixels)):
            changed = change(jax.random.key(seed), changed, np.zeros(1, int), way=1)
        rows.update(np.nonzero(changed)[1].tolist())
        columns.update(np.nonzero(changed)[2].tolist())
    assert rows == set(range(4 - pixels, 5 + pixels))
    assert columns >= ({2, 6} if mirrors else {2})
    assert (max(columns) > 4) == mirrors


@pytest.mark.parametrize(
    'method', [{'distance': 'euclidean'}, {'distance': 'cosine'}, {'model': 'matching', 'context': 'fce'}]
)
def test_weights_hold_the_temperature_of_squared_distances(method, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16, 1), dtype=np.uint8)
    classes = Split(images, np.full(4, 3, np.int32), tuple('abcd'), None)
    data = Data('tiny', True, classes, classes, classes)
    config = FewShotConfig(way=2, shot=1, query=2, test_way=(2,), test_shot=(1,), test_query=2, validation_way=2)
    config = dataclasses.replace(config, kernels='off', temperature=16.0, **method)

    def scores(task, params, batch_stats):
        def of_images(params, batch_stats):
            embeddings = task.embed(params, batch_stats, images[:, 0])
            labels = np.arange(4)
            return task.classify(params, Episode(embeddings, labels, embeddings, labels, labels))

        return jax.jit(of_images)(params, batch_stats)

    task = build_few_shot_task(config, data)
    params, batch_stats = task.initialize(jax.random.key(0))
    run = ExperimentRun(config, None, data, task, [], SimpleNamespace(path=tmp_path))
    save_experiment_weights(run, (params, batch_stats), {'seed': 3})
    expected = scores(task, params, batch_stats)
    file = str(tmp_path / 'weights.safetensors')
    weights = load_pretrained(file)
    assert weights.description['results'] == {'seed': 3}
    variables = {'encoder': weights.params, 'classifier': weights.classifier}, weights.batch_stats
    again = build_few_shot_task(dataclasses.replace(config, weights=file), data)
    np.testing.assert_allclose(scores(again, *variables), expected, rtol=1e-5, atol=1e-6)
    plain = build_few_shot_task(dataclasses.replace(config, weights=file, temperature=1.0), data)
    without = scores(plain, *variables)
    if 'context' not in method:
        factor = 1 if method['distance'] == 'euclidean' else 16
        np.testing.assert_allclose(without, expected * factor, rtol=1e-5, atol=1e-6)
    assert np.ptp(expected) > 0

    save_experiment_weights(run, (params, batch_stats), {'config': config_to_json(config)})
    other = dataclasses.replace(config, weights=file, model='prototypical', context='none', distance='mahalanobis')
    with pytest.raises(ConfigError, match='were trained with --(distance|model)=.*; give this flag'):
        build_few_shot_task(other, data)


@pytest.mark.parametrize('channels', [1, 3])
def test_training_starts_from_weights_of_images_with_as_many_channels(channels):
    classes = Split(np.zeros((4, 3, 28, 28, channels), np.uint8), np.full(4, 3, np.int32), tuple('abcd'), None)
    data = Data('tiny', True, classes, classes, classes)
    config = FewShotConfig(way=2, shot=1, query=2, test_way=(2,), test_shot=(1,), test_query=2, validation_way=2)
    config = dataclasses.replace(config, init='omniglot-60way-1shot')
    if channels == 3:
        with pytest.raises(ConfigError, match='is of 28x28x1 images and cannot embed those of 28x28x3'):
            build_few_shot_task(config, data)
        return
    params, batch_stats = build_few_shot_task(config, data).initialize(jax.random.key(0))
    weights = load_pretrained(config.init)
    jax.tree.map(np.testing.assert_array_equal, params['encoder'], weights.params)
    jax.tree.map(np.testing.assert_array_equal, batch_stats, weights.batch_stats)


@pytest.mark.parametrize(('distance', 'missing'), [('mahalanobis', 'factor'), ('diagonal', 'variance')])
def test_weights_without_what_a_distance_has_learned_are_refused(distance, missing, tmp_path):
    classes = Split(np.zeros((4, 3, 16, 16, 1), np.uint8), np.full(4, 3, np.int32), tuple('abcd'), None)
    data = Data('tiny', True, classes, classes, classes)
    config = FewShotConfig(way=2, shot=1, query=2, test_way=(2,), test_shot=(1,), test_query=2, validation_way=2)
    run = ExperimentRun(config, None, data, build_few_shot_task(config, data), [], SimpleNamespace(path=tmp_path))
    save_experiment_weights(run, run.task.initialize(jax.random.key(0)), {})
    config = dataclasses.replace(config, distance=distance, weights=str(tmp_path / 'weights.safetensors'))
    with pytest.raises(WeightsError, match=f'not of this method .params/classifier/{missing} is missing') as error:
        _evaluate_run_of_weights(run._replace(config=config, task=build_few_shot_task(config, data)))
    assert '\n' not in str(error.value)


def test_weights_of_other_attributes_are_refused(tmp_path):
    task, train = problem()
    data = Data('tiny', True, train, split(1), None)
    run = ExperimentRun(CONFIG, None, data, task, [], SimpleNamespace(path=tmp_path))
    save_experiment_weights(run, task.initialize(jax.random.key(0)), {})
    config = dataclasses.replace(CONFIG, weights=str(tmp_path / 'weights.safetensors'))
    assert build_zero_shot_task(config, data).attribute_encoder.item_shape == (4,)
    fewer = data._replace(train=train._replace(attributes=train.attributes[:, :3]))
    with pytest.raises(ConfigError, match='know no classes by 3 attributes; give others'):
        build_zero_shot_task(config, fewer)


def test_advice_names_a_flag_that_can_help():
    classes = Split(np.zeros((5, 10, 16, 16, 1), np.uint8), np.full(5, 10, np.int32), tuple('abcde'), None)
    data = Data('tiny', True, classes, classes, classes)
    fitting = {'way': 2, 'validation_way': 2, 'test_way': (2,), 'test_shot': (1,), 'test_query': 2}
    for shot, query, advice in [
        (25, 1, 'lower --shot$'),
        (1, 25, 'lower --query$'),
        (8, 8, 'lower --query or --shot$'),
    ]:
        with pytest.raises(ConfigError, match=advice):
            build_few_shot_task(FewShotConfig(shot=shot, query=query, **fitting), data)
    with pytest.raises(ConfigError, match='lower --shot and --query$'):
        build_few_shot_task(FewShotConfig(shot=20, query=20, **fitting), data)


def test_channel_statistics():
    rng = np.random.default_rng(0)
    items, counts = rng.integers(0, 256, (3, 5, 84, 84, 3), dtype=np.uint8), np.array([5, 2, 4], np.int32)
    mean, deviation = _channel_statistics(Split(items, counts, ('a', 'b', 'c')))
    pixels = np.concatenate([own[:count].reshape(-1, 3) for own, count in zip(items, counts, strict=True)]) / 255
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-6)
    np.testing.assert_allclose(deviation, pixels.std(0), rtol=1e-6)
    assert mean.dtype == deviation.dtype == np.float32


def test_images_of_padding_do_not_count():
    items = np.zeros((1, 2, 84, 84, 3), np.uint8)
    items[0, 0] = 255
    mean, deviation = _channel_statistics(Split(items, np.array([1], np.int32), ('a',)))
    assert mean.tolist() == [1, 1, 1] and deviation.tolist() == [0, 0, 0]


class Plain(nn.Module):
    """An encoder of somebody's own with no field at all."""

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        return nn.Dense(3)(images.reshape(len(images), -1) / 255)


def test_an_encoder_needs_none_of_the_optional_fields():
    images = np.random.default_rng(0).integers(0, 256, (5, 20, 6, 6, 1), np.uint8)
    classes = Split.from_classes({str(k): own for k, own in enumerate(images)})
    config = FewShotConfig(way=3, shot=1, query=2, test_way=(3,), test_query=2, validation_way=3)
    data = Data('tiny', False, classes, classes, classes)
    task = build_few_shot_task(config, data, Plain())
    params, batch_stats = task.initialize(jax.random.key(0))
    assert task.embed(params, batch_stats, images[0]).shape == (20, 3)
    with pytest.raises(ConfigError, match='--precision=bfloat16, but Plain has no field dtype'):
        build_few_shot_task(dataclasses.replace(config, precision='bfloat16'), data, Plain())
