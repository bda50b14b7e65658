"""Image files of all kinds as the arrays that an encoder takes.

Encoders of colour images see photographs. Those of one channel see drawings, whose ink is 255 and whose paper is 0, so
that it does not matter how a drawing was made.

Files may come from anybody. Only PNG, JPEG and WebP are decoded, the size that a header announces is compared with that
of the file before memory is taken, and a file that cannot be read is reported by name while the others are loaded.
"""

import concurrent.futures
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from protojax.datasets.formats import Budget
from protojax.datasets.formats.pictures import open_picture
from protojax.errors import DataError, first_line
from protojax.files import read_whole

FORMATS = ('PNG', 'JPEG', 'WEBP')
SUFFIXES = ('.png', '.jpg', '.jpeg', '.webp')
LARGEST_FILE = 1 << 26  # bytes
LARGEST_IMAGE = 1 << 26  # pixels: 200 MB once decoded
INKS = ('auto', 'dark', 'light')
LOOKED_AT = 64  # images from which is told what kind all are
LEAST_CONTRAST = 32  # levels between paper and ink; where there is less, it is not stretched to the full range
Paths = str | os.PathLike | Iterable[str | os.PathLike]


class ImageForm(NamedTuple):
    """The images that an encoder takes. Encoders and their weights can stand in its place."""

    item_shape: tuple[int, int, int]  # height, width, channels: 1 for drawings, 3 for colour
    crop: float | None = None  # side of the central square that is shown, in shorter sides; None: the whole image


class FoundImages(NamedTuple):
    """The image files below some paths."""

    paths: tuple[pathlib.Path, ...]
    classes: tuple[str, ...]  # of each file, the folder that it is in, below the path that was given; '' for none
    empty: tuple[str, ...]  # folders without any image
    others: tuple[pathlib.Path, ...]  # files that have another ending


class Images(NamedTuple):
    """Images in memory, with the classes that their folders name."""

    items: np.ndarray  # uint8 [N, height, width, channels]
    paths: tuple[pathlib.Path, ...]
    labels: np.ndarray  # int32 [N], places in names; -1 for images that are in no folder of a class
    names: tuple[str, ...]
    skipped: tuple[str, ...]  # one line for each file that could not be read


def load_images(paths: Paths, like: Any, *, ink: str = 'auto') -> Images:
    """The images in a folder, its subfolders being classes, or in a sequence of files and folders.

    like: trained weights, an encoder or an ImageForm, which says what images are to be made of the files.
    ink: whether drawings are 'dark' on light or 'light' on dark; 'auto' finds out for each.
    """
    found, form = find_images(paths), image_form(like)
    loaded = read_images(found.paths, form, ink=ink)
    good = [place for place, image in enumerate(loaded) if isinstance(image, np.ndarray)]
    names = tuple(sorted({found.classes[place] for place in good} - {''}))
    number = {'': -1, **{name: k for k, name in enumerate(names)}}
    items = np.stack([loaded[place] for place in good]) if good else np.zeros((0, *form.item_shape), np.uint8)
    return Images(
        items=items,
        paths=tuple(found.paths[place] for place in good),
        labels=np.array([number[found.classes[place]] for place in good], np.int32),
        names=names,
        skipped=tuple(str(error) for error in loaded if isinstance(error, DataError)),
    )


def image_form(like: Any) -> ImageForm:
    """The form of the images that weights or an encoder take."""
    encoder = getattr(like, 'encoder', like)
    shape = getattr(encoder, 'item_shape', None)
    if shape is None or len(shape) != 3 or shape[2] not in (1, 3):
        raise ValueError(f'item_shape={shape} is not of images: height, width, and 1 or 3 channels; give an ImageForm')
    return ImageForm(tuple(shape), getattr(encoder, 'crop', None))


def find_images(paths: Paths) -> FoundImages:
    """The image files in a folder and below it, or in several files and folders; hidden ones are left out."""
    files, empty = [], []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        path = pathlib.Path(path).expanduser()
        if not path.exists():
            raise DataError(f'{path} does not exist')
        if path.is_file():
            files.append((path, ''))
        for at, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith('.'))
            names = sorted(name for name in names if not name.startswith('.'))
            name = pathlib.Path(at).relative_to(path).as_posix().removeprefix('.')
            files += [(pathlib.Path(at, file), name) for file in names]
            if name and not folders and not any(map(_is_image, names)):
                empty.append(name)
    images = [(file, name) for file, name in files if _is_image(file)]
    return FoundImages(
        paths=tuple(file for file, _ in images),
        classes=tuple(name for _, name in images),
        empty=tuple(empty),
        others=tuple(file for file, _ in files if not _is_image(file)),
    )


def _is_image(path: str | os.PathLike) -> bool:
    """Whether a name ends as those of images do."""
    return pathlib.Path(path).suffix.lower() in SUFFIXES


def read_images(paths: Sequence[pathlib.Path], form: ImageForm, *, ink: str = 'auto') -> list[np.ndarray | DataError]:
    """The image in each file, or the error that tells why there is none."""
    if ink not in INKS:
        raise ValueError(f'ink is {ink!r}; it must be {", ".join(INKS)}')

    def attempt(path):
        try:
            return read_image(path, form, ink=ink)
        except DataError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders let other threads run
        return list(pool.map(attempt, paths))


