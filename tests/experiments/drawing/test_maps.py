"""Maps of many classes."""

import numpy as np

from experiments.drawing import maps
from experiments.drawing.style import encoded_drawing
from tests.helpers.made_up import classes

RNG = np.random.default_rng(0)


def test_an_item_has_no_part_in_the_prototype_it_is_compared_with():
    found = classes(4, 5, spread=3.0)
    for number, nearest in enumerate(maps.nearest(found)):
        others = np.arange(len(found.points)) != number
        means = [found.points[others & (found.labels == k)].mean(0) for k in range(4)]
        assert nearest == np.argmin([np.sum((found.points[number] - mean) ** 2) for mean in means])


def test_a_map_marks_prototypes_and_mistakes():
    found = classes(3, 4)
    predicted = np.array([0, 0, 0, 2, *found.labels[4:]])
    places, prototypes = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
    figure = maps.draw(places, prototypes, found, predicted, 'title', 'remark')
    (axes,) = figure.axes
    assert len(axes.images) == 12 + 3
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    np.testing.assert_allclose(arrow.xy, prototypes[0])
    np.testing.assert_allclose(arrow.get_position(), places[3])
    assert encoded_drawing(figure)
