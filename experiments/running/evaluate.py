"""Evaluation of a model: on validation classes during training, and on all settings of the final table."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments.running import progress
from experiments.running.config import Config
from protojax import Dataset, Learner, Score, embedder, episode_scorer, evaluation


class Setting(NamedTuple):
    """A cell of the final table; its text is the key in results.json."""

    way: int
    kind: str  # '1-shot', or 'per image' and 'per class' in zero-shot learning

    def __str__(self) -> str:
        return f'{self.way}-way {self.kind}'


class Evaluators(NamedTuple):
    """Evaluations of one learner, compiled for the devices."""

    embed: Callable[..., Dataset]  # params, batch_stats, Dataset[, progress] -> Dataset of embeddings
    validate: Callable[..., Score]  # params, batch_stats, Dataset -> Score
    test: Callable[..., dict[Setting, Score]]  # params, batch_stats, Dataset of embeddings -> scores


def evaluators(config: Config, learner: Learner, devices: Sequence[jax.Device]) -> Evaluators:
    """Build the evaluations of a learner."""
    return (_zero_shot if learner.zero_shot else _few_shot)(config, learner, devices)


def keys(config: Config) -> Any:
    """Return the random keys of validation and test episodes."""
    return jax.random.split(jax.random.fold_in(jax.random.key(config.run.seed), 1))


def _few_shot(config, learner, devices):
    """Score episodes of the settings in the configuration."""
    sizes, embed = config.episodes, embedder(learner.embed, devices)
    validation_key, test_key = keys(config)

    def scorer(way, shot, episodes):
        options = {'query': sizes.test_query, 'unlabeled': learner.unlabeled, 'one_by_one': learner.adapts}
        return episode_scorer(learner.classify, devices, way=way, shot=shot, episodes=episodes, **options)

    score = scorer(sizes.validation_way, sizes.shot, sizes.validation_episodes)

    def validate(params, batch_stats, dataset):
        return score(params, batch_stats, embed(params, batch_stats, dataset), validation_key)

    def test(params, batch_stats, embedded):
        scores = {}
        for way, shot in itertools.product(sizes.test_way, sizes.test_shot):
            setting = Setting(way, f'{shot}-shot')
            with progress.phase(f'evaluating: {sizes.test_episodes} episodes, {setting}') as report:
                cell = scorer(way, shot, sizes.test_episodes)
                scores[setting] = cell(params, batch_stats, embedded, test_key, report)
        return scores

    return Evaluators(embed, validate, test)


def _zero_shot(config, learner, devices):
    """Score all images of all classes, per image and per class."""
    embed, score = embedder(learner.embed, devices), evaluation.zero_shot_scorer(learner.classify, devices)

    def validate(params, batch_stats, dataset):
        return score(params, batch_stats, embed(params, batch_stats, dataset))[0]

    def test(params, batch_stats, embedded):
        way = embedded.counts.shape[0]
        with progress.phase(f'evaluating: {way}-way'):
            per_image, per_class = score(params, batch_stats, embedded)
        return {Setting(way, 'per image'): per_image, Setting(way, 'per class'): per_class}

    return Evaluators(embed, validate, test)
