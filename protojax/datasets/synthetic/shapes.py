"""A stand-in for miniImageNet that needs no files: classes of textured shapes in colour, 84x84.

A class is an outline, two hues, a texture, a number of shapes and a kind of background. Its images differ in place,
size, turn, light, shades, background colours and noise, which move more pixels than the class does: a trained encoder
has something to learn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from protojax.datasets import Data, Split

SIZE = 84
TEXTURES = ('plain', 'stripes', 'checks', 'rings', 'rays')
Y, X = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)


class _ShapeKind(NamedTuple):
    """What the images of a class have in common."""

    corners: int  # 0 is an ellipse
    depth: float  # how far the outline goes in between corners: a polygon, a star, a flower
    stretch: float  # width by height
    hues: tuple[float, float]  # of the texture's two colours, in turns
    texture: str
    frequency: float
    number: int  # of shapes in an image
    backdrop: str  # texture of the background


def shapes(seed: int = 0, *, classes: Sequence[int] = (64, 16, 20), items: int = 40) -> Data:
    """Train, validation and test splits of different classes, items uint8 [classes, items, 84, 84, 3]."""
    rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    splits = [_split_of_shapes(rng, count, items) for rng, count in zip(rngs, classes, strict=True)]
    return Data('synthetic shapes, not miniImageNet', True, *splits)


def _split_of_shapes(rng: np.random.Generator, classes: int, items: int) -> Split:
    """Classes drawn at random, named by what they look like."""
    kinds = [draw_shape_kind(rng) for _ in range(classes)]
    names = tuple(f'{k:03} {kind.number} {kind.texture} of {kind.corners} corners' for k, kind in enumerate(kinds))
    images = np.stack([_draw_shapes(rng, kind, items) for kind in kinds])
    return Split(images, np.full(classes, items, np.int32), names)


def draw_shape_kind(rng: np.random.Generator) -> _ShapeKind:
    hue = rng.uniform()
    return _ShapeKind(
        corners=int(rng.choice([0, 3, 4, 5, 6, 8])),
        depth=rng.uniform(0.1, 0.45),
        stretch=rng.uniform(0.6, 1),
        hues=(hue, (hue + rng.uniform(0.15, 0.85)) % 1),
        texture=str(rng.choice(TEXTURES)),
        frequency=rng.uniform(1.5, 4),
        number=int(rng.integers(1, 4)),
        backdrop=str(rng.choice(TEXTURES[:3])),
    )


def _draw_shapes(rng: np.random.Generator, kind: _ShapeKind, items: int) -> np.ndarray:
    """Images of a class: uint8 [items, 84, 84, 3]."""
    u, v = _turned(X, Y, rng.uniform(0, 1, items), 1)
    hues = rng.uniform(0, 1, (2, items))
    images = _shape_colours(rng, hues, _shape_pattern(kind.backdrop, u, v, rng.uniform(1, 3, items)), 0.5)
    for _ in range(kind.number):
        scale = rng.uniform(0.4, 0.75, items) / kind.number**0.4
        across, down = rng.uniform(-0.6, 0.6, (2, items, 1, 1)).astype(np.float32)
        u, v = _turned(X - across, Y - down, rng.uniform(0, 1, items), scale)
        hues = np.array(kind.hues)[:, None] + rng.normal(0, 0.03, (2, items))
        shape = _shape_colours(rng, hues, _shape_pattern(kind.texture, u, v, np.full(items, kind.frequency)), 0.9)
        images = np.where(inside_shape(kind, u, v)[..., None], shape, images)
    return _exposed_shapes(rng, images)


def _turned(x: np.ndarray, y: np.ndarray, turns: np.ndarray, scale) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in a frame that is turned and scaled: [..., H, W], [items] -> two of [items, H, W]."""
    c, s = ((f(2 * np.pi * turns) / scale).astype(np.float32)[:, None, None] for f in (np.cos, np.sin))
    return c * x + s * y, c * y - s * x


def inside_shape(kind: _ShapeKind, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Whether a point lies in the outline, whose radius goes up and down with the angle."""
    u = u / np.float32(kind.stretch)
    wave = np.cos(np.float32(kind.corners) * np.arctan2(v, u)) if kind.corners else np.float32(1)
    return u * u + v * v < (1 - np.float32(kind.depth) * (1 - wave)) ** 2


def _shape_pattern(texture: str, u: np.ndarray, v: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """Where the first of two colours is: bool [items, H, W]."""
    f = (np.pi * frequency).astype(np.float32)[:, None, None]
    if texture == 'plain':
        return np.ones(u.shape, bool)
    if texture == 'stripes':
        return np.sin(f * u) > 0
    if texture == 'checks':
        return np.sin(f * u) * np.sin(f * v) > 0
    if texture == 'rings':
        return np.sin(f * np.sqrt(u * u + v * v) + 1) > 0
    return np.sin(np.round(2 * f) * np.arctan2(v, u)) > 0


def _shape_colours(rng: np.random.Generator, hues: np.ndarray, first: np.ndarray, saturation: float) -> np.ndarray:
    """Two colours of given hues and random shade in their places: [2, items], [items, H, W] -> [items, H, W, 3]."""
    third = np.arange(3) / 3
    pure = 0.5 + 0.5 * np.cos(2 * np.pi * (hues[..., None] - third))
    value, saturation = rng.uniform(0.35, 1, (*hues.shape, 1)), saturation * rng.uniform(0.5, 1, (*hues.shape, 1))
    rgb = (value * (1 - saturation * (1 - pure))).astype(np.float32)
    return np.where(first[..., None], rgb[0][:, None, None], rgb[1][:, None, None])


def _exposed_shapes(rng: np.random.Generator, images: np.ndarray) -> np.ndarray:
    """Light from one side, exposure and noise of a camera: float [items, H, W, 3] -> uint8."""
    slope, across, down = rng.normal(0, 0.25, (3, len(images), 1, 1)).astype(np.float32)
    light = np.exp(slope + across * X + down * Y)[..., None]
    noise = rng.standard_normal(images.shape, np.float32) * np.float32(0.05)
    return (255 * np.clip(images * light + noise, 0, 1)).astype(np.uint8)
