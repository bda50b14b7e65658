"""Read image files of all kinds as the arrays that an encoder takes.

Encoders of colour images take photos. Encoders of one channel take drawings with foreground = 255 and background = 0;
files may be dark on light or light on dark.

Pillow decodes PNG, JPEG, WebP, GIF, BMP and TIFF files (the first frame), and HEIC if pillow-heif is installed. A file
that cannot be read is reported by name while the others are loaded.
"""

import concurrent.futures
import io
import os
import pathlib
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from protojax.errors import DataError, first_line
from protojax.files import read_whole

FORMATS = ('PNG', 'JPEG', 'WEBP', 'GIF', 'BMP', 'TIFF')
SUFFIXES = ('.png', '.jpg', '.jpeg', '.webp', '.gif', '.bmp', '.tif', '.tiff', '.heic', '.heif')
HEIC = (b'ftypheic', b'ftypheix', b'ftyphevc', b'ftypmif1', b'ftypmsf1')  # bytes 4 to 11 of a file
INKS = ('auto', 'dark', 'light')
SAMPLE = 64  # number of images that decide whether all are drawings
MIN_CONTRAST = 32  # levels between background and foreground below which contrast is not stretched to 255
OPENING = threading.Lock()  # held while Pillow's warnings are ignored in all threads
Paths = str | os.PathLike | Iterable[str | os.PathLike]


class ImageForm(NamedTuple):
    """Specification of the images that an encoder takes."""

    item_shape: tuple[int, int, int]  # height, width, channels: 1 for drawings, 3 for colour
    crop: float | None = None  # size of the central square, as a fraction of the shorter side; None: the complete image
    resize_first: bool = False  # resize, then crop integer pixels, like the image processors of the Hugging Face hub


class FoundImages(NamedTuple):
    """The image files below some paths."""

    paths: tuple[pathlib.Path, ...]
    classes: tuple[str, ...]  # folder of each file, relative to the given path; '' for none
    empty: tuple[str, ...]  # folders without any image
    others: tuple[pathlib.Path, ...]  # files with other extensions, unreadable folders, links to folders


class Images(NamedTuple):
    """Images in memory, with their folders as classes."""

    items: np.ndarray  # uint8 [N, height, width, channels]
    paths: tuple[pathlib.Path, ...]
    labels: np.ndarray  # int32 [N], indices into `names`; -1 for images without a class
    names: tuple[str, ...]
    skipped: tuple[str, ...]  # one line for each file that was left out


def load_images(paths: Paths, like: Any, *, ink: str = 'auto') -> Images:
    """Load the images in a folder with one subfolder per class, or in a sequence of files and folders.

    Args:
        paths: Folder, or files and folders; images below a folder get their subfolder as class.
        like: Trained weights, an encoder or an ImageForm that specifies the images.
        ink: Whether drawings are 'dark' on light or 'light' on dark; 'auto' decides for each drawing.
    """
    found, form = find_images(paths), image_form(like)
    loaded = read_images(found.paths, form, ink=ink)
    good = [k for k, image in enumerate(loaded) if isinstance(image, np.ndarray)]
    names = tuple(sorted({found.classes[k] for k in good} - {''}))
    label = {'': -1, **{name: k for k, name in enumerate(names)}}
    items = np.array([loaded[k] for k in good], np.uint8).reshape(-1, *form.item_shape)
    labels = np.array([label[found.classes[k]] for k in good], np.int32)
    skipped = [str(error) for error in loaded if isinstance(error, DataError)]
    skipped += [f'{path} is not an image' for path in found.others]
    return Images(items, tuple(found.paths[k] for k in good), labels, names, tuple(skipped))


def image_form(like: Any) -> ImageForm:
    """Return the specification of the images that weights or an encoder take."""
    encoder = getattr(like, 'encoder', like)
    shape = getattr(encoder, 'item_shape', None)
    if shape is None or len(shape) != 3 or shape[2] not in (1, 3):
        raise ValueError(
            f'expected weights or an encoder of images, or an ImageForm, got {type(like).__name__} without item_shape'
        )
    return ImageForm(tuple(shape), getattr(encoder, 'crop', None), getattr(encoder, 'resize_first', False))


