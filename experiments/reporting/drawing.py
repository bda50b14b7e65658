"""How pictures look and how they are written: one style, readable in black and white and by the colour-blind.

Figures are made without pyplot, so that no display is asked for and nothing is kept between pictures.
"""

import io
import textwrap
import warnings
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from protojax.files import write_whole

WIDTH = 5.5  # inches of a paper's text: at that width letters have their size in points
STYLE = {
    'font.size': 9,
    'axes.titlesize': 9,
    'axes.labelsize': 9,
    'xtick.labelsize': 8,
    'ytick.labelsize': 8,
    'legend.fontsize': 8,
    'legend.frameon': False,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.linewidth': 0.8,
    'axes.axisbelow': True,
    'grid.color': '0.88',
    'grid.linewidth': 0.6,
    'lines.linewidth': 1.4,
    'lines.markersize': 4.5,
    'hatch.linewidth': 0.7,
    'figure.dpi': 200,
    'figure.constrained_layout.use': True,
    'pdf.fonttype': 42,  # letters as letters, which publishers ask for
    'text.parse_math': False,  # a dollar sign in the name of a class is one
}
# Okabe and Ito's colours, which the colour-blind tell apart; in this order they also differ as greys.
BLUE, ORANGE, GREEN, PINK, SKY = '#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9'
RED = '#C8102E'  # of mistakes, which have another mark besides
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY)
MARKERS = ('o', 's', '^', 'D', 'v')
UNVARYING = {'png': {'Software': None}, 'pdf': {'CreationDate': None, 'Producer': None}}
DASHES = ('-', '--', '-.', ':')

styled = matplotlib.rc_context(STYLE)  # decorates functions that draw


class DrawnClasses(NamedTuple):
    """Items of some classes in embedding space."""

    points: np.ndarray  # float [N, D]
    labels: np.ndarray  # int [N]
    names: tuple[str, ...]  # one per class
    images: np.ndarray | None = None  # uint8 [N, H, W, C]


@styled
def new_drawing(height, width=WIDTH, layout=None):
    """An empty figure, its sizes in inches."""
    return Figure((width, height), layout=layout)


@styled
def encoded_drawing(figure, form='png'):
    """A figure as the bytes of a file in one of UNVARYING's forms. The same figure gives the same bytes."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Glyph', UserWarning)  # of a script that the font lacks; a box is drawn
        options = {'pil_kwargs': {'optimize': True}} if form == 'png' else {}
        figure.savefig(stream, dpi=figure.dpi, format=form, metadata=UNVARYING[form], **options)
    return stream.getvalue()


def save_drawing(figure, path):
    """Write a figure in the form that the name ends with."""
    write_whole(path, encoded_drawing(figure, path.suffix.removeprefix('.')))


def draw_note(figure, text):
    """Lines below everything: where the data come from, what the marks mean."""
    letters = int(16.5 * figure.get_figwidth())  # that fit into a line
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, letters)]
    figure.supxlabel('\n'.join(lines), fontsize=8, color='0.35')


def short_label(name, length=24):
    """A name without its middle where it is long, and without characters that cannot be printed."""
    name = ''.join(letter if letter.isprintable() else ' ' for letter in name)
    if len(name) <= length:
        return name
    return f'{name[: length // 2 - 1]}…{name[-(length - length // 2) :]}'


def drawing_frame(points, room):
    """Corners of a picture with all points inside, and room around them, as a share of its larger side."""
    low, high = points.min(0), points.max(0)
    return low - room * max(high - low), high + room * max(high - low)


def draw_stamp(axes, image, place, size, colour, *, order):
    """An image around a place: a drawing as ink of a colour, a photo in a frame of it."""
    if image.shape[-1] != 1:
        return draw_tile(axes, image, place, size, colour, order=order)
    ink = np.empty((*image.shape[:2], 4))
    ink[..., :3], ink[..., 3] = to_rgb(colour), image[..., 0] / 255
    axes.imshow(ink, extent=_around(place, size), interpolation='bilinear', zorder=order)


def draw_tile(axes, image, place, size, colour, *, order):
    """An image around a place in a frame of a colour."""
    pixels = np.repeat(255 - image, 3, -1) if image.shape[-1] == 1 else image  # ink is 255, paper 0
    axes.imshow(pixels, extent=_around(place, size), interpolation='bilinear', zorder=order)
    frame = Rectangle(place - size / 2, size, size, fill=False, edgecolor=colour, linewidth=1.2, zorder=order)
    axes.add_patch(frame)


def _around(place, size):
    """Left, right, bottom and top of a square."""
    return place[0] - size / 2, place[0] + size / 2, place[1] - size / 2, place[1] + size / 2
