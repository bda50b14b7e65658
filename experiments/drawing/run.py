"""Plots of one run: learning curves, one of its test episodes, and the classes that it confuses most."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.drawing import charts, style
from experiments.own_images.confusion import confused_pairs
from experiments.running import metrics, progress
from experiments.running.workdir import Workdir
from protojax import Dataset, Episode, Learner, errors, files, sample_episode

SUPPORT_SHOWN, QUERIES_SHOWN = 5, 15  # maximum per class
CLASSES_SHOWN = 20
PAIRS_SHOWN, EXAMPLES_SHOWN = 8, 5
ROW, UNIT = 1.35, 0.45  # height of a row in widths of an image, and width of an image in inches
CHUNK = 4096  # queries classified at once


class Queries(NamedTuple):
    """Queries with their predicted classes."""

    labels: np.ndarray  # int [Q], indices into names
    predicted: np.ndarray  # int [Q]
    names: tuple[str, ...]  # one per class
    images: np.ndarray | None = None  # uint8 [Q, H, W, C], if the items are images


def draw(workdir: Workdir, *evaluated) -> list[str]:
    """Draw a run into its workdir and TensorBoard and return the names of the files.

    A plot that fails is reported by a warning and does not end the run. `evaluated`: other arguments of `figures`.
    """
    written = []
    try:
        board = metrics.Board(workdir.path / 'tensorboard' / 'pictures', 0)
        for name, figure in figures(workdir, *evaluated):
            png = style.encoded_drawing(figure)
            files.write_whole(workdir.path / f'{name}.png', png)
            board.write_image(0, name, png)
            written.append(f'{name}.png')
        board.close()
    except Exception as error:  # the results are already written, so no error of a plot matters
        progress.print_above(f'warning: not all plots could be drawn ({errors.first_line(error)})')
    return written


def figures(
    workdir: Workdir, title: str, split: Dataset, embedded: Dataset, learner: Learner, variables: tuple, sizes, key
) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures: curves, a test episode if the items are images, and the most confused classes.

    Args:
        workdir: Folder of the run, with its metrics.
        title: Name of the data set.
        split: Classes of the final table.
        embedded: Embeddings of the split.
        learner: Method of the run.
        variables: Trained parameters and running statistics.
        sizes: Options of episodes.
        key: Random key of the test episodes.
    """
    are_images = split.items.dtype == np.uint8

    def predictions(indices: Episode) -> Queries:
        names = tuple(split.names[number] for number in indices.classes)
        images = _take(split.items, indices.query) if are_images else None
        return Queries(indices.query_labels, _predicted(learner.classify, variables, embedded, indices), names, images)

    def first_episode(way: int, shot: int) -> Episode:
        """Return the first test episode, with flat indices of its items instead of embeddings."""
        indices = np.arange(embedded.items[..., 0].size).reshape(embedded.items.shape[:2])
        dataset, shape = Dataset(indices, np.asarray(embedded.counts)), {'way': way, 'shot': shot}
        sample = partial(sample_episode, **shape, query=sizes.test_query, unlabeled=learner.unlabeled)
        return jax.device_get(jax.jit(sample)(jax.random.fold_in(key, 0), dataset))

    if lines := metrics.read(workdir.path):
        yield 'curves', curves(lines, f'{title}, {workdir.path.name}')
    if learner.zero_shot:
        yield 'mistakes', mistakes(predictions(_every_item(embedded)), f'{title}, zero-shot')
        return
    if are_images:
        way, shot = max(sizes.test_way), min(sizes.test_shot)
        first = first_episode(way, shot)
        support, heading = _take(split.items, first.support), f'{title}: a {way}-way {shot}-shot episode'
        yield 'episode', episode(support, first.support_labels, predictions(first), heading)
    if not learner.adapts:  # one that trains on each support set cannot classify all classes at once
        way, shot = len(split.names), max(sizes.test_shot)
        yield 'mistakes', mistakes(predictions(first_episode(way, shot)), f'{title}, {way}-way {shot}-shot')


def _every_item(embedded: Dataset) -> Episode:
    """Return a zero-shot episode whose queries are all items, with flat indices of items instead of embeddings."""
    counts, none = np.asarray(embedded.counts), np.zeros(0, int)
    labels = np.repeat(np.arange(len(counts)), counts)
    query = np.flatnonzero(np.arange(embedded.items.shape[1]) < counts[:, None])
    return Episode(none, none, query, labels, np.arange(len(counts)), None, embedded.attributes)


