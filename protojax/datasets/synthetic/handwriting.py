"""A stand-in for Omniglot, drawn by a seeded generator: invented alphabets of handwritten characters.

A character is a few strokes; a stroke is the walk of a pen that turns as it goes. The characters of an alphabet share
its taste in strokes. Every drawing of a character has a hand of its own: strokes are displaced, turned and bent, the
whole is slanted, stretched and moved, and pens differ.
"""

from typing import NamedTuple

import numpy as np

from protojax.datasets import Data, Split

TITLE = 'synthetic handwriting, not Omniglot'
SIZE = 28  # pixels
STROKES = 4  # of a character, at most
STEPS = 6  # of the pen in a stroke
POINTS = 13  # of the line that is drawn for a stroke
TURNS = {  # how the pen turns before each step, in units of a stroke's bend; the bends to choose from, in degrees
    'line': ((0, 0, 0, 0, 0, 0), (0,)),
    'arc': ((0, 1, 1, 1, 1, 1), (18, 28, 36)),
    'hook': ((0, 0, 0, 0, 1, 1), (60, 80)),
    'wave': ((0, 1, 1, -1, -1, -1), (35, 50)),
    'ring': ((0, 1, 1, 1, 1, 1), (60, 66)),
    'angle': ((0, 0, 0, 1, 0, 0), (80, 100, 125)),
    'zigzag': ((0, 0, 1, 0, -1, 0), (90, 120)),
}
HEADINGS = (4, 1, 5, 1, 1, 0.5, 1, 1)  # right and down are what most scripts prefer
SHARP = ('line', 'angle', 'zigzag')


class _HandwritingStyle(NamedTuple):
    """What the characters of an alphabet have in common."""

    kinds: np.ndarray  # [len(TURNS)], how often it uses each kind of stroke
    strokes: np.ndarray  # [STROKES - 1], how often a character has 2, 3, ... strokes
    headings: np.ndarray  # [8], how often a stroke sets out to the right, down and right, down, ...
    lean: float  # degrees by which all headings are off
    joined: float  # how often a stroke begins on another one
    width: float  # of characters, relative to their height


class _HandwrittenCharacter(NamedTuple):
    """The strokes that every drawing of a character is a variation of."""

    pens: np.ndarray  # [STROKES, STEPS + 1, 2], the pen's way in the unit square
    sharp: np.ndarray  # [STROKES], 1 where the pen's way is drawn with its corners
    drawn: np.ndarray  # bool [STROKES]


def handwriting(seed: int = 0, *, alphabets: tuple[int, int, int] = (30, 5, 10), characters=20, drawings=20) -> Data:
    """Alphabets for training, validation and test, items uint8 [classes, drawings, 28, 28, 1] with ink = 255."""
    splits, first = [], 0
    for number in alphabets:
        ranks = range(first, first + number)
        items = [_handwritten_alphabet(np.random.default_rng((seed, rank)), characters, drawings) for rank in ranks]
        names = tuple(f'Invented{rank:02}/character{n + 1:02}' for rank in ranks for n in range(characters))
        splits.append(Split(np.concatenate(items), np.full(len(names), drawings, np.int32), names))
        first += number
    return Data(TITLE, True, *splits)


def _handwritten_alphabet(rng: np.random.Generator, characters: int, drawings: int) -> np.ndarray:
    """The drawings of all characters of one alphabet: uint8 [characters, drawings, 28, 28, 1]."""
    style = _HandwritingStyle(
        kinds=rng.dirichlet(np.full(len(TURNS), 0.6)),
        strokes=rng.dirichlet([5, 4, 2]),
        headings=rng.dirichlet(HEADINGS),
        lean=rng.normal(0, 5),
        joined=rng.uniform(0.7, 1),
        width=rng.uniform(0.7, 1.1),
    )
    each = [_handwritten_character(rng, style) for _ in range(characters)]
    pens, sharp, drawn = (np.repeat(np.stack(part), drawings, 0) for part in zip(*each, strict=True))
    lines = trace_strokes(vary_handwriting(rng, pens), sharp)
    images = render_strokes(lines, drawn, rng.uniform(1.0, 1.6, len(lines)))
    return images.reshape(characters, drawings, SIZE, SIZE, 1)


