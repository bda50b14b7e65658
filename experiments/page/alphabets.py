"""Alphabets for the page: the Elder Futhark and, if Omniglot is prepared on this machine, its test alphabets.

An alphabet is a dict from character names to drawings, as the bytes of PNG files.
"""

import io
import json
import pathlib

import numpy as np
from PIL import Image, ImageDraw

from protojax.datasets.synthetic.handwriting import POINTS, STROKES, vary
from protojax.errors import DataError

FUTHARK = 'Elder Futhark (runes)'
DRAWINGS = 3  # per character
SIZE, SUPERSAMPLING = 105, 4  # pixels of a drawing, as in Omniglot
PEN = 5  # pixels, as in Omniglot
HEIGHT = 0.62  # of a rune, as a fraction of the drawing; the page scales all drawings to it

# Strokes of each rune, as corners in a 10x10 square. Strokes have 1, 2, 3, 4 or 6 sides, so that POINTS points spread
# evenly over the sides include every corner.
RUNES: dict[str, str] = json.loads(pathlib.Path(__file__).with_name('runes.json').read_text())


def every(data_dir: str | None = None) -> dict[str, dict[str, list[bytes]]]:
    """Return all alphabets by name."""
    return {FUTHARK: futhark(), **omniglot(data_dir)}


def futhark() -> dict[str, list[bytes]]:
    """Draw the runes, each drawing with a different handwriting."""
    rng = np.random.default_rng(0)
    return {name: [png(drawn(lines)) for lines in handwritten(rng, strokes)] for name, strokes in RUNES.items()}


def omniglot(data_dir: str | None) -> dict[str, dict[str, list[bytes]]]:
    """Return the test alphabets of Omniglot, or {} if it is not prepared; nothing is downloaded."""
    from protojax.datasets import omniglot, prepared  # imports TFDS, which takes seconds

    plan, options = omniglot.plan()._replace(remotes=()), {'data': 'real', 'source': None, 'data_dir': data_dir}
    try:
        test = prepared.load(plan, **options, synthetic=omniglot.handwriting, splits=('test',)).test
    except DataError:
        return {}
    found: dict[str, dict[str, list[bytes]]] = {}
    for name, drawings in zip(test.names, test.items, strict=True):
        alphabet, character = name.split('/')
        pictures = [png(Image.fromarray(255 - drawing[..., 0])) for drawing in drawings[:DRAWINGS]]
        found.setdefault(alphabet.replace('_', ' '), {})[character.removeprefix('character')] = pictures
    return {name: characters for name, characters in found.items() if len(characters) > 4}  # Gurmukhi has four


def handwritten(rng: np.random.Generator, strokes: str) -> np.ndarray:
    """Return variations of a character, as lines in the unit square: [DRAWINGS, strokes, POINTS, 2]."""
    corners = [np.array([point.split(',') for point in stroke.split()], float) for stroke in strokes.split('|')]
    pens = np.full((STROKES, POINTS, 2), 0.5)
    for pen, stroke in zip(pens, corners, strict=False):
        at = np.linspace(0, len(stroke) - 1, POINTS)
        pen[:] = np.stack([np.interp(at, np.arange(len(stroke)), axis) for axis in stroke.T], 1) / 10
    pens = (pens - 0.5) * HEIGHT + 0.5
    return vary(rng, np.repeat(pens[None], DRAWINGS, 0))[:, : len(corners)]


def drawn(lines: np.ndarray) -> Image.Image:
    """Draw lines in the unit square, dark on light: [strokes, POINTS, 2]."""
    canvas = Image.new('L', (SIZE * SUPERSAMPLING,) * 2, 255)
    draw, radius = ImageDraw.Draw(canvas), PEN * SUPERSAMPLING / 2
    for line in lines * SIZE * SUPERSAMPLING:
        draw.line([tuple(point) for point in line], fill=0, width=PEN * SUPERSAMPLING, joint='curve')
        for x, y in (line[0], line[-1]):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=0)
    return canvas.resize((SIZE, SIZE), Image.Resampling.BOX)


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, 'PNG')
    return stream.getvalue()
