"""Confusion matrix of a classifier: counts, a plot, and the most frequent confusions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.drawing.style import new_drawing, short_label, styled
from experiments.own_images.answers import UNKNOWN

LABELLED = 40  # maximum number of classes in the plot
OTHERS = 'other classes'
INCH = 0.2  # size of a cell


def matrix(answers: list[dict], names: Sequence[str]) -> np.ndarray:
    """Count queries by true class and predicted class, the last column being unknown: -> int [way, way + 1]."""
    index = {name: k for k, name in enumerate(names)}
    counts = np.zeros((len(names), len(names) + 1), int)
    for answer in answers:
        if answer['true_class'] in index:
            predicted = len(names) if answer['unknown'] else index[answer['best'][0][0]]
            counts[index[answer['true_class']], predicted] += 1
    return counts


def _wrong_cells(counts):
    """Return row and column of each cell with misclassified queries, most frequent first: -> int [cells, 2]."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    cells = np.argwhere(wrong)
    return cells[np.argsort(-wrong[tuple(cells.T)], kind='stable')].tolist()


def confused_pairs(found: Any) -> list[tuple[int, int, float]]:
    """Return (true class, predicted class, fraction) of the worse direction of each pair, most frequent first."""
    wrong = found.labels != found.predicted
    pairs, counts = np.unique(np.stack([found.labels[wrong], found.predicted[wrong]]), axis=1, return_counts=True)
    shares = counts / np.bincount(found.labels, minlength=len(found.names))[pairs[0]]
    kept = {}
    for k in np.argsort(-shares, kind='stable'):
        kept.setdefault(frozenset(pairs[:, k].tolist()), (*pairs[:, k].tolist(), float(shares[k])))
    return list(kept.values())


def worst_line(counts: np.ndarray, names: Sequence[str], number: int = 3) -> str:
    """Describe the most frequent confusions of two classes, or return '' if there are none."""
    cells = [(row, column) for row, column in _wrong_cells(counts) if column < len(names)][:number]
    brief = [short_label(name, 30) for name in names]
    pairs = [f'{brief[row]} -> {brief[column]} ({counts[row, column]} of {counts[row].sum()})' for row, column in cells]
    return f'most confused (true class -> predicted): {", ".join(pairs)}' if pairs else ''


def worst_part(counts: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str], list[str]]:
    """Return the part of a large matrix with the most frequent confusions: counts, names of rows, names of columns."""
    chosen = dict.fromkeys(k for cell in _wrong_cells(counts) for k in cell if k < len(names))
    kept = sorted(list(dict.fromkeys([*chosen, *range(len(names))]))[:LABELLED])
    own, unknown = counts[np.ix_(kept, kept)], counts[kept, -1:]
    others = counts[kept].sum(1, keepdims=True) - own.sum(1, keepdims=True) - unknown
    labels = [names[k] for k in kept]
    return np.hstack([own, others, unknown]), labels, [*labels, OTHERS, UNKNOWN]


@styled
def figure(counts: np.ndarray, names: Sequence[str], title: str) -> Figure:
    """Plot a confusion matrix; if there are many classes, only the most confused ones."""
    rows, columns = names, [*names, UNKNOWN]
    if len(names) > LABELLED:
        title = f'{title}\nthe {LABELLED} most confused of {len(names)} classes'
        counts, rows, columns = worst_part(counts, names)
    drawn = new_drawing(1.8 + INCH * len(rows), width=2.6 + INCH * len(columns))
    axes = drawn.subplots()
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap='Blues', vmin=0, vmax=1, aspect='auto')
    axes.set(xlabel='predicted class', ylabel='true class')
    axes.set_xticks(range(len(columns)), [short_label(name, 22) for name in columns], rotation=90)
    axes.set_yticks(range(len(rows)), [short_label(name, 22) for name in rows])
    for row, column in np.argwhere(counts):
        colour = 'white' if share[row, column] > 0.5 else 'black'
        axes.text(column, row, counts[row, column], ha='center', va='center', fontsize=6, color=colour)
    drawn.suptitle(title, fontsize=9)
    return drawn
