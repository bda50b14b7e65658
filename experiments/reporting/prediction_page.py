"""One HTML file that shows each query beside its nearest support images. It needs no other file and no script."""

import base64
import html
import io

import numpy as np
from PIL import Image

from protojax.images import Form, read_images

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
"""


def page(title, lines, found, queries, support, support_classes, nearest):
    """The page: a title, lines about the whole, then the answers, each with the support images at given places.

    queries, support: paths; nearest: int [Q, n], places in support.
    """
    shown = sorted({place for row in nearest for place in row[:BESIDE].tolist()})
    pictures = dict(zip(shown, thumbnails([support[place] for place in shown]), strict=True))
    styles = ''.join(f'.s{place} {{ background-image: url({url}) }}\n' for place, url in pictures.items())
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<title>{html.escape(title)}</title><style>{STYLE}{styles}</style></head><body>',
        f'<h1>{html.escape(title)}</h1>',
        *(f'<p>{html.escape(line)}</p>' for line in lines),
        '<table><tr><th>query<th>predicted<th>nearest support images</tr>',
    ]
    for answer, url, row in zip(found, thumbnails(queries), nearest, strict=True):
        beside = ''.join(beside_query(place, support_classes[place]) for place in row[:BESIDE].tolist())
        parts.append(
            f'<tr><td><img src="{url}" width="{SIDE}" height="{SIDE}" alt=""><td>{verdict(answer)}<td>{beside}'
        )
    return '\n'.join([*parts, '</table></body></html>']) + '\n'


def verdict(answer):
    """What is said of a query, in HTML."""
    wrong = answer['class'] and answer['class'] != answer['best'][0][0]
    best = '<br>'.join(f'{html.escape(name)} {100 * share:.1f} %' for name, share in answer['best'])
    own = f'<br>in the folder {html.escape(answer["class"])}' if answer['class'] else ''
    head = f'<span{" class=wrong" if wrong else ""}>{html.escape(answer["predicted"])}</span>'
    return f'{head}<br><small>{best}<br>distance {answer["distance"]:.3g}{own}<br>{html.escape(answer["file"])}</small>'


def beside_query(place, name):
    return f'<figure><i class="s{place}"></i>{html.escape(name)}</figure>'


def thumbnails(paths):
    """The images of files as addresses that hold the image itself."""
    images = read_images(paths, Form((SIDE, SIDE, 3), crop=1.0))
    return [address(image) if isinstance(image, np.ndarray) else '' for image in images]


def address(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, 'JPEG', quality=80)
    return f'data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}'
