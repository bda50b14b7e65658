"""The evaluations of an experiment: on validation classes during training, and for its final table."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax

from experiments.compared.finetuning import as_they_are
from experiments.running.config import FewShotConfig
from experiments.running.progress import phase
from protojax.evaluation import embedder, episode_scorer, zero_shot_scorer


class Evaluators(NamedTuple):
    """What is done with a model beside training it."""

    embed: Callable  # params, batch_stats, Dataset -> embedded Dataset
    validate: Callable  # params, batch_stats, Dataset -> Score
    test: Callable  # params, embedded Dataset -> {setting of the final table: Score}


def evaluators(config, task, devices):
    """The Evaluators of an experiment, compiled for the devices."""
    kind = _few_shot_evaluators if isinstance(config, FewShotConfig) else _zero_shot_evaluators
    return kind(config, task, devices)


def keys_for_evaluating(config):
    """The random keys of validation and test episodes."""
    return jax.random.split(jax.random.fold_in(jax.random.key(config.seed), 1))


def _few_shot_evaluators(config, task, devices):
    """Episodes of the settings in the config."""
    embed = embedder(task.embed, devices)
    validation_key, test_key = keys_for_evaluating(config)

    def scorer(way, shot, episodes):
        sizes = {'way': way, 'shot': shot, 'query': config.test_query, 'unlabeled': task.unlabeled}
        alone = task.embed is as_they_are
        return episode_scorer(task.classify, devices, **sizes, episodes=episodes, one_by_one=alone)

    score_validation = scorer(config.validation_way, config.shot, config.validation_episodes)

    def validate(params, batch_stats, dataset):
        return score_validation(params, embed(params, batch_stats, dataset), validation_key)

    def test(params, embedded):
        scores = {}
        for way, shot in itertools.product(config.test_way, config.test_shot):
            setting = f'{way}-way {shot}-shot'
            with phase(f'evaluating: {config.test_episodes} episodes, {setting}') as tell:
                scores[setting] = scorer(way, shot, config.test_episodes)(params, embedded, test_key, tell)
        return scores

    return Evaluators(embed, validate, test)


def _zero_shot_evaluators(config, task, devices):
    """All images of all classes at once, counted per image and per class."""
    embed, score = embedder(task.embed, devices), zero_shot_scorer(task.classify, devices)

    def validate(params, batch_stats, dataset):
        return score(params, embed(params, batch_stats, dataset))[0]

    def test(params, embedded):
        way = embedded.counts.shape[0]
        with phase(f'evaluating: {way}-way'):
            per_image, per_class = score(params, embedded)
        return {f'{way}-way per image': per_image, f'{way}-way per class': per_class}

    return Evaluators(embed, validate, test)
