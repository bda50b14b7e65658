"""Synthetic miniImageNet and CUB: their form, determinism, and shapes by hand."""

import functools

import jax
import numpy as np
import pytest

from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.shapes import _inside, _kind, shapes


@pytest.mark.parametrize(
    'make, title, item, kind',
    [
        (functools.partial(shapes, items=6), 'synthetic shapes, not miniImageNet', (84, 84, 3), np.uint8),
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
    assert (data.train.items != other.train.items).mean() > 0.5


def test_attributes_of_birds_are_percentages_of_28_properties():
    attributes = birds(1, classes=(4, 1, 1), items=1, features=16).train.attributes
    assert attributes.shape == (4, 312) and attributes.dtype == np.float32
    assert attributes.min() >= 0 and attributes.max() <= 100
    np.testing.assert_allclose(attributes.sum(1), 2800, rtol=1e-4)


def test_a_shape_covers_what_its_outline_says():
    """A four-pointed star covers its middle, reaches to radius 1 at its points, and not as far between them."""
    kind = _kind(np.random.default_rng(0))._replace(corners=4, depth=0.3, stretch=1.0)
    angle = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    u, v = np.cos(angle), np.sin(angle)
    at_corners, between = slice(0, None, 2), slice(1, None, 2)
    for radius, expected in ((0.3, (True, True)), (0.9, (True, False)), (1.1, (False, False))):
        found = _inside(kind, radius * u, radius * v)
        assert (found[at_corners] == expected[0]).all() and (found[between] == expected[1]).all()
