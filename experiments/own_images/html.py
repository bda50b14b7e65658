"""A self-contained HTML report, without scripts, that shows each query beside its nearest support images."""

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from experiments.own_images.loading import Embedded
from protojax.distances import pairwise, squared_euclidean
from protojax.images import ImageForm, read_images

SHOWN = 5000  # queries in a report; browsers are slow with more
SIZE = 96  # pixels of a thumbnail
NEIGHBOURS = 4  # support images beside a query

STYLE = Path(__file__).with_name('report.css')
DOUBTFUL = '<input type="checkbox" id="doubtful"> <label for="doubtful">only misclassified and unknown queries</label>'
ORDERS = {  # heading: sort key of an answer
    'class': lambda answer: answer['best'][0][0],
    'probability': lambda answer: answer['best'][0][1],
    'distance': lambda answer: -answer['distance'],
}


def report(lines: Sequence[str], answers: list[dict], queries: Embedded, support: Embedded | None) -> str:
    """Write the report.

    Args:
        lines: Summary, one paragraph each.
        answers: One dict per query, see `answers.rows`.
        queries, support: The embedded images; without support images, only the queries are shown.
    """
    if len(answers) > SHOWN:
        lines = [*lines, f'The first {SHOWN} of {len(answers)} queries are shown.']
    answers, nearest = answers[:SHOWN], np.zeros((len(answers[:SHOWN]), 0), int)
    if support:
        distances = pairwise(squared_euclidean)(queries.embeddings[:SHOWN], support.embeddings)
        nearest = np.argsort(np.asarray(distances), 1)[:, :NEIGHBOURS]
    shown = np.unique(nearest).tolist()
    pictures = zip(shown, thumbnails([support.paths[k] for k in shown]), strict=True)
    style = STYLE.read_text() + ''.join(f'.s{k} {{ background-image: url({url}) }}\n' for k, url in pictures)
    style += ''.join(f'#by-{name}:checked ~ table tr {{ order: var(--{name}) }}\n' for name in ORDERS)
    orders = [
        f'<input type="radio" name="order" id="by-{name}"><label for="by-{name}">{name}</label>' for name in ORDERS
    ]
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<title>Classified images</title><style>{style}</style></head><body><h1>Classified images</h1>',
        *(f'<p>{html.escape(line)}</p>' for line in lines),
        f'{DOUBTFUL}; sort by {" ".join(orders)}',
        '<table><tr><th>query<th>predicted<th>nearest support images</tr>',
    ]
    urls, ranks = thumbnails([answer['file'] for answer in answers]), _ranks(answers)
    for answer, url, row, rank in zip(answers, urls, nearest.tolist(), ranks, strict=True):
        beside = ''.join(f'<figure><i class="s{k}"></i>{html.escape(support.classes[k])}</figure>' for k in row)
        image = f'<img src="{url}" width="{SIZE}" height="{SIZE}" alt="">'
        link = html.escape(Path(answer['file']).absolute().as_uri())
        kind = '' if _is_wrong(answer) or answer['unknown'] else ' class="fine"'
        parts.append(f'<tr{kind} style="{rank}"><td><a href="{link}">{image}</a><td>{_cell(answer)}<td>{beside}')
    return '\n'.join([*parts, '</table></body></html>']) + '\n'


def _ranks(answers):
    """Return the position of each query in every order as CSS variables; the header is at 0."""
    ranks = [''] * len(answers)
    for name, key in ORDERS.items():
        for rank, k in enumerate(sorted(range(len(answers)), key=lambda k: key(answers[k])), 1):
            ranks[k] += f'--{name}:{rank};'
    return ranks


def _cell(answer):
    """Format the prediction for a query."""
    best = '<br>'.join(f'{html.escape(name)} {100 * share:.1f} %' for name, share in answer['best'])
    true = f'<br>true class: {html.escape(answer["true_class"])}' if answer['true_class'] else ''
    nearest = html.escape(answer['best'][0][0])
    text = f'Unknown; nearest: {nearest}' if answer['unknown'] else nearest
    head = f'<span{" class=wrong" if _is_wrong(answer) else ""}>{text}</span>'
    file = html.escape(answer['file'])
    return f'{head}<br><small>{best}<br>distance {answer["distance"]:.3g}{true}<br>{file}</small>'


def _is_wrong(answer):
    """Return whether a query is accepted as another class than its true class."""
    return bool(answer['true_class']) and not answer['unknown'] and answer['true_class'] != answer['best'][0][0]


def thumbnails(paths: Sequence[str | Path]) -> list[str]:
    """Return data URLs of images, '' for files that cannot be read."""
    images = read_images(paths, ImageForm((SIZE, SIZE, 3), crop=1.0))
    return [data_url(image) if isinstance(image, np.ndarray) else '' for image in images]


def data_url(image: np.ndarray, kind: str = 'jpeg') -> str:
    """Encode an image as a data URL: uint8 [H, W] or [H, W, 3]."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, quality=80)
    return f'data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}'
