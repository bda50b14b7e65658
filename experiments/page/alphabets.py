"""Alphabets to fill the page with: the Elder Futhark, and those of Omniglot where it is prepared on this machine.

An alphabet is a dictionary from names of characters to drawings as the bytes of PNG files.
"""

import functools
import io

import numpy as np
from PIL import Image, ImageDraw

from protojax.datasets.synthetic.handwriting import POINTS, STROKES, vary_handwriting
from protojax.errors import DataError, Missing

FUTHARK = 'Elder Futhark (runes)'
DRAWINGS = 3  # of each character
SIZE, SUPERSAMPLING = 105, 4  # pixels of a drawing, as in Omniglot
PEN = 5  # pixels, as in Omniglot
HEIGHT = 0.62  # of a rune in its drawing; the page brings all drawings to this size

# The strokes of each rune, as corners in a square of ten by ten. Strokes have 1, 2, 3, 4 or 6 sides, so that a line of
# POINTS points that are spread evenly over the sides passes through every corner.
RUNES = {
    'fehu': '2,0 2,10 | 2,4 7,0 | 2,7 7,3',
    'uruz': '2,10 2,0 8,4 8,10',
    'thurisaz': '2,0 2,10 | 2,2 7,5 2,8',
    'ansuz': '2,0 2,10 | 2,0 7,4 | 2,3 7,7',
    'raido': '2,0 2,10 | 2,0 7,2.5 2,5 8,10',
    'kenaz': '7,1 3,5 7,9',
    'gebo': '1,1 9,9 | 9,1 1,9',
    'wunjo': '2,0 2,10 | 2,0 7,2.5 2,5',
    'hagalaz': '2,0 2,10 | 8,0 8,10 | 2,3.5 8,6.5',
    'naudiz': '5,0 5,10 | 2,3 8,7',
    'isaz': '5,0 5,10',
    'jera': '6,0 2,3.5 6,7 | 4,3 8,6.5 4,10',
    'eihwaz': '8,3 5,0 5,10 2,7',
    'perth': '2,0 2,10 | 2,0 5,3 8,0 | 2,10 5,7 8,10',
    'algiz': '5,0 5,10 | 1,0 5,5 9,0',
    'sowilo': '7,0 3,3.5 7,6.5 3,10',
    'tiwaz': '5,0 5,10 | 1,4 5,0 9,4',
    'berkano': '2,0 2,10 | 2,0 7,2.5 2,5 7,7.5 2,10',
    'ehwaz': '2,10 2,0 5,4 8,0 8,10',
    'mannaz': '2,0 2,10 | 8,0 8,10 | 2,0 8,5 | 8,0 2,5',
    'laguz': '3,10 3,0 8,4',
    'ingwaz': '5,1 9,5 5,9 1,5 5,1',
    'dagaz': '1,0 1,10 9,0 9,10 1,0',
    'othala': '2,10 8,4 5,0 2,4 8,10',
}


@functools.cache
def alphabets(data_dir=None):
    """All alphabets by name."""
    return {FUTHARK: futhark(), **_omniglot_alphabets(data_dir)}


def futhark():
    """Runes, each drawing in a hand of its own."""
    rng = np.random.default_rng(0)
    return {name: [png_of_character(lines) for lines in drawn_by_hand(rng, strokes)] for name, strokes in RUNES.items()}


def drawn_by_hand(rng, strokes):
    """DRAWINGS variations of a character, each a list of lines [POINTS, 2] in the unit square."""
    corners = [np.array([point.split(',') for point in stroke.split()], float) for stroke in strokes.split('|')]
    pens = np.full((STROKES, POINTS, 2), 0.5)
    for pen, stroke in zip(pens, corners, strict=False):
        at = np.linspace(0, len(stroke) - 1, POINTS)
        pen[:] = np.stack([np.interp(at, np.arange(len(stroke)), axis) for axis in stroke.T], 1) / 10
    pens = (pens - 0.5) * HEIGHT + 0.5
    return vary_handwriting(rng, np.repeat(pens[None], DRAWINGS, 0))[:, : len(corners)]


def png_of_character(lines):
    """A drawing of lines in the unit square, dark on light."""
    canvas = Image.new('L', (SIZE * SUPERSAMPLING,) * 2, 255)
    draw, radius = ImageDraw.Draw(canvas), PEN * SUPERSAMPLING / 2
    for line in lines * SIZE * SUPERSAMPLING:
        draw.line([tuple(point) for point in line], fill=0, width=PEN * SUPERSAMPLING, joint='curve')
        for x, y in (line[0], line[-1]):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=0)
    return _png_of_drawing(np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.BOX)))


def _omniglot_alphabets(data_dir):
    """The alphabets that Omniglot keeps for the test, if it is prepared; nothing is downloaded or prepared for this."""
    from protojax.datasets import omniglot, preparing  # takes seconds, so only now

    def nothing(root):
        raise Missing('there is no Omniglot')

    make = functools.partial(omniglot.OmniglotCharacters, config='antialias')
    try:
        test = preparing.load_prepared(make, source=None, data_dir=data_dir, fetch=nothing, wanted=['test'])['test']
    except DataError:
        return {}
    found = {}
    for name, drawings in zip(test.names, test.items, strict=True):
        alphabet, character = name.split('/')
        pictures = [_png_of_drawing(255 - drawing) for drawing in drawings[:DRAWINGS]]
        found.setdefault(alphabet.replace('_', ' '), {})[character.removeprefix('character')] = pictures
    return {name: characters for name, characters in found.items() if len(characters) > 4}  # Gurmukhi has four


def _png_of_drawing(grey):
    """uint8 [H, W] -> the bytes of a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(grey).save(stream, 'PNG')
    return stream.getvalue()
