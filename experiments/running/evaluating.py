"""The evaluations of an experiment: on validation classes during training, and for its final table."""

import itertools

import jax

from experiments.running.config import FewShotConfig
from protojax.evaluation import embedder, episode_scorer, zero_shot_scorer


def evaluators(config, task, devices):
    """Two functions of params, batch_stats and a Dataset: validate -> Score, and test -> {setting: Score}."""
    kind = few_shot_evaluators if isinstance(config, FewShotConfig) else zero_shot_evaluators
    return kind(config, task, devices)


def few_shot_evaluators(config, task, devices):
    """Episodes of the settings in the config."""
    embed = embedder(task.embed, devices)
    validation_key, test_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))

    def scorer(way, shot, episodes):
        return episode_scorer(task.classify, devices, way=way, shot=shot, query=config.test_query, episodes=episodes)

    score_validation = scorer(config.validation_way, config.shot, config.validation_episodes)

    def validate(params, batch_stats, dataset):
        return score_validation(params, embed(params, batch_stats, dataset), validation_key)

    def test(params, batch_stats, dataset):
        embedded = embed(params, batch_stats, dataset)
        settings = itertools.product(config.test_way, config.test_shot)
        return {
            f'{way}-way {shot}-shot': scorer(way, shot, config.test_episodes)(params, embedded, test_key)
            for way, shot in settings
        }

    return validate, test


def zero_shot_evaluators(config, task, devices):
    """All images of all classes at once, counted per image and per class."""
    embed, score = embedder(task.embed, devices), zero_shot_scorer(task.classify, devices)

    def validate(params, batch_stats, dataset):
        return score(params, embed(params, batch_stats, dataset))[0]

    def test(params, batch_stats, dataset):
        per_image, per_class = score(params, embed(params, batch_stats, dataset))
        way = dataset.counts.shape[0]
        return {f'{way}-way per image': per_image, f'{way}-way per class': per_class}

    return validate, test
