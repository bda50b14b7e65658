"""One HTML file that shows each query beside its nearest support images. It needs no other file and no script."""

import base64
import html
import io

import numpy as np
from PIL import Image

from protojax.images import ImageForm, read_images

SHOWN = 5000  # queries on a page; with more, browsers are slow
SIDE = 96  # pixels of a thumbnail
BESIDE = 4  # support images beside a query

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100% }
td, th { padding: .5em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
i { display: inline-block; width: 96px; height: 96px; margin-right: 4px; background-size: cover }
td:last-child { min-width: 410px }
figure { display: inline-block; margin: 0; max-width: 100px; font-size: 11px; vertical-align: top }
figure, small { overflow-wrap: anywhere }
small { color: #666 }
.wrong { color: #a00; font-weight: bold }
#doubtful:checked ~ table .fine { display: none }
"""
DOUBTFUL = '<input type="checkbox" id="doubtful"> <label for="doubtful">only mistakes and unknown ones</label>'


def prediction_page(title, lines, found, queries, support, support_classes, nearest):
    """The page: a title, lines about the whole, then the answers, each with the support images at given places.

    queries, support: paths; nearest: int [Q, n], places in support.
    """
    shown = sorted({place for row in nearest for place in row[:BESIDE].tolist()})
    pictures = dict(zip(shown, thumbnails_for_page([support[place] for place in shown]), strict=True))
    styles = ''.join(f'.s{place} {{ background-image: url({url}) }}\n' for place, url in pictures.items())
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<title>{html.escape(title)}</title><style>{STYLE}{styles}</style></head><body>',
        f'<h1>{html.escape(title)}</h1>',
        *(f'<p>{html.escape(line)}</p>' for line in lines),
        DOUBTFUL,
        '<table><tr><th>query<th>predicted<th>nearest support images</tr>',
    ]
    for answer, url, row in zip(found, thumbnails_for_page(queries), nearest, strict=True):
        names = {place: html.escape(support_classes[place]) for place in row[:BESIDE].tolist()}
        beside = ''.join(f'<figure><i class="s{place}"></i>{name}</figure>' for place, name in names.items())
        image = f'<img src="{url}" width="{SIDE}" height="{SIDE}" alt="">'
        kind = '' if _is_wrong_prediction(answer) or answer['unknown'] else ' class="fine"'
        parts.append(f'<tr{kind}><td>{image}<td>{_prediction_in_html(answer)}<td>{beside}')
    return '\n'.join([*parts, '</table></body></html>']) + '\n'


def _prediction_in_html(answer):
    """What is said of a query, in HTML."""
    best = '<br>'.join(f'{html.escape(name)} {100 * share:.1f} %' for name, share in answer['best'])
    own = f'<br>in the folder {html.escape(answer["class"])}' if answer['class'] else ''
    head = f'<span{" class=wrong" if _is_wrong_prediction(answer) else ""}>{html.escape(answer["predicted"])}</span>'
    return f'{head}<br><small>{best}<br>distance {answer["distance"]:.3g}{own}<br>{html.escape(answer["file"])}</small>'


def _is_wrong_prediction(answer):
    """Whether a query is taken for a class, and its folder names another."""
    return bool(answer['class']) and not answer['unknown'] and answer['class'] != answer['best'][0][0]


def thumbnails_for_page(paths):
    """The images of files as addresses that hold the image itself."""
    images = read_images(paths, ImageForm((SIDE, SIDE, 3), crop=1.0))
    return [_address_of_thumbnail(image) if isinstance(image, np.ndarray) else '' for image in images]


def _address_of_thumbnail(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, 'JPEG', quality=80)
    return f'data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}'
