"""What a classifier says of images: lines on the screen, CSV, and accuracy."""

import csv
import io

import numpy as np

from experiments.reporting.drawing import short_label
from protojax.errors import printable

BEST = 3  # classes whose probabilities are told
UNKNOWN = 'unknown'


def listed_predictions(paths, classes, prediction, names):
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


def predictions_as_lines(found, limit, columns=160):
    """The answers as a table for a screen of some columns; those beyond the limit are counted."""
    rows = [
        [
            short_label(answer['file'], columns // 4),
            short_label(answer['predicted'], columns // 5),
            f'{answer["distance"]:.3g}',
            ', '.join(f'{short_label(name, 20)} {100 * share:.0f} %' for name, share in answer['best']),
        ]
        for answer in found[:limit]
    ]
    rows.insert(0, ['file', 'predicted', 'distance', 'most probable'])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines = [line if len(line) <= columns else f'{line[: columns - 1]}…' for line in lines]
    return lines + ([f'... and {len(found) - limit} more'] if len(found) > limit else [])


def predictions_as_csv(found):
    """The answers as CSV, of which no cell is a formula to a spreadsheet."""
    stream = io.StringIO()
    best = [f'{what}{rank}' for rank in range(1, BEST + 1) for what in ('class', 'probability')]
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(['file', 'predicted', 'distance', *best, 'folder'])
    for answer in found:
        ranked = [value for name, share in answer['best'] for value in (_prediction_cell(name), share)]
        ranked += [''] * (2 * BEST - len(ranked))
        file, predicted, own = (_prediction_cell(answer[column]) for column in ('file', 'predicted', 'class'))
        writer.writerow([file, predicted, answer['distance'], *ranked, own])
    return stream.getvalue()


def _prediction_cell(name):
    """A foreign name for a spreadsheet, in which no control character does and no formula computes anything."""
    name = printable(name)
    return f"'{name}" if name.startswith(('=', '+', '-', '@')) else name


def prediction_summary(found, names):
    """What the folders of the queries tell of the answers, where they are named like classes -> dict, empty if not.

    Accuracy is that of the nearest class, whether or not it is near. Queries of other folders are strangers.
    """
    known, strangers = (
        [a for a in found if a['class'] and (a['class'] in names) == inside] for inside in (True, False)
    )
    if not known:
        return {}
    right = sum(answer['best'][0][0] == answer['class'] for answer in known)
    told = {'accuracy': 100 * right / len(known), 'queries': len(known), 'false_alarms': _unknown_predictions(known)}
    if strangers:
        told |= {'strangers': len(strangers), 'strangers_found': _unknown_predictions(strangers)}
    return told


def _unknown_predictions(found):
    """Percentage of the answers that say unknown."""
    return 100 * sum(answer['unknown'] for answer in found) / len(found)


def prediction_summary_lines(told):
    """A summary in words."""
    if not told:
        return []
    lines = [f'accuracy {told["accuracy"]:.1f} % of {told["queries"]} queries, by the nearest class']
    lines.append(f'wrongly called unknown: {told["false_alarms"]:.1f} % of them')
    if 'strangers' in told:
        lines[-1] += f', and {told["strangers_found"]:.1f} % of {told["strangers"]} queries of other classes'
    return lines
