"""A stand-in for CUB zero-shot that needs no files: classes with attributes, and features that depend on them.

As in CUB, the attributes of a class are the percentages of people who see each value (red, black, ...) of each property
(colour of the bill, shape of the tail, ...). Single birds differ from their class, and the features of an image are an
unknown map of what its bird looks like: a map learnt on some classes carries over to others, though not perfectly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from protojax.datasets import Data, Split

PROPERTIES = (15,) * 18 + (4,) * 8 + (5,) * 2  # values of each property, 312 in all
STARTS = np.concatenate([[0], np.cumsum(PROPERTIES)[:-1]])
TRAITS = 20  # hidden dimensions in which birds differ and from which all properties follow
CROPS = 10


class _BirdWorld(NamedTuple):
    """What is unknown to the learner."""

    tastes: np.ndarray  # float32 [TRAITS, 312], traits to scores of the values
    first: np.ndarray  # float32 [312, features]
    second: np.ndarray  # float32 [features, features]


def birds(
    seed: int = 0, *, classes: Sequence[int] = (100, 50, 50), items: int = 15, features: int = 1024, noise: float = 1.0
) -> Data:
    """Train, validation and test splits of different classes.

    items float32 [classes, items, 10, features], attributes float32 [classes, 312] of 0-100; noise makes it harder.
    """
    rng = np.random.default_rng(seed)
    sizes = (TRAITS, 312), (312, features), (features, features)
    world = _BirdWorld(*(_normal(rng, size) / size[0] ** 0.5 for size in sizes))
    splits, count = [], 0
    for own in classes:
        names = tuple(f'{k + 1:03}.Invented_Bird' for k in range(count, count + own))
        splits.append(_split_of_birds(rng, world, names, items, noise))
        count += own
    return Data('synthetic birds, not CUB', True, *splits)


def _split_of_birds(rng, world: _BirdWorld, names: tuple[str, ...], items: int, noise: float) -> Split:
    """Classes with traits of their own, birds around these, and ten crops of each bird."""
    traits = _normal(rng, (len(names), 1, TRAITS))
    habits = _normal(rng, (len(names), 1, 312)) / 2  # what does not follow from the traits
    seen = _percentages(world, traits + noise * _normal(rng, (len(names), items, TRAITS)), habits)
    hidden = np.tanh((seen.reshape(-1, 312) - 100 / 12) / 10 @ world.first) @ world.second
    crops = noise * 0.7 * _normal(rng, (len(names), items, CROPS, hidden.shape[-1]))
    crops += hidden.reshape(len(names), items, 1, -1)
    np.maximum(crops, 0, out=crops)  # as a network's features are
    return Split(crops, np.full(len(names), items, np.int32), names, _percentages(world, traits, habits)[:, 0])


def _percentages(world: _BirdWorld, traits: np.ndarray, habits: np.ndarray) -> np.ndarray:
    """How many see each value of a property: [..., TRAITS] -> [..., 312], 100 within each property."""
    scores = np.exp(2 * traits @ world.tastes + habits)
    return 100 * scores / np.repeat(np.add.reduceat(scores, STARTS, -1), PROPERTIES, -1)


def _normal(rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(size, np.float32)
