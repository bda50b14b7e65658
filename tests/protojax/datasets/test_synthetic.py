"""Synthetic data sets: their form and determinism."""

import functools

import jax
import numpy as np
import pytest

from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.datasets.synthetic.shapes import shapes


def drawings(seed, classes):
    return handwriting(seed, alphabets=classes, characters=1, drawings=6)


@pytest.mark.parametrize(
    'make, title, item, kind',
    [
        (functools.partial(shapes, items=6), 'synthetic shapes, not miniImageNet', (84, 84, 3), np.uint8),
        (drawings, 'synthetic handwriting, not Omniglot', (28, 28, 1), np.uint8),
        (functools.partial(birds, items=6, features=16), 'synthetic birds, not CUB', (10, 16), np.float32),
    ],
)
def test_forms_are_those_of_the_real_data_and_follow_from_the_seed(make, title, item, kind):
    data, same, other = (make(seed, classes=(4, 2, 3)) for seed in (1, 1, 2))
    assert data.synthetic and data.title == title
    for split, again, classes in zip(data[2:], same[2:], (4, 2, 3), strict=True):
        assert split.items.shape == (classes, 6, *item) and split.items.dtype == kind
        assert split.counts.tolist() == [6] * classes and len(set(split.names)) == classes
        jax.tree.map(np.testing.assert_array_equal, split[:3], again[:3])
    items = np.concatenate([split.items.reshape(-1, np.prod(item)) for split in data[2:]])
    assert len(np.unique(items, axis=0)) == 54
    assert (data.train.items != other.train.items).mean() > 0.05  # most of a drawing is empty