def find_images(paths: Paths) -> FoundImages:
    """Find the image files in a folder and below it, or in several files and folders; hidden ones are skipped."""
    files, empty = [], []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        path = pathlib.Path(path).expanduser()
        if not path.exists():
            raise DataError(f'{path} does not exist')
        failed: list[OSError] = []
        for at, folders, names in os.walk(path, onerror=failed.append):
            folders[:] = sorted(name for name in folders if not name.startswith('.'))
            links = [name for name in folders if os.path.islink(os.path.join(at, name))]  # `walk` does not follow them
            names = sorted(name for name in names + links if not name.startswith('.'))
            name = pathlib.Path(at).relative_to(path).as_posix().removeprefix('.')
            files += [(pathlib.Path(at, file), name) for file in names]
            if name and not folders and not any(map(_is_image, names)):
                empty.append(name)
        files += [(pathlib.Path(error.filename), '') for error in failed]  # `path` if it is a file; unreadable folders
    images = [(file, name) for file, name in files if _is_image(file)]
    others = tuple(file for file, _ in files if not _is_image(file))
    return FoundImages(tuple(file for file, _ in images), tuple(name for _, name in images), tuple(empty), others)


def _is_image(path: str | os.PathLike) -> bool:
    return pathlib.Path(path).suffix.lower() in SUFFIXES


def contents(path: str | os.PathLike) -> bytes:
    """Return the bytes of an image file."""
    try:
        return read_whole(path)
    except (OSError, ValueError, MemoryError) as error:
        raise DataError(f'{pathlib.Path(path)} cannot be read ({first_line(error)})') from error


def read_images(
    paths: Sequence[Any], form: ImageForm, *, ink: str = 'auto', read: Callable[[Any], bytes] = contents
) -> list[np.ndarray | DataError]:
    """Read the image in each file, or return the error. With `read`, `paths` may be the keys of any bytes."""
    if ink not in INKS:
        raise ValueError(f'expected ink to be one of {", ".join(INKS)}, got {ink!r}')

    def attempt(path):
        try:
            return decode_image(read(path), form, name=str(path), ink=ink)
        except DataError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders release the GIL
        return list(pool.map(attempt, paths))


def decode_image(data: bytes, form: ImageForm, *, name: str = 'this', ink: str = 'auto') -> np.ndarray:
    """Decode the bytes of an image file: uint8 [height, width, channels]. Errors begin with `name`."""
    height, width, channels = form.item_shape
    mode = 'L' if channels == 1 else 'RGB'
    formats = _heif(name) if data[4:12] in HEIC else FORMATS
    try:
        picture = _open(data, formats)
        # JPEGs are decoded at 1/2, 1/4 or 1/8 of their size if that is enough.
        if not form.resize_first:
            picture.draft(mode, tuple(int(2 * size / (form.crop or 1.0)) for size in (width, height)))
        flat = _flat(_upright(picture), mode)
        if form.resize_first:
            return np.asarray(_resized_and_cropped(flat, form))
        filter = Image.Resampling.BOX if mode == 'L' else Image.Resampling.BICUBIC
        pixels = np.asarray(flat.resize((width, height), filter, box=_visible_part(flat, form.crop)))
    except Exception as error:  # corrupted images raise exceptions of many types
        raise DataError(f'{name} is not a usable image ({first_line(error)})') from error
    return _light_on_dark(pixels, ink)[..., None] if mode == 'L' else pixels


def read_exactly(path: pathlib.Path, *, size: tuple[int, int], mode: str) -> Image.Image:
    """Read an image that must have the given (width, height), and convert it to a PIL mode ('L' or 'RGB')."""
    try:
        picture = _open(contents(path), FORMATS)
        if picture.size != size:
            raise ValueError(f'expected {size[0]}x{size[1]} pixels, got {picture.width}x{picture.height}')
        return picture.convert(mode)
    except Exception as error:
        raise DataError(f'{path} is not a usable image ({first_line(error)})') from error


def _open(data: bytes, formats: Sequence[str]) -> Image.Image:
    """Open an image without decoding it. `verify` compares the checksums of a PNG, which decoders ignore."""
    try:
        with OPENING, warnings.catch_warnings(action='ignore'):  # Pillow raises an error if an image is huge
            Image.open(io.BytesIO(data), formats=formats).verify()
            return Image.open(io.BytesIO(data), formats=formats)
    except UnidentifiedImageError:  # its message is about the BytesIO
        raise ValueError('bad header') from None


