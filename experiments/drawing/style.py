"""The style and file formats of all plots: readable in black and white and by the colour-blind.

Plots are made without pyplot, so they need no display and share no state.
"""

import io
import textwrap
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from protojax.files import write_whole

WIDTH = 5.5  # inches, the text width of a paper
# Okabe and Ito's colours, distinguishable by the colour-blind and, in this order, in greyscale.
COLOURS = BLUE, ORANGE, GREEN, PINK, SKY = '#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9'
RED = '#C8102E'  # errors, which are also marked otherwise
MARKERS = ('o', 's', '^', 'D', 'v')
DASHES = ('-', '--', '-.', ':')
METADATA = {'png': {'Software': None}, 'pdf': {'CreationDate': None, 'Producer': None}}

styled = matplotlib.rc_context(fname=Path(__file__).with_name('plots.mplstyle'))  # decorator of drawing functions


class DrawnClasses(NamedTuple):
    """Embedded items of several classes."""

    points: np.ndarray  # float [N, D]
    labels: np.ndarray  # int [N]
    names: tuple[str, ...]  # one per class
    images: np.ndarray | None = None  # uint8 [N, H, W, C]


@styled
def new_drawing(height: float, width: float = WIDTH, layout: str | None = None) -> Figure:
    """Return an empty figure; sizes in inches."""
    return Figure((width, height), layout=layout)


@styled
def encoded_drawing(figure: Figure, form: str = 'png') -> bytes:
    """Encode a figure as PNG or PDF. The same figure gives the same bytes."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Glyph', UserWarning)  # the font lacks some scripts; a box is drawn
        options = {'pil_kwargs': {'optimize': True}} if form == 'png' else {}
        figure.savefig(stream, dpi=figure.dpi, format=form, metadata=METADATA[form], **options)
    return stream.getvalue()


def save_drawing(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file extension."""
    write_whole(path, encoded_drawing(figure, path.suffix.removeprefix('.')))


def draw_note(figure: Figure, text: str) -> None:
    """Write a note below a figure."""
    letters = int(16.5 * figure.get_figwidth())  # per line
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, letters)]
    figure.supxlabel('\n'.join(lines), fontsize='medium', color='0.35')


def short_label(name: str, length: int = 24) -> str:
    """Abbreviate a long name in the middle and remove unprintable characters."""
    name = ''.join(letter if letter.isprintable() else ' ' for letter in name)
    if len(name) <= length:
        return name
    return f'{name[: length // 2 - 1]}…{name[-(length - length // 2) :]}'


def scatter_axes(points: np.ndarray, width: float, room: float) -> tuple[Figure, Axes, float]:
    """Return a figure with axes around all points, and the larger side of the axes.

    Args:
        points: Positions, float [N, 2].
        width: Width of the figure in inches.
        room: Margin as a fraction of the larger side of the points.
    """
    low, high = points.min(0), points.max(0)
    margin = room * max(high - low)
    low, high = low - margin, high + margin
    drawn = new_drawing(width * float((high - low)[1] / (high - low)[0]) + 0.9, width)
    axes = drawn.subplots()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect='equal', xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return drawn, axes, float(max(high - low))


def draw_image(
    axes: Axes, image: np.ndarray, position: np.ndarray, size: float, colour: str, *, order: int, framed: bool
) -> None:
    """Draw an image around a position in a frame of a colour; not framed, a greyscale drawing in this colour."""
    grey, (left, bottom) = image.shape[-1] == 1, position - size / 2
    pixels = np.repeat(255 - image, 3, -1) if grey else image  # foreground is 255, background 0
    if grey and not framed:
        pixels = np.empty((*image.shape[:2], 4))
        pixels[..., :3], pixels[..., 3] = to_rgb(colour), image[..., 0] / 255
    else:
        axes.add_patch(Rectangle((left, bottom), size, size, fill=False, edgecolor=colour, linewidth=1.2, zorder=order))
    extent = (left, left + size, bottom, bottom + size)
    axes.imshow(pixels, extent=extent, interpolation='bilinear', zorder=order)
