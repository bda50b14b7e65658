"""Synthetic replacement for Omniglot: a seeded generator of invented alphabets and handwritten characters.

A character consists of a few strokes; a stroke is the path of a pen that turns while it moves. The characters of an
alphabet have similar strokes. The drawings of a character differ: strokes are shifted, rotated and bent, the whole
character is slanted, stretched and shifted, and the thickness of the pen varies.
"""

import numpy as np

from protojax.datasets import Splits
from protojax.episodes import Dataset

SIZE = 28  # pixels
STROKES = 4  # maximum number of strokes of a character
STEPS = 6  # steps of the pen in a stroke
POINTS = 13  # points of the line that is drawn for a stroke
TURNS = {  # kind of stroke: turn before each step, in units of the stroke's angle; angles to choose from, in degrees
    'line': ((0, 0, 0, 0, 0, 0), (0,)),
    'arc': ((0, 1, 1, 1, 1, 1), (18, 28, 36)),
    'hook': ((0, 0, 0, 0, 1, 1), (60, 80)),
    'wave': ((0, 1, 1, -1, -1, -1), (35, 50)),
    'ring': ((0, 1, 1, 1, 1, 1), (60, 66)),
    'angle': ((0, 0, 0, 1, 0, 0), (80, 100, 125)),
    'zigzag': ((0, 0, 1, 0, -1, 0), (90, 120)),
}
SHARP = ('line', 'angle', 'zigzag')  # kinds whose corners are not rounded
HEADINGS = (4, 1, 5, 1, 1, 0.5, 1, 1)  # prior weights of right, down and right, down, ...: most scripts go right, down


def handwriting(
    seed: int = 0, *, alphabets: tuple[int, int, int] = (30, 5, 10), characters: int = 20, drawings: int = 20
) -> Splits:
    """Generate alphabets for training, validation and test: uint8 [classes, drawings, 28, 28, 1], foreground = 255."""
    splits, first = [], 0
    for count in alphabets:
        numbers = range(first, first + count)
        items = [_alphabet(np.random.default_rng((seed, number)), characters, drawings) for number in numbers]
        names = tuple(f'Invented{number:02}/character{n + 1:02}' for number in numbers for n in range(characters))
        splits.append(Dataset(np.concatenate(items), np.full(len(names), drawings, np.int32), names=names))
        first += count
    return Splits('synthetic handwriting, not Omniglot', True, *splits)


def _alphabet(rng: np.random.Generator, characters: int, drawings: int) -> np.ndarray:
    """Draw all characters of one alphabet: uint8 [characters, drawings, 28, 28, 1]."""
    pens, sharp, drawn = (np.repeat(part, drawings, 0) for part in _characters(rng, characters))
    lines = trace(vary(rng, pens), sharp)
    images = render(lines, drawn, rng.uniform(1.0, 1.6, len(lines)))
    return images.reshape(characters, drawings, SIZE, SIZE, 1)


