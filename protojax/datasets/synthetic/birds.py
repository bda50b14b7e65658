"""Synthetic replacement for CUB zero-shot learning: classes with attributes, and image features that depend on them.

As in CUB, the attributes of a class are the percentages of people who see each value (red, black, ...) of each property
(colour of the bill, shape of the tail, ...). Birds vary within their class. The features of an image are a fixed random
function of the bird's attributes, so a map learned on some classes generalises to others, but not perfectly.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from protojax.datasets import Splits
from protojax.episodes import Dataset

PROPERTIES = (15,) * 18 + (4,) * 8 + (5,) * 2  # values of each property, 312 in all
STARTS = np.concatenate([[0], np.cumsum(PROPERTIES)[:-1]])  # index of the first value of each property
TRAITS = 20  # latent dimensions that determine most of the attributes
CROPS = 10


def birds(
    seed: int = 0, *, classes: Sequence[int] = (100, 50, 50), items: int = 15, features: int = 1024, noise: float = 1.0
) -> Splits:
    """Generate train, validation and test splits with different classes.

    Items are float32 [classes, items, 10, features], attributes float32 [classes, 312] in percent. More `noise` makes
    the classes harder to distinguish.
    """
    normal = partial(np.random.default_rng(seed).standard_normal, dtype=np.float32)
    sizes = (TRAITS, 312), (312, features), (features, features)
    to_scores, first_layer, second_layer = (normal(size) / size[0] ** 0.5 for size in sizes)

    def percentages(traits, offsets):  # [..., TRAITS] -> [..., 312], with a sum of 100 within each property
        scores = np.exp(2 * traits @ to_scores + offsets)
        return 100 * scores / np.repeat(np.add.reduceat(scores, STARTS, -1), PROPERTIES, -1)

    splits, first = [], 1
    for count in classes:
        names = tuple(f'{number:03}.Invented_Bird' for number in range(first, first + count))
        traits = normal((count, 1, TRAITS))
        offsets = normal((count, 1, 312)) / 2  # part of the attributes that does not follow from the traits
        birds = percentages(traits + noise * normal((count, items, TRAITS)), offsets)
        hidden = np.tanh((birds.reshape(-1, 312) - 100 / 12) / 10 @ first_layer) @ second_layer
        crops = noise * 0.7 * normal((count, items, CROPS, features))
        crops += hidden.reshape(count, items, 1, features)
        np.maximum(crops, 0, out=crops)  # like the features of a network with ReLUs
        attributes = percentages(traits, offsets)[:, 0]
        splits.append(Dataset(crops, np.full(count, items, np.int32), attributes, names))
        first += count
    return Splits('synthetic birds, not CUB', True, *splits)
