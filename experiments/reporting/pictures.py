"""Pictures of one run: its learning curves, one of its test episodes, and what it confuses most."""

from typing import NamedTuple

import numpy as np
from matplotlib.patches import Rectangle
from matplotlib.ticker import FormatStrFormatter, LogLocator

from experiments.reporting.confusion import confused_pairs
from experiments.reporting.drawing import BLUE, ORANGE, RED, new_drawing, short_label, styled

SUPPORT_SHOWN, QUERIES_SHOWN = 5, 15  # of each class
CLASSES_SHOWN = 20
PAIRS_SHOWN, EXAMPLES_SHOWN = 8, 5
ROW, UNIT = 1.35, 0.45  # distance of rows in that of images, and that in inches
STAGES = {
    'pretrain': 'classifier of all classes',
    'search': 'search for the best length',
    'train': 'final model',
}
LINES = {'train': (BLUE, '-', None, 'training'), 'validation': (ORANGE, '--', 'o', 'validation')}


class PicturedQueries(NamedTuple):
    """Queries with the classes that they were taken for."""

    labels: np.ndarray  # int [Q], places in names
    predicted: np.ndarray  # int [Q]
    names: tuple[str, ...]  # one per class
    images: np.ndarray | None = None  # uint8 [Q, H, W, C], where there are any


