"""What a classifier says of images: lines on the screen, CSV and JSON, accuracy, and the confusion matrix."""

import csv
import io
import json

import numpy as np

from experiments.reporting.drawing import figure, short, styled

BEST = 3  # classes whose probabilities are told
UNKNOWN = 'unknown'
LABELLED = 40  # classes whose names fit beside the matrix


def answers(paths, classes, prediction, names):
    """One dictionary per query: its file, the verdict, the best classes and their probabilities, and the distance.

    classes: of each query, the class that its folder names, or '' where that is none.
    """
    probabilities, distances = np.asarray(prediction.probabilities), np.asarray(prediction.distances)
    found = []
    for place, (path, own) in enumerate(zip(paths, classes, strict=True)):
        best = np.argsort(distances[place], kind='stable')[:BEST]
        found.append(
            {
                'file': str(path),
                'predicted': UNKNOWN if prediction.unknown[place] else names[best[0]],
                'best': [[names[k], round(float(probabilities[place, k]), 6)] for k in best],
                'unknown': bool(prediction.unknown[place]),
                'distance': round(float(distances[place, best[0]]), 6),
                'class': own,
            }
        )
    return found


def as_lines(found, limit):
    """The answers as a table for the screen; those beyond the limit are counted."""
    rows = [
        [
            short(answer['file'], 44),
            short(answer['predicted'], 28),
            f'{answer["distance"]:.3g}',
            ', '.join(f'{short(name, 20)} {100 * share:.0f} %' for name, share in answer['best']),
        ]
        for answer in found[:limit]
    ]
    rows.insert(0, ['file', 'predicted', 'distance', 'most probable'])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return lines + ([f'... and {len(found) - limit} more'] if len(found) > limit else [])


def as_csv(found):
    """The answers as CSV."""
    stream = io.StringIO()
    best = [f'{what}{rank}' for rank in range(1, BEST + 1) for what in ('class', 'probability')]
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(['file', 'predicted', 'distance', *best, 'folder'])
    for answer in found:
        ranked = [value for pair in answer['best'] for value in pair]
        ranked += [''] * (2 * BEST - len(ranked))
        writer.writerow([answer['file'], answer['predicted'], answer['distance'], *ranked, answer['class']])
    return stream.getvalue()


def as_json(found, **about):
    """The answers and what else there is to tell as JSON."""
    return json.dumps({**about, 'answers': found}, indent=1) + '\n'


def summary(found, names):
    """What the folders of the queries tell of the answers, where they are named like classes -> dict, empty if not.

    Accuracy is that of the nearest class, whether or not it is near. Queries of other folders are strangers.
    """
    known, strangers = (
        [a for a in found if a['class'] and (a['class'] in names) == inside] for inside in (True, False)
    )
    if not known:
        return {}
    right = sum(answer['best'][0][0] == answer['class'] for answer in known)
    told = {'accuracy': 100 * right / len(known), 'queries': len(known), 'false_alarms': unknown_share(known)}
    if strangers:
        told |= {'strangers': len(strangers), 'strangers_found': unknown_share(strangers)}
    return told


def unknown_share(found):
    """Percentage of the answers that say unknown."""
    return 100 * sum(answer['unknown'] for answer in found) / len(found)


def summary_lines(told):
    """A summary in words."""
    if not told:
        return []
    lines = [f'accuracy {told["accuracy"]:.1f} % of {told["queries"]} queries']
    lines.append(f'called unknown: {told["false_alarms"]:.1f} % of them')
    if 'strangers' in told:
        lines[-1] += f', and {told["strangers_found"]:.1f} % of {told["strangers"]} queries of other classes'
    return lines


def confusion_matrix(found, names):
    """How often each class is taken for each, the last column being unknown: -> int [classes, classes + 1]."""
    number = {name: place for place, name in enumerate(names)}
    matrix = np.zeros((len(names), len(names) + 1), int)
    for answer in found:
        if answer['class'] in number:
            taken_for = len(names) if answer['unknown'] else number[answer['best'][0][0]]
            matrix[number[answer['class']], taken_for] += 1
    return matrix


@styled
def confusion_figure(matrix, names, title):
    """A confusion matrix as a picture: rows are the true classes -> Figure."""
    few = len(names) <= LABELLED
    drawn = figure(1.6 + (0.2 * len(names) if few else 6), width=2.6 + (0.2 * len(names) if few else 6))
    axes = drawn.subplots()
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap='Blues', vmin=0, vmax=1, aspect='auto')
    axes.set(xlabel='predicted', ylabel='class')
    if few:
        columns = [short(name, 22) for name in [*names, UNKNOWN]]
        axes.set_xticks(range(len(columns)), columns, rotation=90)
        axes.set_yticks(range(len(names)), columns[:-1])
        for row, column in np.argwhere(matrix):
            colour = 'white' if share[row, column] > 0.5 else 'black'
            axes.text(column, row, matrix[row, column], ha='center', va='center', fontsize=6, color=colour)
    drawn.suptitle(title, fontsize=9)
    return drawn
