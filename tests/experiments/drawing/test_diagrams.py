"""Diagrams of prototypes."""

import numpy as np
import pytest
from matplotlib.contour import ContourSet

from experiments.drawing import diagrams
from experiments.drawing.style import DrawnClasses, encoded_drawing
from tests.helpers.made_up import classes

RNG = np.random.default_rng(0)


def test_the_plane_of_three_prototypes_keeps_the_regions():
    """The nearest point in six dimensions is the nearest in the plane, by the same difference of squared distances."""
    prototypes, points = RNG.normal(size=(3, 6)), RNG.normal(size=(50, 6))
    onto = diagrams.plane(prototypes)

    def differences(points, prototypes):
        squares = np.sum((points[:, None] - prototypes) ** 2, -1)
        return squares - squares[:, :1]

    np.testing.assert_allclose(differences(onto(points), onto(prototypes)), differences(points, prototypes))


@pytest.mark.filterwarnings('error::UserWarning')
@pytest.mark.parametrize('few_shot', [True, False])
def test_a_diagram_has_support_prototypes_query_and_regions(few_shot):
    support = classes(3, 4)
    prototypes = np.stack([support.points[support.labels == k].mean(0) for k in range(3)])
    query = DrawnClasses(support.points[:1] + 0.1, support.labels[:1], support.names, support.images)
    figure = diagrams.draw(support, prototypes, query, 'title', 'remark', few_shot=few_shot)
    (axes,) = figure.axes
    black = [line for line in axes.lines if line.get_color() == 'black' and line.get_marker() == 'o']
    shown = np.array([line.get_xydata()[0] for line in black])
    distances = [np.linalg.norm(points[:, None] - points, axis=-1) for points in (shown, prototypes)]
    np.testing.assert_allclose(*distances)
    joined = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert len(joined) == 3 + (12 if few_shot else 0)  # the query to each prototype, and the support to its own
    assert len(axes.images) == 13  # support and query
    assert sum(isinstance(part, ContourSet) and part.filled for part in axes.collections) == 3  # regions
    assert encoded_drawing(figure, 'pdf')
