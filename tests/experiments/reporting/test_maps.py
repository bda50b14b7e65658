"""Embeddings in the plane."""

import numpy as np
import pytest

from experiments.reporting import drawing, maps
from experiments.reporting.maps import Embedded

RNG = np.random.default_rng(0)


def classes(count, items, dimensions=6, spread=1.0):
    centres = 4 * RNG.normal(size=(count, dimensions))
    points = (centres[:, None] + spread * RNG.normal(size=(count, items, dimensions))).reshape(-1, dimensions)
    images = RNG.integers(0, 256, (count * items, 5, 5, 1)).astype(np.uint8)
    return Embedded(points, np.repeat(np.arange(count), items), tuple(f'class {k}' for k in range(count)), images)


def test_the_plane_of_three_prototypes_keeps_the_regions():
    """What is nearest in six dimensions is nearest in the plane, by the same difference of squared distances."""
    prototypes, points = RNG.normal(size=(3, 6)), RNG.normal(size=(50, 6))
    onto = maps.plane_of(prototypes)

    def differences(points, prototypes):
        squares = np.sum((points[:, None] - prototypes) ** 2, -1)
        return squares - squares[:, :1]

    np.testing.assert_allclose(differences(onto(points), onto(prototypes)), differences(points, prototypes))


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('few_shot, with_images', [(True, True), (True, False), (False, False)])
def test_a_diagram_has_support_prototypes_query_and_regions(few_shot, with_images):
    support = classes(3, 4)
    support = support if with_images else support._replace(images=None)
    prototypes = np.stack([support.points[support.labels == k].mean(0) for k in range(3)])
    query = Embedded(support.points[:1] + 0.1, support.labels[:1], support.names, support.images)
    figure = maps.prototype_diagram(support, prototypes, query, 'title', 'remark', few_shot=few_shot)
    (axes,) = figure.axes
    black = [line for line in axes.lines if line.get_color() == 'black' and line.get_marker() == 'o']
    np.testing.assert_allclose([line.get_xydata()[0] for line in black], maps.plane_of(prototypes)(prototypes))
    joined = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert len(joined) == 3 + (12 if few_shot else 0)  # the query to each prototype, and the support to its own
    assert len(axes.images) == 1 + (13 if with_images else 0)  # the regions, and the items
    assert drawing.encoded(figure, 'pdf')


def test_an_item_has_no_part_in_the_prototype_it_is_compared_with():
    found = classes(4, 5, spread=3.0)
    for number, nearest in enumerate(maps.nearest_of_others(found)):
        others = np.arange(len(found.points)) != number
        means = [found.points[others & (found.labels == k)].mean(0) for k in range(4)]
        assert nearest == np.argmin([np.sum((found.points[number] - mean) ** 2) for mean in means])


def test_a_map_marks_prototypes_and_mistakes():
    found = classes(3, 4)
    predicted = np.array([0, 0, 0, 2, *found.labels[4:]])
    places, prototypes = RNG.normal(size=(12, 2)), RNG.normal(size=(3, 2))
    figure = maps.class_map(places, prototypes, found, predicted, 'title', 'remark')
    (axes,) = figure.axes
    assert len(axes.images) == 12 + 3
    (arrow,) = [text for text in axes.texts if text.arrow_patch is not None]
    np.testing.assert_allclose(arrow.xy, prototypes[0])
    np.testing.assert_allclose(arrow.get_position(), places[3])
    assert drawing.encoded(figure)


def test_neighbours_stay_together():
    pytest.importorskip('sklearn', reason='t-SNE is that of scikit-learn')
    found = classes(4, 10, spread=0.3)
    places = maps.tsne(found.points)
    distances = np.sum((places[:, None] - places) ** 2, -1) + 1e9 * np.eye(40)
    assert np.mean(found.labels[distances.argmin(1)] == found.labels) > 0.9
