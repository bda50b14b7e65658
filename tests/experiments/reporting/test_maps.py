"""Maps of many classes."""

import numpy as np
import pytest
from made_up import classes

from experiments.reporting.drawing import encoded_drawing
from experiments.reporting.maps import class_map, flat_map, nearest_on_map, tsne

RNG = np.random.default_rng(0)


def test_an_item_has_no_part_in_the_prototype_it_is_compared_with():
    found = classes(4, 5, spread=3.0)
    for number, nearest in enumerate(nearest_on_map(found)):
        others = np.arange(len(found.points)) != number
        means = [found.points[others & (found.labels == k)].mean(0) for k in range(4)]
        assert nearest == np.argmin([np.sum((found.points[number] - mean) ** 2) for mean in means])


def test_a_map_marks_prototypes_and_mistakes():
    found = classes(3, 4)
    predicted = np.array([0, 0, 0, 2, *found.labels[4:]])
    places, prototypes = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
    figure = class_map(places, prototypes, found, predicted, 'title', 'remark')
    (axes,) = figure.axes
    assert len(axes.images) == 12 + 3
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    np.testing.assert_allclose(arrow.xy, prototypes[0])
    np.testing.assert_allclose(arrow.get_position(), places[3])
    assert encoded_drawing(figure)


def test_neighbours_stay_together():
    pytest.importorskip('sklearn', reason='t-SNE is that of scikit-learn')
    found = classes(4, 10, spread=0.3)
    places = tsne(found.points)
    distances = np.sum((places[:, None] - places) ** 2, -1) + 1e9 * np.eye(40)
    assert np.mean(found.labels[distances.argmin(1)] == found.labels) > 0.9


def test_a_map_is_laid_flat_without_changing_distances():
    angle = np.pi / 3
    points = np.array([[0, 0], [10, 0], [10, 1], [0, 1.0]])
    turned = points @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    np.testing.assert_allclose(np.ptp(flat_map(turned), 0), [10, 1], atol=0.05)
    distances = [np.linalg.norm(p[:, None] - p, axis=-1) for p in (points, flat_map(turned))]
    np.testing.assert_allclose(*distances, atol=1e-9)
