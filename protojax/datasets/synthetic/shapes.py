"""Synthetic replacement for miniImageNet: classes of textured shapes in colour, 84x84.

A class has an outline, two hues, a texture, a number of shapes and a texture of the background. Its images differ in
position, size, rotation, light, shades, background colours and noise. These change more pixels than the class does, so
nearest neighbours of pixels do not solve the task.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from protojax.datasets import Splits
from protojax.episodes import Dataset

SIZE = 84
TEXTURES = ('plain', 'stripes', 'checks', 'rings', 'rays')
Y, X = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)


class _Kind(NamedTuple):
    """Properties that all images of a class share."""

    corners: int  # 0: an ellipse
    depth: float  # relative depth of the outline between corners
    stretch: float  # width / height
    hues: tuple[float, float]  # of the two colours of the texture, in 0..1
    texture: str
    frequency: float
    number: int  # shapes in an image
    backdrop: str  # texture of the background


def shapes(seed: int = 0, *, classes: Sequence[int] = (64, 16, 20), items: int = 40) -> Splits:
    """Generate train, validation and test splits with different classes: uint8 [classes, items, 84, 84, 3]."""
    rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    splits = [_split(rng, count, items) for rng, count in zip(rngs, classes, strict=True)]
    return Splits('synthetic shapes, not miniImageNet', True, *splits)


def _split(rng: np.random.Generator, classes: int, items: int) -> Dataset:
    """Generate random classes, named after their properties."""
    kinds = [_kind(rng) for _ in range(classes)]
    names = tuple(f'{k:03} {kind.number} {kind.texture} of {kind.corners} corners' for k, kind in enumerate(kinds))
    images = np.stack([_images(rng, kind, items) for kind in kinds])
    return Dataset(images, np.full(classes, items, np.int32), names=names)


def _kind(rng: np.random.Generator) -> _Kind:
    hue = rng.uniform()
    return _Kind(
        corners=int(rng.choice([0, 3, 4, 5, 6, 8])),
        depth=rng.uniform(0.1, 0.45),
        stretch=rng.uniform(0.6, 1),
        hues=(hue, (hue + rng.uniform(0.15, 0.85)) % 1),
        texture=str(rng.choice(TEXTURES)),
        frequency=rng.uniform(1.5, 4),
        number=int(rng.integers(1, 4)),
        backdrop=str(rng.choice(TEXTURES[:3])),
    )


def _images(rng: np.random.Generator, kind: _Kind, items: int) -> np.ndarray:
    """Draw images of a class: uint8 [items, 84, 84, 3]."""
    u, v = _rotated(X, Y, rng.uniform(0, 1, items), 1)
    hues = rng.uniform(0, 1, (2, items))
    images = _colours(rng, hues, _pattern(kind.backdrop, u, v, rng.uniform(1, 3, items)), 0.5)
    for _ in range(kind.number):
        scale = rng.uniform(0.4, 0.75, items) / kind.number**0.4
        across, down = rng.uniform(-0.6, 0.6, (2, items, 1, 1)).astype(np.float32)
        u, v = _rotated(X - across, Y - down, rng.uniform(0, 1, items), scale)
        hues = np.array(kind.hues)[:, None] + rng.normal(0, 0.03, (2, items))
        shape = _colours(rng, hues, _pattern(kind.texture, u, v, np.full(items, kind.frequency)), 0.9)
        images = np.where(_inside(kind, u, v)[..., None], shape, images)
    return _exposed(rng, images)


def _rotated(x: np.ndarray, y: np.ndarray, turns: np.ndarray, scale) -> tuple[np.ndarray, np.ndarray]:
    """Rotate (in full turns) and scale coordinates: [..., H, W], [items] -> two arrays [items, H, W]."""
    c, s = ((f(2 * np.pi * turns) / scale).astype(np.float32)[:, None, None] for f in (np.cos, np.sin))
    return c * x + s * y, c * y - s * x


def _inside(kind: _Kind, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return whether points are inside the outline, whose radius is a wave of the angle."""
    u = u / np.float32(kind.stretch)
    wave = np.cos(np.float32(kind.corners) * np.arctan2(v, u)) if kind.corners else np.float32(1)
    return u * u + v * v < (1 - np.float32(kind.depth) * (1 - wave)) ** 2


def _pattern(texture: str, u: np.ndarray, v: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """Return where the first of the two colours is: bool [items, H, W]."""
    f = (np.pi * frequency).astype(np.float32)[:, None, None]
    waves = {
        'plain': lambda: np.ones(u.shape),
        'stripes': lambda: np.sin(f * u),
        'checks': lambda: np.sin(f * u) * np.sin(f * v),
        'rings': lambda: np.sin(f * np.sqrt(u * u + v * v) + 1),
        'rays': lambda: np.sin(np.round(2 * f) * np.arctan2(v, u)),
    }
    return waves[texture]() > 0


def _colours(rng: np.random.Generator, hues: np.ndarray, first: np.ndarray, saturation: float) -> np.ndarray:
    """Colour a pattern by two hues with random shades: [2, items], [items, H, W] -> [items, H, W, 3]."""
    third = np.arange(3) / 3
    pure = 0.5 + 0.5 * np.cos(2 * np.pi * (hues[..., None] - third))
    value, saturation = rng.uniform(0.35, 1, (*hues.shape, 1)), saturation * rng.uniform(0.5, 1, (*hues.shape, 1))
    rgb = (value * (1 - saturation * (1 - pure))).astype(np.float32)
    return np.where(first[..., None], rgb[0][:, None, None], rgb[1][:, None, None])


def _exposed(rng: np.random.Generator, images: np.ndarray) -> np.ndarray:
    """Add light from one side, exposure and noise: float [items, H, W, 3] -> uint8."""
    slope, across, down = rng.normal(0, 0.25, (3, len(images), 1, 1)).astype(np.float32)
    light = np.exp(slope + across * X + down * Y)[..., None]
    noise = rng.standard_normal(images.shape, np.float32) * np.float32(0.05)
    return (255 * np.clip(images * light + noise, 0, 1)).astype(np.uint8)
