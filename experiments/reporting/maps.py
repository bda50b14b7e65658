"""A map of the embeddings of many classes by t-SNE, with their prototypes and what is nearer to a wrong one."""

import numpy as np

from experiments.reporting.drawing import RED, draw_note, draw_stamp, drawing_frame, new_drawing

PERPLEXITY = 100


def class_map(places, prototypes, classes, predicted, title, remark):
    """Items where t-SNE puts them, prototypes in black, mistakes in red with an arrow to the right prototype -> Figure.

    places: [N, 2] of the items, prototypes: [L, 2], classes: DrawnClasses with images, predicted: int [N].
    """
    low, high = drawing_frame(np.concatenate([places, prototypes]), room=0.04)
    drawn = new_drawing(7.2 * float((high - low)[1] / (high - low)[0]) + 0.8, width=7.2)
    axes = drawn.subplots()
    size = 0.036 * float(max(high - low))
    wrong = predicted != classes.labels
    for number in np.flatnonzero(~wrong):
        draw_stamp(axes, classes.images[number], places[number], size, '#7f9db9', order=2)
    for label, place in enumerate(prototypes):
        mine = np.flatnonzero(classes.labels == label)
        centre = classes.points[mine].mean(0)
        nearest = mine[np.argmin(np.sum((classes.points[mine] - centre) ** 2, 1))]
        axes.plot(*place, 'o', color='white', alpha=0.8, markersize=13, markeredgewidth=0, zorder=3)
        draw_stamp(axes, classes.images[nearest], place, 1.5 * size, 'black', order=4)
    for number in np.flatnonzero(wrong):
        draw_stamp(axes, classes.images[number], places[number], 1.2 * size, RED, order=6)
        arrow = {'arrowstyle': '->', 'color': RED, 'shrinkA': 6, 'shrinkB': 8, 'linewidth': 1}
        axes.annotate('', prototypes[classes.labels[number]], places[number], arrowprops=arrow, zorder=5)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal')
    axes.axis('off')
    drawn.suptitle(title, fontsize=9)
    draw_note(drawn, remark)
    return drawn


def tsne(points):
    """Places of points in a plane that keep neighbours together, by scikit-learn: [N, D] -> [N, 2]."""
    from sklearn.manifold import TSNE  # of the extra `figures`, so only here

    method = TSNE(perplexity=map_perplexity(len(points)), init='pca', early_exaggeration=4, random_state=0)
    return flat_map(method.fit_transform(points))


def flat_map(places):
    """Places turned so that they fit into the smallest picture, which is at least as wide as high: [N, 2] -> [N, 2]."""
    angles = np.linspace(0, np.pi, 180, endpoint=False)
    turned = [places @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    sizes = np.array([np.ptp(points, 0) for points in turned])
    return turned[np.argmin(np.where(sizes[:, 0] >= sizes[:, 1], sizes.prod(1), np.inf))]


def map_perplexity(items):
    """The size of neighbourhoods: several classes, as with that of one they drift apart and leave the picture empty."""
    return min(PERPLEXITY, (items - 1) // 3)


def nearest_on_map(classes):
    """Which class's prototype is nearest to each item, where it has no part in its own: DrawnClasses -> int [N].

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
