"""Predictions for a list of files: rows, lines for the terminal, CSV, and accuracy."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.drawing.style import short_label
from protojax import Prediction, errors

BEST = 3  # classes whose probabilities are reported
UNKNOWN = 'unknown'


def rows(paths: Sequence[Path], classes: Sequence[str], prediction: Prediction) -> list[dict]:
    """Return one dict per query: file, prediction, most probable classes, distance and true class ('' if unknown)."""
    probabilities, distances = np.asarray(prediction.probabilities), np.asarray(prediction.distances)
    names, unknown = prediction.names, np.asarray(prediction.unknown)
    order = np.lexsort((distances, -probabilities), axis=1)[:, :BEST]
    return [
        {
            'file': str(path),
            'predicted': UNKNOWN if unknown[k] else names[k],
            'best': [[prediction.classes[c], round(float(probabilities[k, c]), 6)] for c in order[k]],
            'unknown': bool(unknown[k]),
            'distance': round(float(distances[k, order[k, 0]]), 6),
            'true_class': true_class,
        }
        for k, (path, true_class) in enumerate(zip(paths, classes, strict=True))
    ]


def as_lines(answers: list[dict], limit: int, columns: int = 160) -> list[str]:
    """Format the first answers as a table for a terminal."""
    table = [['file', 'predicted', 'distance', 'most probable']]
    for answer in answers[:limit]:
        best = ', '.join(f'{short_label(name, 20)} {100 * share:.0f} %' for name, share in answer['best'])
        file, predicted = short_label(answer['file'], columns // 4), short_label(answer['predicted'], columns // 5)
        table.append([file, predicted, f'{answer["distance"]:.3g}', best])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines = [line if len(line) <= columns else f'{line[: columns - 1]}…' for line in lines]
    return lines + ([f'... and {len(answers) - limit} more in predictions.csv'] if len(answers) > limit else [])


def as_csv(answers: list[dict]) -> str:
    """Format the answers as CSV in which no cell is a spreadsheet formula."""
    stream = io.StringIO()
    best = [f'{what}{rank}' for rank in range(1, BEST + 1) for what in ('class', 'probability')]
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(['file', 'predicted', 'unknown', 'distance', *best, 'true_class'])
    for answer in answers:
        ranked = [value for name, share in answer['best'] for value in (_cell(name), share)]
        ranked += [''] * (2 * BEST - len(ranked))
        file, predicted, true_class = (_cell(answer[column]) for column in ('file', 'predicted', 'true_class'))
        writer.writerow([file, predicted, answer['unknown'], answer['distance'], *ranked, true_class])
    return stream.getvalue()


def _cell(name):
    """Format an untrusted name as a cell without control characters that is not evaluated as a formula."""
    name = errors.printable(name)
    return f"'{name}" if name.startswith(('=', '+', '-', '@')) else name


def summarize(answers: list[dict], names: Sequence[str]) -> dict:
    """Compute accuracy and rejection in percent, or {} if no query is in a folder with the name of a class."""
    known = [answer for answer in answers if answer['true_class'] in names]
    unseen = [answer for answer in answers if answer['true_class'] and answer['true_class'] not in names]
    if not known:
        return {}
    correct = [answer['best'][0][0] == answer['true_class'] for answer in known]
    rejected = [answer['unknown'] for answer in known]
    summary = {
        'queries': len(known),
        'accuracy': 100 * np.mean(correct),
        'accuracy_with_rejection': 100 * np.mean(np.array(correct) & ~np.array(rejected)),
        'false_rejections': 100 * np.mean(rejected),
    }
    if unseen:
        summary |= {'unseen': len(unseen), 'unseen_rejected': 100 * np.mean([answer['unknown'] for answer in unseen])}
        summary |= {'unseen_classes': sorted({answer['true_class'] for answer in unseen})}
    return summary


def summary_lines(summary: dict, answers: list[dict]) -> list[str]:
    """Describe a summary in words."""
    if not summary:
        rejected = sum(answer['unknown'] for answer in answers)
        return [
            f'rejected as unknown: {rejected} of {len(answers)} (no subfolder of the queries is named like a class)'
        ]
    accuracy, accepted = summary['accuracy'], summary['accuracy_with_rejection']
    lines = [
        f'accuracy: {accuracy:.1f} % without rejection; {accepted:.1f} % counting unknown as wrong '
        f'(queries of known classes: {summary["queries"]})',
        f'rejected as unknown: {summary["false_rejections"]:.1f} % of the queries of known classes',
    ]
    if 'unseen' in summary:
        lines[-1] += f', {summary["unseen_rejected"]:.1f} % of {summary["unseen"]} from other classes'
        lines[-1] += f' (first: {errors.printable(summary["unseen_classes"][0])})'
    return lines