def _handwritten_character(rng: np.random.Generator, style: _HandwritingStyle) -> _HandwrittenCharacter:
    """A new character in the style of its alphabet, filling a box of the unit square."""
    count = 2 + rng.choice(STROKES - 1, p=style.strokes)  # a single line or ring would look the same when turned
    pens, sharp = np.zeros((STROKES, STEPS + 1, 2)), np.zeros(STROKES)
    for k in range(count):
        kind = list(TURNS)[rng.choice(len(TURNS), p=style.kinds)]
        pens[k], sharp[k] = _pen_walk(rng, kind, style), kind in SHARP
        if k and rng.random() < style.joined:
            ends = (0, STEPS // 2, STEPS)
            pens[k] += pens[rng.integers(k), rng.choice(ends)] - pens[k, rng.choice(ends)]
        else:
            pens[k] += rng.uniform(-0.5, 0.5, 2)
    low, high = pens[:count].min((0, 1)), pens[:count].max((0, 1))
    extent = np.maximum(high - low, 0.35 * (high - low).max())
    pens = (pens - (low + high) / 2) / extent * np.array([style.width, 1.0]) * rng.uniform(0.55, 0.72)
    return _HandwrittenCharacter(pens + 0.5, sharp, np.arange(STROKES) < count)


def _pen_walk(rng: np.random.Generator, kind: str, style: _HandwritingStyle) -> np.ndarray:
    """The pen's way for a stroke of some kind, from the origin: [STEPS + 1, 2]."""
    pattern, bends = TURNS[kind]
    turn = rng.choice(bends) * rng.choice([-1, 1])
    heading = style.lean + 45 * rng.choice(len(HEADINGS), p=style.headings)
    headings = np.radians(heading + np.cumsum(np.array(pattern) * turn))
    step = rng.choice([0.5, 0.8, 1.0]) / STEPS
    return np.concatenate([np.zeros((1, 2)), step * np.cumsum(np.stack([np.cos(headings), np.sin(headings)], -1), 0)])


def vary_handwriting(rng: np.random.Generator, pens: np.ndarray) -> np.ndarray:
    """Every drawing in a hand of its own: [N, STROKES, STEPS + 1, 2] -> the same."""
    n, strokes, points, _ = pens.shape
    middle = pens.mean(2, keepdims=True)
    pens = middle + _bend(rng, pens - middle, (n, strokes, 1), turn=7, stretch=0.13, slant=0.1)
    pens = pens + rng.normal(0, 0.025, (n, strokes, 1, 2)) + rng.normal(0, 0.012, (n, strokes, points, 2))
    whole = _bend(rng, pens - 0.5, (n, 1, 1), turn=6, stretch=0.12, slant=0.12)
    return whole + 0.5 + rng.normal(0, 0.035, (n, 1, 1, 2))


def _bend(rng: np.random.Generator, points: np.ndarray, shape: tuple[int, ...], *, turn, stretch, slant) -> np.ndarray:
    """Points [..., 2] turned (degrees), stretched and slanted at random, in one way for each entry of shape."""
    angle = np.radians(rng.normal(0, turn, shape))
    wide, high = np.exp(rng.normal(0, stretch, (2, *shape)))
    x = wide * (points[..., 0] + rng.normal(0, slant, shape) * points[..., 1])
    y = high * points[..., 1]
    return np.stack([np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y], -1)


def trace_strokes(pens: np.ndarray, sharp: np.ndarray) -> np.ndarray:
    """Lines along the pens' ways, rounded (a quadratic B-spline) or with corners: -> [N, STROKES, POINTS, 2]."""
    at = np.linspace(0, STEPS, POINTS)
    offset = at[:, None] - np.arange(STEPS + 1)
    corners = np.maximum(1 - np.abs(offset), 0)
    rounded = np.where(np.abs(offset) < 0.5, 0.75 - offset**2, np.maximum(1.5 - np.abs(offset), 0) ** 2 / 2)
    rounded[[0, -1]] = corners[[0, -1]]
    rounded /= rounded.sum(1, keepdims=True)
    basis = np.where(sharp[:, :, None, None], corners, rounded)
    return basis @ pens


def render_strokes(lines: np.ndarray, drawn: np.ndarray, thickness: np.ndarray) -> np.ndarray:
    """Anti-aliased pictures of lines: [N, STROKES, POINTS, 2], bool [N, STROKES], pixels [N] -> uint8 [N, 28, 28].

    Each piece of a line is looked at from the pixels around it alone: all others are too far away for ink.
    """
    starts, ends = ((SIZE * lines[:, :, part]).astype(np.float32) for part in (slice(None, -1), slice(1, None)))
    reach = thickness.max() / 2 + 0.5
    margin = int(np.abs(ends - starts).max() + 2 * reach) + 3  # for what is partly or wholly outside the pictures
    side = SIZE + 2 * margin
    nearest = np.full(len(lines) * side**2, 1e6, np.float32)  # squared distance of each pixel to the lines
    for stroke in range(STROKES):
        at = np.flatnonzero(drawn[:, stroke])
        for k in range(POINTS - 1):
            a, b = starts[at, stroke, k], ends[at, stroke, k]
            first = np.clip(np.floor(np.minimum(a, b) - reach - 0.5).astype(int), -margin, SIZE)
            window = np.arange(int(np.abs(b - a).max(initial=0) + 2 * reach) + 3)
            pixels = first[..., None] + window  # [N, 2, W], in x and in y
            x, y = np.split(pixels.astype(np.float32) + 0.5 - a[..., None], 2, axis=1)
            (dx, dy), y = (b - a).T[..., None, None], y.transpose(0, 2, 1)
            square = dx**2 + dy**2 + 1e-6
            along = np.clip(x * (dx / square) + y * (dy / square), 0, 1)
            away = (x - along * dx) ** 2 + (y - along * dy) ** 2
            rows = at[:, None] * side + margin + pixels[:, 1]
            places = (rows * side + margin)[:, :, None] + pixels[:, None, 0]
            nearest[places] = np.minimum(nearest[places], away)
    inside = slice(margin, margin + SIZE)
    nearest = nearest.reshape(-1, side, side)[:, inside, inside]
    ink = np.clip(thickness[:, None, None] / 2 + 0.5 - np.sqrt(nearest), 0, 1)
    return np.round(255 * ink).astype(np.uint8)