@styled
def picture_of_curves(lines, title):
    """Loss and accuracy by episode, a row for each stage of the run, from the lines of metrics.jsonl -> Figure."""
    stages = list(dict.fromkeys(line['stage'] for line in lines))
    drawn = new_drawing(0.5 + 2.1 * len(stages), width=7.2)
    for row, stage in zip(drawn.subplots(len(stages), 2, squeeze=False), stages, strict=True):
        own = [line for line in lines if line['stage'] == stage]
        for axes, name, scale, label in zip(
            row, ('loss', 'accuracy'), (1, 100), ('loss (nats per query)', 'accuracy (%)'), strict=True
        ):
            for split, (colour, dash, marker, legend) in LINES.items():
                points = [(line['episode'], scale * line[name]) for line in own if line['split'] == split]
                if points:
                    few = marker if len(points) <= 40 else None
                    axes.plot(*zip(*points, strict=True), color=colour, linestyle=dash, marker=few, label=legend)
            _mark_best_in_picture(axes, own, name, scale)
            axes.set(xlabel='training episode', ylabel=label)
            axes.grid(axis='y')
        losses = [line['loss'] for line in own]
        if max(losses) > 4 * min(losses) > 0:
            row[0].set_yscale('log')
            row[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            row[0].yaxis.set_major_formatter(FormatStrFormatter('%g'))
            row[0].minorticks_off()
        row[0].set_title(STAGES.get(stage, stage) if len(stages) > 1 else '', loc='left')
        row[0].legend()
    drawn.suptitle(short_label(title, 90), fontsize=9)
    return drawn


def _mark_best_in_picture(axes, lines, name, scale):
    """A star at the least validation loss, the state that a search keeps."""
    if looks := [line for line in lines if line['split'] == 'validation']:
        best = min(looks, key=lambda line: line['loss'])
        value = scale * best[name]
        axes.plot(
            best['episode'], value, '*', color='black', markersize=10, label=f'least loss, episode {best["episode"]:,}'
        )


@styled
def picture_of_episode(support, support_labels, queries, title):
    """A test episode, a row for each class: its support, then its queries -> Figure.

    support: uint8 [N, H, W, C], support_labels: int [N], queries: PicturedQueries with images. The letter below a query
    is that of the class it is taken for; a mistake has a thick frame.
    """
    rows = range(min(len(queries.names), CLASSES_SHOWN))
    shown = [np.flatnonzero(support_labels == label)[:SUPPORT_SHOWN] for label in rows]
    asked = [np.flatnonzero(queries.labels == label)[:QUERIES_SHOWN] for label in rows]
    start = max(map(len, shown)) + 0.6  # of the queries
    right = np.mean(queries.predicted == queries.labels)
    heading = f'{short_label(title, 80)}\n{100 * right:.1f} % of {len(queries.labels)} queries right'
    drawn, axes = _mosaic(heading, left=5.7, right=start + max(map(len, asked)), rows=len(rows))
    axes.text(0, -0.15, 'support', va='bottom')
    axes.text(start, -0.15, 'queries, and the class that each is taken for', va='bottom')
    for row, mine, theirs in zip(rows, shown, asked, strict=True):
        top = ROW * row
        name = f'{short_label(queries.names[row], 30)}  {_letter_in_picture(row)}'
        axes.text(-0.3, top + 0.45, name, ha='right', va='center')
        for place, number in enumerate(mine):
            _thumbnail(axes, support[number], place, top)
        for place, number in enumerate(theirs):
            _query_thumbnail(axes, queries, number, start + place, top)
    return drawn


def _query_thumbnail(axes, queries, number, left, top):
    """A query and the letter of the class that it is taken for."""
    predicted = queries.predicted[number]
    wrong, taken_for = predicted != queries.labels[number], _letter_in_picture(predicted)
    look = {'color': RED, 'weight': 'bold'} if wrong else {'color': '0.35'}
    _thumbnail(axes, queries.images[number], left, top, wrong=wrong)
    axes.text(left + 0.45, top + 0.97, f'✗ {taken_for}' if wrong else taken_for, ha='center', va='top', size=8, **look)


@styled
def picture_of_mistakes(found, title):
    """The pairs of classes that are confused most: PicturedQueries -> Figure.

    Each row shows images of a class that were taken for another and images of that other; names alone where there are
    no images.
    """
    right = 100 * np.mean(found.labels == found.predicted)
    sizes = f'{len(found.labels):,} queries of {len(found.names):,} classes, {right:.1f} % right'
    heading = f'{short_label(title, 60)}: what is confused most\n{sizes}'
    draw = _mistaken_names if found.images is None else _mistaken_images
    return draw(found, confused_pairs(found)[:PAIRS_SHOWN], heading)


def _mistaken_images(found, pairs, heading):
    start = EXAMPLES_SHOWN + 1.4  # of the other class
    drawn, axes = _mosaic(heading, left=1.6, right=start + EXAMPLES_SHOWN + 0.3, rows=max(len(pairs), 1))
    axes.text(-0.25, -0.15, 'share', ha='right', va='bottom')
    axes.text(0, -0.15, 'images of one class …', va='bottom')
    axes.text(start, -0.15, '… that were taken for this one', va='bottom')
    for row, (label, taken_for, share) in enumerate(pairs):
        top = ROW * row
        wrong = np.flatnonzero((found.labels == label) & (found.predicted == taken_for))
        others = np.flatnonzero(found.labels == taken_for)
        axes.text(-0.25, top + 0.45, f'{100 * share:.0f} %', ha='right', va='center')
        axes.text(start - 0.75, top + 0.45, '→', ha='center', va='center', fontsize=14)
        for left, numbers, name in ((0, wrong, label), (start, others, taken_for)):
            for place, number in enumerate(numbers[:EXAMPLES_SHOWN]):
                _thumbnail(axes, found.images[number], left + place, top, wrong=left == 0)
            axes.text(left, top + 0.97, short_label(found.names[name], 36), va='top', fontsize=8, color='0.35')
    return drawn


def _mistaken_names(found, pairs, heading):
    drawn = new_drawing(1.0 + 0.3 * max(len(pairs), 1), width=7.2)
    axes = drawn.subplots()
    brief = [short_label(name, 28) for name in found.names]
    names = [f'{brief[label]} → {brief[other]}' for label, other, _ in pairs]
    bars = axes.barh(range(len(pairs)), [100 * share for *_, share in pairs], color=BLUE, height=0.7)
    axes.bar_label(bars, fmt='%.0f', padding=2)
    axes.set_yticks(range(len(pairs)), names)
    axes.set(xlabel='share of the class that is taken for the other (%)', xlim=(0, None))
    axes.invert_yaxis()
    drawn.suptitle(heading, fontsize=9)
    return drawn


def _mosaic(heading, *, left, right, rows):
    """A figure for rows of images with space on the left, and its axes, where one unit is the distance of images."""
    top = 1.8
    drawn = new_drawing(UNIT * (ROW * rows + top), width=UNIT * (left + right), layout='none')
    drawn.set_dpi(150)  # images of few pixels gain nothing from more
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-left, right), ylim=(ROW * rows, -top))
    axes.axis('off')
    axes.text((right - left) / 2, -1.15, heading, ha='center', va='center')
    return drawn, axes


def _thumbnail(axes, image, left, top, *, wrong=False):
    """A uint8 image [H, W, C] in a frame, which is thick where a mistake is shown."""
    grey = {'cmap': 'Greys', 'vmin': 0, 'vmax': 255} if image.shape[-1] == 1 else {}  # ink is 255, paper 0
    place = {'extent': (left, left + 0.9, top + 0.9, top), 'aspect': 'auto'}
    axes.imshow(image[..., 0] if grey else image, interpolation='antialiased', **grey, **place)
    frame = {'edgecolor': RED, 'linewidth': 2.0} if wrong else {'edgecolor': '0.6', 'linewidth': 0.5}
    axes.add_patch(Rectangle((left, top), 0.9, 0.9, fill=False, zorder=3, **frame))


def _letter_in_picture(number):
    """A, B, ... Z, AA, AB, ..."""
    return (_letter_in_picture(number // 26 - 1) if number >= 26 else '') + chr(ord('A') + number % 26)