def _characters(rng: np.random.Generator, characters: int) -> list[np.ndarray]:
    """Invent the characters of one alphabet.

    Returns:
        Path of the pen in the unit square [characters, STROKES, STEPS + 1, 2], 1 for each stroke with sharp corners
        [characters, STROKES], and True for each stroke that exists [characters, STROKES].
    """
    # Frequencies of the kinds of strokes, of 2, 3 and 4 strokes per character, and of the initial headings.
    kinds, counts, headings = (rng.dirichlet(prior) for prior in (np.full(len(TURNS), 0.6), [5, 4, 2], HEADINGS))
    # Degrees added to all headings, fraction of strokes that start on another one, and width relative to the height.
    lean, joined, width = rng.normal(0, 5), rng.uniform(0.7, 1), rng.uniform(0.7, 1.1)

    def stroke():  # from the origin
        kind = list(TURNS)[rng.choice(len(TURNS), p=kinds)]
        pattern, angles = TURNS[kind]
        turn = rng.choice(angles) * rng.choice([-1, 1])
        heading = lean + 45 * rng.choice(len(HEADINGS), p=headings)
        directions = np.radians(heading + np.cumsum(np.array(pattern) * turn))
        step = rng.choice([0.5, 0.8, 1.0]) / STEPS
        path = step * np.cumsum(np.stack([np.cos(directions), np.sin(directions)], -1), 0)
        return np.concatenate([np.zeros((1, 2)), path]), kind in SHARP

    def character():
        count = 2 + rng.choice(STROKES - 1, p=counts)  # a single line or ring would look the same when rotated
        pens, sharp = np.zeros((STROKES, STEPS + 1, 2)), np.zeros(STROKES)
        for k in range(count):
            pens[k], sharp[k] = stroke()
            if k and rng.random() < joined:
                ends = (0, STEPS // 2, STEPS)
                pens[k] += pens[rng.integers(k), rng.choice(ends)] - pens[k, rng.choice(ends)]
            else:
                pens[k] += rng.uniform(-0.5, 0.5, 2)
        low, high = pens[:count].min((0, 1)), pens[:count].max((0, 1))
        extent = np.maximum(high - low, 0.35 * (high - low).max())
        pens = (pens - (low + high) / 2) / extent * np.array([width, 1.0]) * rng.uniform(0.55, 0.72)
        return pens + 0.5, sharp, np.arange(STROKES) < count

    return [np.stack(part) for part in zip(*(character() for _ in range(characters)), strict=True)]


def vary(rng: np.random.Generator, pens: np.ndarray) -> np.ndarray:
    """Vary strokes and whole characters at random: [N, STROKES, P, 2] -> [N, STROKES, P, 2]."""
    n, strokes, points, _ = pens.shape
    middle = pens.mean(2, keepdims=True)
    pens = middle + _bend(rng, pens - middle, (n, strokes, 1), turn=7, stretch=0.13, slant=0.1)
    pens = pens + rng.normal(0, 0.025, (n, strokes, 1, 2)) + rng.normal(0, 0.012, (n, strokes, points, 2))
    whole = _bend(rng, pens - 0.5, (n, 1, 1), turn=6, stretch=0.12, slant=0.12)
    return whole + 0.5 + rng.normal(0, 0.035, (n, 1, 1, 2))


def _bend(rng: np.random.Generator, points: np.ndarray, shape: tuple[int, ...], *, turn, stretch, slant) -> np.ndarray:
    """Rotate (in degrees), stretch and slant points [..., 2] by random amounts, one for each entry of `shape`."""
    angle = np.radians(rng.normal(0, turn, shape))
    wide, high = np.exp(rng.normal(0, stretch, (2, *shape)))
    x = wide * (points[..., 0] + rng.normal(0, slant, shape) * points[..., 1])
    y = high * points[..., 1]
    return np.stack([np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y], -1)


def trace(pens: np.ndarray, sharp: np.ndarray) -> np.ndarray:
    """Draw lines along the paths, rounded (quadratic B-spline) or with sharp corners: -> [N, STROKES, POINTS, 2]."""
    at = np.linspace(0, STEPS, POINTS)
    offset = at[:, None] - np.arange(STEPS + 1)
    corners = np.maximum(1 - np.abs(offset), 0)
    rounded = np.where(np.abs(offset) < 0.5, 0.75 - offset**2, np.maximum(1.5 - np.abs(offset), 0) ** 2 / 2)
    rounded[[0, -1]] = corners[[0, -1]]
    rounded /= rounded.sum(1, keepdims=True)
    return np.where(sharp[:, :, None, None], corners, rounded) @ pens


def render(lines: np.ndarray, drawn: np.ndarray, thickness: np.ndarray) -> np.ndarray:
    """Render anti-aliased images of lines: [N, STROKES, POINTS, 2], bool [N, STROKES], pixels [N] -> uint8 [N, 28, 28].

    For each segment of a line, only the distances of nearby pixels are computed.
    """
    starts, ends = ((SIZE * lines[:, :, part]).astype(np.float32) for part in (slice(None, -1), slice(1, None)))
    reach = thickness.max() / 2 + 0.5
    margin = int(np.abs(ends - starts).max() + 2 * reach) + 3  # for lines that are partly outside the image
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
            indices = (rows * side + margin)[:, :, None] + pixels[:, None, 0]
            nearest[indices] = np.minimum(nearest[indices], away)
    inside = slice(margin, margin + SIZE)
    nearest = nearest.reshape(-1, side, side)[:, inside, inside]
    ink = np.clip(thickness[:, None, None] / 2 + 0.5 - np.sqrt(nearest), 0, 1)
    return np.round(255 * ink).astype(np.uint8)
