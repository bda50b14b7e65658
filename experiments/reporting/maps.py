"""Embeddings in two dimensions: the paper's diagrams of prototypes, and a map of many classes by t-SNE."""

from typing import NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from experiments.reporting.drawing import BLUE, GREEN, ORANGE, RED, figure, note, short, styled

CLASS_COLOURS, CLASS_MARKERS = (BLUE, ORANGE, GREEN), ('o', 's', '^')
PERPLEXITY = 100


class Embedded(NamedTuple):
    """Items of some classes in embedding space."""

    points: np.ndarray  # float [N, D]
    labels: np.ndarray  # int [N]
    names: tuple[str, ...]  # one per class
    images: np.ndarray | None = None  # uint8 [N, H, W, C]


def plane_of(prototypes):
    """A function that drops points onto the plane through three prototypes: [3, D] -> ([N, D] -> [N, 2]).

    What is lost of a point is equally far from all three, so nearest prototypes and their regions stay as they are.
    """
    basis, _ = np.linalg.qr((prototypes[1:] - prototypes[0]).T)
    middle = prototypes.mean(0)
    return lambda points: (points - middle) @ basis


@styled
def prototype_diagram(classes, prototypes, query, title, remark, *, few_shot):
    """Three classes, their prototypes and a query on the plane through the prototypes -> Figure.

    classes: Embedded, prototypes: [3, D], query: Embedded of one item. Few-shot prototypes are joined to the points
    that they are means of. The regions are those of the linear classifier that squared distances make.
    """
    onto = plane_of(prototypes)
    centres, points, asked = onto(prototypes), onto(classes.points), onto(query.points)[0]
    low, high = frame(np.concatenate([centres, points, asked[None]]), room=0.1)
    drawn = figure(6.2 * float((high - low)[1] / (high - low)[0]) + 0.9, width=6.2)
    axes = drawn.subplots()
    fill_regions(axes, centres, low, high)
    for centre in centres:
        axes.plot(*zip(asked, centre, strict=True), color='black', linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    for label, (centre, colour, marker) in enumerate(zip(centres, CLASS_COLOURS, CLASS_MARKERS, strict=True)):
        mine = np.flatnonzero(classes.labels == label)
        for point in points[mine] if few_shot else ():
            axes.plot(*zip(point, centre, strict=True), color=colour, linewidth=0.9, zorder=2)
        for number in mine:
            mark(axes, classes, number, points[number], colour, marker, 0.06 * max(high - low))
        name = short(classes.names[label], 36)
        axes.plot([], [], linestyle='', marker=marker, color=colour, label=name)
        axes.plot(*centre, 'o', color='black', markersize=7, zorder=5)
        axes.annotate('c' + '₁₂₃'[label], centre, (6, 6), textcoords='offset points', fontsize=12, zorder=6)
    mark(axes, query, 0, asked, 'black', '*', 0.07 * max(high - low))
    axes.annotate('x', asked, (16, 8), textcoords='offset points', fontsize=12, style='italic', zorder=6)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal', xticks=[], yticks=[], title=title)
    axes.spines[:].set_visible(False)
    drawn.legend(loc='outside upper center', ncols=3, handletextpad=0.2, columnspacing=1)
    note(drawn, remark)
    return drawn


def mark(axes, items, number, place, colour, marker, size):
    """An item as its image in a frame where it has one, else as a mark."""
    if items.images is not None:
        return tile(axes, items.images[number], place, size, colour, order=4)
    big = 13 if marker == '*' else 5
    face = 'white' if marker == '*' else colour
    edge = 'black' if marker == '*' else 'white'
    axes.plot(*place, linestyle='', marker=marker, color=face, markeredgecolor=edge, markersize=big, zorder=4)


def frame(points, room):
    """Corners of a picture with all points inside, and room around them, as a share of its larger side."""
    low, high = points.min(0), points.max(0)
    return low - room * max(high - low), high + room * max(high - low)


def fill_regions(axes, centres, low, high):
    """Where each centre is nearest, in pale colours, and the straight lines between."""
    weights, biases = 2 * centres, -np.sum(centres**2, 1)  # the linear view of squared distances (eq. 8)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 800) for a, b in zip(low, high, strict=True))), -1)
    scores = grid @ weights.T + biases
    pale = np.array([0.8 + 0.2 * np.array(to_rgb(colour)) for colour in CLASS_COLOURS])
    extent = (low[0], high[0], low[1], high[1])
    axes.imshow(pale[scores.argmax(-1)], extent=extent, origin='lower', aspect='auto', zorder=0)
    for label in range(len(centres)):
        lead = scores[..., label] - np.delete(scores, label, -1).max(-1)
        axes.contour(lead, [0], extent=extent, origin='lower', colors='0.25', linewidths=1, zorder=1)


@styled
def class_map(places, prototypes, classes, predicted, title, remark):
    """Items where t-SNE puts them, prototypes in black, mistakes in red with an arrow to the right prototype -> Figure.

    places: [N, 2] of the items, prototypes: [L, 2], classes: Embedded with images, predicted: int [N].
    """
    low, high = frame(np.concatenate([places, prototypes]), room=0.04)
    drawn = figure(7.2 * float((high - low)[1] / (high - low)[0]) + 0.5, width=7.2)
    axes = drawn.subplots()
    size = 0.036 * float(max(high - low))
    wrong = predicted != classes.labels
    for number in np.flatnonzero(~wrong):
        stamp(axes, classes.images[number], places[number], size, '#7f9db9', order=2)
    for label, place in enumerate(prototypes):
        mine = np.flatnonzero(classes.labels == label)
        centre = classes.points[mine].mean(0)
        nearest = mine[np.argmin(np.sum((classes.points[mine] - centre) ** 2, 1))]
        axes.plot(*place, 'o', color='white', alpha=0.8, markersize=13, markeredgewidth=0, zorder=3)
        stamp(axes, classes.images[nearest], place, 1.5 * size, 'black', order=4)
    for number in np.flatnonzero(wrong):
        stamp(axes, classes.images[number], places[number], 1.2 * size, RED, order=6)
        arrow = {'arrowstyle': '->', 'color': RED, 'shrinkA': 6, 'shrinkB': 8, 'linewidth': 1}
        axes.annotate('', prototypes[classes.labels[number]], places[number], arrowprops=arrow, zorder=5)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal')
    axes.axis('off')
    axes.set_title(title)
    note(drawn, remark)
    return drawn


def stamp(axes, image, place, size, colour, *, order):
    """An image around a place: a drawing as ink of a colour, a photo in a frame of it."""
    if image.shape[-1] != 1:
        return tile(axes, image, place, size, colour, order=order)
    ink = np.empty((*image.shape[:2], 4))
    ink[..., :3], ink[..., 3] = to_rgb(colour), image[..., 0] / 255
    axes.imshow(ink, extent=around(place, size), interpolation='bilinear', zorder=order)


def tile(axes, image, place, size, colour, *, order):
    """An image around a place in a frame of a colour."""
    pixels = np.repeat(255 - image, 3, -1) if image.shape[-1] == 1 else image  # ink is 255, paper 0
    axes.imshow(pixels, extent=around(place, size), interpolation='bilinear', zorder=order)
    frame = Rectangle(place - size / 2, size, size, fill=False, edgecolor=colour, linewidth=1.2, zorder=order)
    axes.add_patch(frame)


def around(place, size):
    """Left, right, bottom and top of a square."""
    return place[0] - size / 2, place[0] + size / 2, place[1] - size / 2, place[1] + size / 2


def tsne(points, seed=0):
    """Places of points in a plane that keep neighbours together, by scikit-learn: [N, D] -> [N, 2]."""
    from sklearn.manifold import TSNE  # of the extra `figures`, so only here

    # Neighbourhoods of several classes: with those of one, classes would drift apart and leave the picture empty.
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init='pca', early_exaggeration=4, random_state=seed).fit_transform(points)


def nearest_of_others(classes):
    """Which class's prototype is nearest to each item, where it has no part in its own: Embedded -> int [N].

    Prototypes are means of all items of a class; that of an item's own class is the mean of the others.
    """
    onehot = np.eye(len(classes.names))[classes.labels]
    counts = onehot.sum(0)
    means = onehot.T @ classes.points / counts[:, None]
    own = means[classes.labels]
    others = own + (own - classes.points) / (counts[classes.labels] - 1)[:, None]
    distances = np.sum((classes.points[:, None] - means) ** 2, -1)
    distances[np.arange(len(own)), classes.labels] = np.sum((classes.points - others) ** 2, -1)
    return distances.argmin(1)
