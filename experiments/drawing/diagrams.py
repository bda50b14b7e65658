"""The paper's two diagrams: prototypes of three classes, a query, and the decision regions."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from experiments.drawing import maps, style
from experiments.drawing.style import COLOURS, MARKERS, DrawnClasses

CLASSES = 3


@style.styled
def draw(
    classes: DrawnClasses, prototypes: np.ndarray, query: DrawnClasses, title: str, remark: str, *, few_shot: bool
) -> Figure:
    """Draw three classes, their prototypes [3, D] and a query on the plane through the prototypes.

    Few-shot prototypes are joined to their support points. The linear classifier that is equivalent to
    squared distances defines the regions.
    """
    points = maps.flat(plane(prototypes)(np.concatenate([prototypes, query.points, classes.points])))
    drawn, axes, side = style.scatter_axes(points, 6.2, room=0.1)
    centres, asked, points = points[:CLASSES], points[CLASSES], points[CLASSES + 1 :]
    _regions(axes, centres)
    for label, (centre, colour, marker) in enumerate(zip(centres, COLOURS, MARKERS, strict=False)):
        axes.plot(*zip(asked, centre, strict=True), color='black', linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
        for number in np.flatnonzero(classes.labels == label):
            if few_shot:
                axes.plot(*zip(points[number], centre, strict=True), color=colour, linewidth=0.9, zorder=2)
            _mark(axes, classes, number, points[number], 0.06 * side, color=colour, marker=marker)
        axes.plot([], [], linestyle='', marker=marker, color=colour, label=style.short_label(classes.names[label], 36))
        axes.plot(*centre, 'o', color='black', markersize=7, zorder=5)
        _name(axes, 'c' + '₁₂₃'[label], centre, 9)
    _mark(axes, query, 0, asked, 0.07 * side, color='black', marker='*', markerfacecolor='white', markersize=13)
    _name(axes, 'x', asked, 10 if query.images is None else 20)
    axes.set_title(title)
    drawn.legend(loc='outside upper center', ncols=CLASSES, handletextpad=0.2, columnspacing=1)
    style.draw_note(drawn, remark)
    return drawn


def _name(axes: Axes, text: str, position: np.ndarray, offset: int) -> None:
    """Write a name beside a position, with a white outline."""
    edge = [withStroke(linewidth=3, foreground='white')]
    look = {'fontsize': 12, 'ha': 'center', 'va': 'center', 'zorder': 6, 'path_effects': edge}
    axes.annotate(text, position, (offset, offset), textcoords='offset points', **look)


def _mark(axes: Axes, items: DrawnClasses, number: int, position: np.ndarray, size: float, **look) -> None:
    """Draw an item as its framed image if it has one, otherwise as a marker."""
    if items.images is not None:
        style.draw_image(axes, items.images[number], position, size, look['color'], order=4, framed=True)
    else:
        axes.plot(*position, linestyle='', zorder=4, **look)


def _regions(axes: Axes, centres: np.ndarray) -> None:
    """Shade the region of each centre and draw the straight lines between them."""
    weights, biases = 2 * centres, -np.sum(centres**2, 1)  # the linear view of squared distances (eq. 8)
    grid = np.stack(np.meshgrid(*(np.linspace(*limits, 400) for limits in (axes.get_xlim(), axes.get_ylim()))), -1)
    scores = grid @ weights.T + biases
    x, y = np.moveaxis(grid, -1, 0)
    for label, colour in enumerate(COLOURS[:CLASSES]):
        lead = scores[..., label] - np.delete(scores, label, -1).max(-1)
        axes.contourf(x, y, lead, [0, np.inf], colors=[0.8 + 0.2 * np.array(to_rgb(colour))], zorder=0)
        axes.contour(x, y, lead, [0], colors='0.25', linewidths=1, zorder=1)


def plane(prototypes: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the projection onto the plane through three prototypes: [3, D] -> ([N, D] -> [N, 2]).

    The lost component of a point is equally far from all three, so nearest prototypes and regions stay the same.
    """
    basis, _ = np.linalg.qr((prototypes[1:] - prototypes[0]).T)
    return lambda points: (points - prototypes[0]) @ basis


def three_classes(means: np.ndarray, *, near: bool) -> np.ndarray:
    """Choose three classes whose prototypes are close together, or far apart: a pair, and the best third -> [3]."""
    squares = np.sum((means[:, None] - means) ** 2, -1)
    costs = squares + np.diag(np.full(len(means), np.inf)) if near else -squares
    pair = np.unravel_index(np.argmin(costs), costs.shape)
    both = costs[pair[0]] + costs[pair[1]]
    both[[*pair]] = np.inf
    return np.array([*pair, np.argmin(both)])


def pick_query(classes: DrawnClasses, prototypes: np.ndarray, *, quantile: float) -> DrawnClasses:
    """Choose a correctly classified item whose margin is at a quantile of all such margins."""
    squares = np.sum((classes.points[:, None] - prototypes) ** 2, -1)
    rows = np.arange(len(squares))
    own = squares[rows, classes.labels]
    squares[rows, classes.labels] = np.inf
    margins = squares.min(1) - own
    order = np.argsort(margins)
    order = order[margins[order] > 0] if (margins > 0).any() else order
    return subset(classes, order[[int(quantile * (len(order) - 1))]], np.arange(len(classes.names)))


def subset(classes: DrawnClasses, indices: np.ndarray, chosen: np.ndarray) -> DrawnClasses:
    """Return the items at some indices, all of chosen classes, which are renumbered 0, 1, 2."""
    labels = np.argmax(classes.labels[indices][:, None] == chosen, -1)
    images = None if classes.images is None else classes.images[indices]
    return DrawnClasses(classes.points[indices], labels, tuple(classes.names[k] for k in chosen), images)