def _take(items: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Take items by flat index: [classes, items, ...], [N] -> [N, ...]."""
    return items.reshape(-1, *items.shape[2:])[indices]


def _predicted(classify: Callable, variables: tuple, embedded: Dataset, indices: Episode) -> np.ndarray:
    """Return the predicted classes of an episode of indices: int [Q]."""
    take = lambda chosen: None if chosen is None else _take(embedded.items, chosen)  # noqa: E731
    given = indices._replace(support=take(indices.support), unlabeled=take(indices.unlabeled), query_labels=None)
    # Arrays are arguments, because XLA would fold captured ones as constants.
    predict = jax.jit(lambda variables, episode: classify(*variables, episode).argmax(-1))
    queries = (take(indices.query[start : start + CHUNK]) for start in range(0, len(indices.query), CHUNK))
    return np.concatenate([predict(variables, given._replace(query=query)) for query in queries])


def curves(lines: list[dict], title: str) -> Figure:
    """Draw loss and accuracy of each stage in training and validation, from the lines of metrics.jsonl."""
    found: dict[str, list[dict]] = {}
    for line in lines:
        found.setdefault(f'{line["stage"]}, {line["split"]}', []).append(line)
    for name, reports in list(found.items()):
        if reports[0]['split'] == 'validation':
            best = min(reports, key=lambda line: line['loss'])  # the state that a search keeps
            found[f'{name} (lowest loss at {best["episode"]:,})'] = found.pop(name)
    points = lambda reports: [(line['episode'], 100 * line['accuracy'], line['loss']) for line in reports]  # noqa: E731
    return charts.learning_curves({name: points(reports) for name, reports in found.items()}, title)


@style.styled
def episode(support: np.ndarray, support_labels: np.ndarray, queries: Queries, title: str) -> Figure:
    """Draw a test episode, one row per class: its support, then its queries with the letters of predicted classes.

    Misclassified queries have a thick frame.

    Args:
        support: Images, uint8 [N, H, W, C].
        support_labels: Labels, int [N].
        queries: Queries with images.
        title: Heading of the figure.
    """
    rows = range(min(len(queries.names), CLASSES_SHOWN))
    supports = [np.flatnonzero(support_labels == label)[:SUPPORT_SHOWN] for label in rows]
    asked = [np.flatnonzero(queries.labels == label)[:QUERIES_SHOWN] for label in rows]
    start = max(map(len, supports)) + 0.6  # left edge of the queries
    heading = f'{style.short_label(title, 80)}\n{_accuracy(queries):.1f} % of {len(queries.labels)} queries correct'
    figure, axes = _mosaic(heading, left=5.7, right=start + max(map(len, asked)), rows=len(rows))
    axes.text(0, -0.15, 'support', va='bottom')
    axes.text(start, -0.15, 'queries and their predicted classes', va='bottom')
    for row in rows:
        top, name = ROW * row, style.short_label(queries.names[row], 30)
        axes.text(-0.3, top + 0.45, f'{name}  {_letter(row)}', ha='right', va='center')
        for column, number in enumerate(supports[row]):
            _thumbnail(axes, support[number], column, top)
        for column, number in enumerate(asked[row]):
            letter, wrong = _letter(queries.predicted[number]), queries.predicted[number] != row
            look = {'color': style.RED, 'weight': 'bold'} if wrong else {'color': '0.35'}
            _thumbnail(axes, queries.images[number], start + column, top, wrong=wrong)
            text = f'✗ {letter}' if wrong else letter
            axes.text(start + column + 0.45, top + 0.97, text, ha='center', va='top', **look)
    return figure


@style.styled
def mistakes(queries: Queries, title: str) -> Figure:
    """Draw the most confused pairs of classes: their names and, if the items are images, examples of both."""
    counts = f'{len(queries.labels):,} queries of {len(queries.names):,} classes, {_accuracy(queries):.1f} % correct'
    heading = f'{style.short_label(title, 60)}: most confused classes\n{counts}'
    pairs = confused_pairs(queries)[:PAIRS_SHOWN]
    start, height = EXAMPLES_SHOWN + 1.4, 0.9 if queries.images is not None else 0.0  # left edge of the predicted class
    figure, axes = _mosaic(heading, left=1.6, right=start + EXAMPLES_SHOWN + 0.3, rows=max(len(pairs), 1))
    axes.text(-0.25, -0.15, 'fraction', ha='right', va='bottom')
    axes.text(0, -0.15, 'examples of one class …', va='bottom')
    axes.text(start, -0.15, '… that were predicted as this one', va='bottom')
    for row, (label, predicted, fraction) in enumerate(pairs):
        top = ROW * row
        wrong = np.flatnonzero((queries.labels == label) & (queries.predicted == predicted))
        others = np.flatnonzero(queries.labels == predicted)
        axes.text(-0.25, top + 0.45, f'{100 * fraction:.0f} %', ha='right', va='center')
        axes.text(start - 0.75, top + 0.45, '→', ha='center', va='center', fontsize=14)
        for left, numbers, name in ((0, wrong, label), (start, others, predicted)):
            for column, number in enumerate(numbers[:EXAMPLES_SHOWN] if height else ()):
                _thumbnail(axes, queries.images[number], left + column, top, wrong=left == 0)
            axes.text(left, top + height + 0.07, style.short_label(queries.names[name], 36), va='top', color='0.35')
    return figure


def _accuracy(queries: Queries) -> float:
    return 100 * np.mean(queries.predicted == queries.labels)


def _mosaic(heading: str, *, left: float, right: float, rows: int) -> tuple[Figure, Axes]:
    """Return a figure for rows of images with space on the left, and axes whose unit is the width of an image."""
    top = 1.8
    figure = style.new_drawing(UNIT * (ROW * rows + top), width=UNIT * (left + right), layout='none')
    figure.set_dpi(150)  # enough for small images
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-left, right), ylim=(ROW * rows, -top))
    axes.axis('off')
    axes.text((right - left) / 2, -1.15, heading, ha='center', va='center')
    return figure, axes


def _thumbnail(axes: Axes, image: np.ndarray, left: float, top: float, *, wrong: bool = False) -> None:
    """Draw a uint8 image [H, W, C] in a frame, which is thick for misclassified queries."""
    shown = {'interpolation': 'antialiased', 'extent': (left, left + 0.9, top + 0.9, top), 'aspect': 'auto'}
    axes.imshow(image, cmap='Greys', vmin=0, vmax=255, **shown)  # of greyscale images, the foreground is 255
    frame = {'edgecolor': style.RED, 'linewidth': 2.0} if wrong else {'edgecolor': '0.6', 'linewidth': 0.5}
    axes.add_patch(Rectangle((left, top), 0.9, 0.9, fill=False, zorder=3, **frame))


def _letter(number: int) -> str:
    """Return A, B, ... Z, AA, AB, ..."""
    return (_letter(number // 26 - 1) if number >= 26 else '') + chr(ord('A') + number % 26)
