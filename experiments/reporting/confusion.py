"""What a classifier takes for what: the confusion matrix, its picture, and the most frequent mistakes."""

import numpy as np

from experiments.reporting.drawing import new_drawing, short_label, styled
from experiments.reporting.predictions import UNKNOWN

LABELLED = 40  # classes that fit into the picture with their names
OTHERS = 'other classes'
INCH = 0.2  # side of a cell


def confusion_matrix(found, names):
    """How often each class is taken for each, the last column being unknown: -> int [classes, classes + 1]."""
    number = {name: place for place, name in enumerate(names)}
    matrix = np.zeros((len(names), len(names) + 1), int)
    for answer in found:
        if answer['class'] in number:
            taken_for = len(names) if answer['unknown'] else number[answer['best'][0][0]]
            matrix[number[answer['class']], taken_for] += 1
    return matrix


def _confused_cells(matrix):
    """Row and column of each cell with mistakes, the most frequent ones first: -> int [cells, 2]."""
    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    cells = np.argwhere(wrong)
    return cells[np.argsort(-wrong[tuple(cells.T)], kind='stable')]


def confused_pairs(found):
    """(class, taken for, share of the class), the most frequent first; of two classes the worse direction only."""
    wrong = found.labels != found.predicted
    pairs, counts = np.unique(np.stack([found.labels[wrong], found.predicted[wrong]]), axis=1, return_counts=True)
    shares = counts / np.bincount(found.labels, minlength=len(found.names))[pairs[0]]
    kept = {}
    for k in np.argsort(-shares, kind='stable'):
        kept.setdefault(frozenset(pairs[:, k].tolist()), (*pairs[:, k].tolist(), float(shares[k])))
    return list(kept.values())


def confusion_line(matrix, names, number=3):
    """The classes that are most often taken for another class, in words; '' where there are none."""
    cells = [(row, column) for row, column in _confused_cells(matrix).tolist() if column < len(names)][:number]
    brief = [short_label(name, 30) for name in names]
    told = [f'{brief[row]} for {brief[column]} ({matrix[row, column]} of {matrix[row].sum()})' for row, column in cells]
    return f'mistaken most often: {", ".join(told)}' if told else ''


def most_confused(matrix, names):
    """The part of a large matrix with the most frequent mistakes -> matrix, names of its rows, names of its columns."""
    chosen = {}  # in the order of the mistakes
    for cell in _confused_cells(matrix).tolist():
        chosen |= dict.fromkeys(place for place in cell if place < len(names))
    kept = sorted([*chosen, *(set(range(len(names))) - set(chosen))][:LABELLED])
    own, unknown = matrix[np.ix_(kept, kept)], matrix[kept, -1:]
    others = matrix[kept].sum(1, keepdims=True) - own.sum(1, keepdims=True) - unknown
    rows = [names[place] for place in kept]
    return np.hstack([own, others, unknown]), rows, [*rows, OTHERS, UNKNOWN]


@styled
def confusion_figure(matrix, names, title):
    """A confusion matrix as a picture, of many classes those that are confused most; rows are true -> Figure."""
    rows, columns = names, [*names, UNKNOWN]
    if len(names) > LABELLED:
        title = f'{title}\nthe {LABELLED} of {len(names)} classes that are confused most'
        matrix, rows, columns = most_confused(matrix, names)
    drawn = new_drawing(1.8 + INCH * len(rows), width=2.6 + INCH * len(columns))
    axes = drawn.subplots()
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap='Blues', vmin=0, vmax=1, aspect='auto')
    axes.set(xlabel='predicted', ylabel='class')
    axes.set_xticks(range(len(columns)), [short_label(name, 22) for name in columns], rotation=90)
    axes.set_yticks(range(len(rows)), [short_label(name, 22) for name in rows])
    for row, column in np.argwhere(matrix):
        colour = 'white' if share[row, column] > 0.5 else 'black'
        axes.text(column, row, matrix[row, column], ha='center', va='center', fontsize=6, color=colour)
    drawn.suptitle(title, fontsize=9)
    return drawn