def _heif(name: str) -> tuple[str, ...]:
    """Let Pillow open HEIC images, and return the name of the format."""
    try:
        import pillow_heif
    except ImportError:
        raise DataError(f"{name} is a HEIC image; pip install 'protojax[heic]' to read it") from None
    pillow_heif.register_heif_opener()
    return ('HEIF',)


def are_drawings(paths: Sequence[Any], *, read: Callable[[Any], bytes] = contents) -> bool:
    """Return whether most of a sample of the images are drawings: without colour, and mostly background."""
    step = max(1, len(paths) // SAMPLE)
    sample = read_images(paths[::step][:SAMPLE], ImageForm((64, 64, 3)), read=read)
    images = [image for image in sample if isinstance(image, np.ndarray)]
    return 2 * sum(map(_is_drawing, images)) > len(images)


def _is_drawing(image: np.ndarray) -> bool:
    """Return whether an image has hardly any colour and mostly one tone, the background: uint8 [H, W, 3]."""
    image = image.astype(np.int32)
    grey = image.mean(-1)
    colourless = np.mean(image.max(-1) - image.min(-1)) < 8
    background = np.abs(grey - np.median(_edge(grey))) < MIN_CONTRAST
    return bool(colourless and background.mean() > 0.5)


def _light_on_dark(grey: np.ndarray, ink: str) -> np.ndarray:
    """Rescale a drawing to foreground = 255 on background = 0: uint8 [H, W] -> uint8 [H, W].

    The background is the median of the edge. The foreground is dark if the mean is darker than the background.
    """
    relief = grey.astype(np.float32) - np.median(_edge(grey))
    light = ink == 'light' or (ink == 'auto' and relief.mean() > 0)
    relief = np.maximum(relief if light else -relief, 0)
    return np.round(relief * (255 / max(relief.max(), MIN_CONTRAST))).astype(np.uint8)


def _edge(grey: np.ndarray) -> np.ndarray:
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _upright(picture: Image.Image) -> Image.Image:
    """Rotate the image as its EXIF data specify, if they can be read."""
    picture.load()
    try:
        with OPENING, warnings.catch_warnings(action='ignore'):
            picture.getexif()  # warns about corrupted data once
        return ImageOps.exif_transpose(picture)
    except Exception:  # only the EXIF data are corrupted
        return picture


def _flat(picture: Image.Image, mode: str) -> Image.Image:
    """Convert the image to greyscale ('L') or colour ('RGB') with 8 bits and without transparency."""
    if picture.mode.startswith('I'):  # 16 bits per pixel: Pillow would clip them at 255
        picture = Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert('RGBA')
        grey, alpha = np.asarray(picture.convert('RGB').convert('L')), np.asarray(picture.getchannel('A'))
        light = mode == 'L' and alpha.any() and np.average(grey, weights=alpha) > 127
        backdrop = 'black' if light else 'white'
        picture = Image.alpha_composite(Image.new('RGBA', picture.size, backdrop), picture)
    return picture.convert(mode)


def _resized_and_cropped(picture: Image.Image, form: ImageForm) -> Image.Image:
    """Resize the shorter side, round the longer side down, and crop integer pixels."""
    height, width, _ = form.item_shape
    shorter = round(min(height, width) / (form.crop or 1.0))
    across, down = (shorter * side // min(picture.size) for side in picture.size)
    if across * down > 1 << 26:  # of pixels, in memory until they are cropped
        raise ValueError(f'{picture.width}x{picture.height} pixels are too narrow')
    left, upper = (across - width) // 2, (down - height) // 2
    resized = picture.resize((across, down), Image.Resampling.BICUBIC)
    return resized.crop((left, upper, left + width, upper + height))


def _visible_part(picture: Image.Image, crop: float | None) -> tuple[float, float, float, float]:
    """Return left, upper, right and lower edge of the central crop, or of the complete image."""
    if crop is None:
        return 0, 0, picture.width, picture.height
    half = crop * min(picture.size) / 2
    across, down = picture.width / 2, picture.height / 2
    return across - half, down - half, across + half, down + half
