"""The paper's two diagrams: prototypes of three classes, a query, and the regions of the classifier."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke

from experiments.reporting.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    DrawnClasses,
    draw_note,
    draw_tile,
    drawing_frame,
    new_drawing,
    short_label,
    styled,
)
from experiments.reporting.maps import flat_map

CLASS_COLOURS, CLASS_MARKERS = (BLUE, ORANGE, GREEN), ('o', 's', '^')


@styled
def prototype_diagram(classes, prototypes, query, title, remark, *, few_shot):
    """Three classes, their prototypes and a query on the plane through the prototypes -> Figure.

    classes: DrawnClasses, prototypes: [3, D], query: DrawnClasses of one item. Few-shot prototypes are joined to
    the points that they are means of. The regions are those of the linear classifier that squared distances make.
    """
    places = diagram_plane(prototypes)(np.concatenate([prototypes, query.points, classes.points]))
    places = flat_map(places)
    centres, asked, points = places[:3], places[3], places[4:]
    low, high = drawing_frame(places, room=0.1)
    drawn = new_drawing(6.2 * float((high - low)[1] / (high - low)[0]) + 0.9, width=6.2)
    axes = drawn.subplots()
    _regions_in_diagram(axes, centres, low, high)
    for centre in centres:
        axes.plot(*zip(asked, centre, strict=True), color='black', linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    for label, (centre, colour, marker) in enumerate(zip(centres, CLASS_COLOURS, CLASS_MARKERS, strict=True)):
        mine = np.flatnonzero(classes.labels == label)
        for point in points[mine] if few_shot else ():
            axes.plot(*zip(point, centre, strict=True), color=colour, linewidth=0.9, zorder=2)
        for number in mine:
            _mark_in_diagram(axes, classes, number, points[number], colour, marker, 0.06 * max(high - low))
        name = short_label(classes.names[label], 36)
        axes.plot([], [], linestyle='', marker=marker, color=colour, label=name)
        axes.plot(*centre, 'o', color='black', markersize=7, zorder=5)
        _name_in_diagram(axes, 'c' + '₁₂₃'[label], centre, 9)
    _mark_in_diagram(axes, query, 0, asked, 'black', '*', 0.07 * max(high - low))
    _name_in_diagram(axes, 'x', asked, 10 if query.images is None else 20)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal', xticks=[], yticks=[], title=title)
    axes.spines[:].set_visible(False)
    drawn.legend(loc='outside upper center', ncols=3, handletextpad=0.2, columnspacing=1)
    draw_note(drawn, remark)
    return drawn


def _name_in_diagram(axes, text, place, distance):
    """A name beside a place, some points away, with a pale edge that keeps it readable on whatever is below."""
    edge = [withStroke(linewidth=3, foreground='white')]
    look = {'fontsize': 12, 'ha': 'center', 'va': 'center', 'zorder': 6, 'path_effects': edge}
    axes.annotate(text, place, (distance, distance), textcoords='offset points', **look)


def _mark_in_diagram(axes, items, number, place, colour, marker, size):
    """An item as its image in a frame where it has one, else as a mark."""
    if items.images is not None:
        return draw_tile(axes, items.images[number], place, size, colour, order=4)
    big = 13 if marker == '*' else 5
    face = 'white' if marker == '*' else colour
    edge = 'black' if marker == '*' else 'white'
    axes.plot(*place, linestyle='', marker=marker, color=face, markeredgecolor=edge, markersize=big, zorder=4)


def _regions_in_diagram(axes, centres, low, high):
    """Where each centre is nearest, in pale colours, and the straight lines between."""
    weights, biases = 2 * centres, -np.sum(centres**2, 1)  # the linear view of squared distances (eq. 8)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 400) for a, b in zip(low, high, strict=True))), -1)
    scores = grid @ weights.T + biases
    x, y = np.moveaxis(grid, -1, 0)
    for label, colour in enumerate(CLASS_COLOURS):
        lead = scores[..., label] - np.delete(scores, label, -1).max(-1)
        axes.contourf(x, y, lead, [0, np.inf], colors=[0.8 + 0.2 * np.array(to_rgb(colour))], zorder=0)
        axes.contour(x, y, lead, [0], colors='0.25', linewidths=1, zorder=1)


def diagram_plane(prototypes):
    """A function that drops points onto the plane through three prototypes: [3, D] -> ([N, D] -> [N, 2]).

    What is lost of a point is equally far from all three, so nearest prototypes and their regions stay as they are.
    """
    basis, _ = np.linalg.qr((prototypes[1:] - prototypes[0]).T)
    return lambda points: (points - prototypes[0]) @ basis


def three_for_diagram(means, *, near):
    """Three classes with prototypes near to each other, or far: a pair, and what is nearest to both: -> labels [3]."""
    squares = np.sum((means[:, None] - means) ** 2, -1)
    costs = squares + np.diag(np.full(len(means), np.inf)) if near else -squares
    pair = np.unravel_index(np.argmin(costs), costs.shape)
    both = costs[pair[0]] + costs[pair[1]]
    both[[*pair]] = np.inf
    return np.array([*pair, np.argmin(both)])


def query_for_diagram(classes, prototypes, *, share):
    """One item that is nearest to its own prototype, and nearer by a larger margin than a share of all such items."""
    squares = np.sum((classes.points[:, None] - prototypes) ** 2, -1)
    rows = np.arange(len(squares))
    own = squares[rows, classes.labels]
    squares[rows, classes.labels] = np.inf
    margins = squares.min(1) - own
    order = np.argsort(margins)
    order = order[margins[order] > 0] if (margins > 0).any() else order
    return diagram_items(classes, order[[int(share * (len(order) - 1))]], np.arange(len(classes.names)))


def diagram_items(classes, places, chosen):
    """The items at some places, all of chosen classes, which become 0, 1, 2."""
    labels = np.argmax(classes.labels[places][:, None] == chosen, -1)
    images = None if classes.images is None else classes.images[places]
    return DrawnClasses(classes.points[places], labels, tuple(classes.names[k] for k in chosen), images)