def read_image(path: str | os.PathLike, form: ImageForm, *, ink: str = 'auto') -> np.ndarray:
    """One image of that form: uint8 [height, width, channels]."""
    try:
        contents = read_whole(path, largest=LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise DataError(f'{pathlib.Path(path)} cannot be read ({first_line(error)})') from error
    return decode_image(contents, form, name=str(path), ink=ink)


def decode_image(contents: bytes, form: ImageForm, *, name: str = 'this', ink: str = 'auto') -> np.ndarray:
    """The image in the bytes of a file: uint8 [height, width, channels]. `name` is what errors call it."""
    height, width, channels = form.item_shape
    mode = 'L' if channels == 1 else 'RGB'
    try:
        with open_picture(contents, FORMATS) as picture:
            if picture.width * picture.height > LARGEST_IMAGE:
                raise DataError(f'{name} has {picture.width}x{picture.height} pixels; shrink it first')
            # JPEGs are decoded at a half, a quarter or an eighth of their size where that is enough.
            share = form.crop or 1.0
            whole = picture.size
            picture.draft(mode, (int(2 * width / share), int(2 * height / share)))
            decoded = whole if 'progressive' in picture.info else picture.size
            grey = mode == 'L' and picture.mode in ('1', 'L', 'P') and not picture.has_transparency_data
            # Pillow takes four bytes for whatever is not grey.
            Budget(len(contents)).spend(decoded[0] * decoded[1] * (1 if grey else 4))
            flat = _flat_image(_upright_image(picture), mode)
    except DataError:
        raise
    except Exception as error:  # damage takes many forms
        raise DataError(f'{name} is not a whole PNG, JPEG or WebP image ({first_line(error)})') from error
    filter = Image.Resampling.BOX if mode == 'L' else Image.Resampling.BICUBIC
    pixels = np.asarray(flat.resize((width, height), filter, box=_visible_part_of_image(flat, form.crop)))
    return _light_ink(pixels, ink)[..., None] if mode == 'L' else pixels


def are_drawings(paths: Sequence[str | os.PathLike]) -> bool:
    """Whether most of some images are drawings: without colour, and paper for the most part. A few are looked at."""
    step = max(1, len(paths) // LOOKED_AT)
    read = read_images(paths[::step][:LOOKED_AT], ImageForm((64, 64, 3)))
    images = [image for image in read if isinstance(image, np.ndarray)]
    return 2 * sum(map(_is_drawing, images)) > len(images)


def _is_drawing(image: np.ndarray) -> bool:
    """Whether an image has hardly any colour and is of one tone, the paper's, for the most part: uint8 [H, W, 3]."""
    image = image.astype(np.int32)
    grey = image.mean(-1)
    colourless = np.mean(image.max(-1) - image.min(-1)) < 8
    paper = np.abs(grey - np.median(_image_edge(grey))) < LEAST_CONTRAST
    return bool(colourless and paper.mean() > 0.5)


def _light_ink(grey: np.ndarray, ink: str) -> np.ndarray:
    """A drawing with ink = 255 on paper = 0, whatever levels they had: uint8 [H, W] -> uint8 [H, W].

    The paper is what most of the edge shows, and the ink is dark or light as the whole is darker or lighter than that.
    """
    relief = grey.astype(np.float32) - np.median(_image_edge(grey))
    light = ink == 'light' or (ink == 'auto' and relief.mean() > 0)
    relief = np.maximum(relief if light else -relief, 0)
    return np.round(relief * (255 / max(relief.max(), LEAST_CONTRAST))).astype(np.uint8)


def _image_edge(grey: np.ndarray) -> np.ndarray:
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _upright_image(picture: Image.Image) -> Image.Image:
    """The image turned as its EXIF data say, where they can be read."""
    picture.load()
    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # the picture itself is whole
        return picture


def _flat_image(picture: Image.Image, mode: str) -> Image.Image:
    """The image in grey ('L') or colour ('RGB'), of 8 bits and without transparency."""
    if picture.mode.startswith('I'):  # 16 bits, which Pillow would cut off at 255
        picture = Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert('RGBA')
        backdrop = 'black' if mode == 'L' and _visible_level_of_image(picture) > 127 else 'white'
        picture = Image.alpha_composite(Image.new('RGBA', picture.size, backdrop), picture)
    return picture.convert(mode)


def _visible_level_of_image(picture: Image.Image) -> float:
    """Mean grey level of what is not transparent."""
    grey, alpha = np.asarray(picture.convert('RGB').convert('L')), np.asarray(picture.getchannel('A'))
    weighted = np.einsum('hw,hw->', grey, alpha, dtype=np.float64)  # without arrays of floats beside the picture
    return float(weighted / max(alpha.sum(dtype=np.float64), 1e-6))


def _visible_part_of_image(picture: Image.Image, crop: float | None) -> tuple[float, float, float, float]:
    """Left, upper, right and lower edge of the part that is shown."""
    if crop is None:
        return 0, 0, picture.width, picture.height
    half = crop * min(picture.size) / 2
    across, down = picture.width / 2, picture.height / 2
    return across - half, down - half, across + half, down + half
