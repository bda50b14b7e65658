"""A t-SNE map of the embeddings of many classes, with prototypes and misclassified items."""

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.style import RED, DrawnClasses, draw_image, draw_note, scatter_axes, styled

PERPLEXITY = 100


@styled
def draw(
    positions: np.ndarray, prototypes: np.ndarray, classes: DrawnClasses, predicted: np.ndarray, title: str, remark: str
) -> Figure:
    """Draw items at their positions, prototypes in black, errors in red with an arrow to the correct prototype.

    Args:
        positions: [N, 2] of the items; prototypes: [L, 2]; classes: with images; predicted: int [N].
    """
    drawn, axes, side = scatter_axes(np.concatenate([positions, prototypes]), 7.2, room=0.04)

    def stamp(number, position, size, colour, order):
        draw_image(axes, classes.images[number], position, size * side, colour, order=order, framed=False)

    for number, (position, label, nearest) in enumerate(zip(positions, classes.labels, predicted, strict=True)):
        if label == nearest:
            stamp(number, position, 0.036, '#7f9db9', 2)
        else:
            stamp(number, position, 0.043, RED, 6)
            arrow = {'arrowstyle': '->', 'color': RED, 'shrinkA': 6, 'shrinkB': 8, 'linewidth': 1}
            axes.annotate('', prototypes[label], position, arrowprops=arrow, zorder=5)
    for label, position in enumerate(prototypes):
        mine = np.flatnonzero(classes.labels == label)
        typical = mine[np.argmin(np.sum((classes.points[mine] - classes.points[mine].mean(0)) ** 2, 1))]
        axes.plot(*position, 'o', color='white', alpha=0.8, markersize=13, markeredgewidth=0, zorder=3)
        stamp(typical, position, 0.054, 'black', 4)
    drawn.suptitle(title)
    draw_note(drawn, remark)
    return drawn


def tsne(points: np.ndarray) -> np.ndarray:
    """Embed points in a plane by t-SNE (scikit-learn): [N, D] -> [N, 2]."""
    from sklearn.manifold import TSNE  # optional dependency

    method = TSNE(perplexity=perplexity(len(points)), init='pca', early_exaggeration=4, random_state=0)
    return flat(method.fit_transform(points))


def flat(points: np.ndarray) -> np.ndarray:
    """Rotate points so that they fit into the smallest rectangle that is at least as wide as high: [N, 2] -> [N, 2]."""
    angles = np.linspace(0, np.pi, 180, endpoint=False)
    turned = [points @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    sizes = np.array([np.ptp(one, 0) for one in turned])
    return turned[np.argmin(np.where(sizes[:, 0] >= sizes[:, 1], sizes.prod(1), np.inf))]


def perplexity(items: int) -> int:
    """Return the neighbourhood size: several classes, because smaller neighbourhoods leave the picture empty."""
    return min(PERPLEXITY, (items - 1) // 3)


def nearest(classes: DrawnClasses) -> np.ndarray:
    """Return the class of the nearest prototype for each item, int [N], leaving the item out of its own prototype."""
    onehot = np.eye(len(classes.names))[classes.labels]
    counts = onehot.sum(0)
    means = onehot.T @ classes.points / counts[:, None]
    own = means[classes.labels]
    others = own + (own - classes.points) / (counts[classes.labels] - 1)[:, None]
    distances = np.sum((classes.points[:, None] - means) ** 2, -1)
    distances[np.arange(len(own)), classes.labels] = np.sum((classes.points - others) ** 2, -1)
    return distances.argmin(1)
