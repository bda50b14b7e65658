"""The files of a source, a folder or a zip archive, and the images in them; no header is taken at its word."""

import contextlib
import io
import os
import pathlib
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from protojax.errors import DataError, first_line

DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OSError)


class Files(NamedTuple):
    """The files below a folder or in an archive."""

    path: pathlib.Path
    names: tuple[str, ...]  # sorted, with '/' between parts; hidden files are left out
    read: Callable[[str], bytes]  # contents of a name; DataError if damaged or larger than the limit


@contextlib.contextmanager
def open_files(path: str | os.PathLike, *, limit: int = 1 << 20) -> Iterator[Files]:
    """The files of a folder or zip archive, each of at most `limit` bytes."""
    path = pathlib.Path(path)
    if path.is_dir():
        found = (pathlib.Path(at, name) for at, _, here in os.walk(path) for name in here)
        names = visible(file.relative_to(path).as_posix() for file in found)
        yield Files(path, names, lambda name: read_file(path.joinpath(name).open, 'rb', f'{path / name}', limit))
        return
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGE as error:
        raise DataError(f'{path} is not a whole zip archive ({first_line(error)}); get it again') from error
    with archive:
        for entry in archive.infolist():
            check_entry(path, entry)
        names = visible(name for name in archive.namelist() if not name.endswith('/'))
        yield Files(path, names, lambda name: read_file(archive.open, name, f'{path}: {name}', limit))


def visible(names) -> tuple[str, ...]:
    """Sorted names without the hidden files that systems leave about, such as .DS_Store and __MACOSX/."""
    return tuple(sorted(n for n in names if not any(part.startswith(('.', '__MACOSX')) for part in n.split('/'))))


def check_entry(path: pathlib.Path, entry: zipfile.ZipInfo) -> None:
    """Refuse what an honest archive has no use for: paths that lead outside and links."""
    parts = entry.filename.replace('\\', '/').split('/')
    if '..' in parts or parts[0] == '' or ':' in parts[0]:
        raise DataError(f'{path}: {entry.filename!r} points outside the archive; get the archive from its authors')
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise DataError(f'{path}: {entry.filename!r} is a link; get the archive from its authors')


def read_file(opener: Callable, argument: str, where: str, limit: int) -> bytes:
    """Contents of opener(argument), of which never more than limit + 1 bytes are read."""
    try:
        with opener(argument) as file:
            contents = file.read(limit + 1)
    except DAMAGE as error:
        raise DataError(f'{where} cannot be read ({first_line(error)}); get it again') from error
    if len(contents) > limit:
        raise DataError(f'{where} has more than {limit} bytes, far more than a file of this data set; get it again')
    return contents


def image(contents: bytes, where: str, *, size: tuple[int, int], mode: str, format: str) -> Image.Image:
    """A decoded image of the given (width, height), PIL mode ('L', 'RGB') and format ('PNG', 'JPEG')."""
    try:
        with Image.open(io.BytesIO(contents), formats=[format]) as picture:  # reads the header, allocates nothing
            found = picture.size
            decoded = picture.convert(mode) if found == size else None
    except UnidentifiedImageError as error:
        raise DataError(f'{where} is not a whole {format} image (its header is not); get it again') from error
    except (*DAMAGE, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f'{where} is not a whole {format} image ({first_line(error)}); get it again') from error
    if decoded is None:
        raise DataError(f'{where} is {found[0]}x{found[1]}, not {size[0]}x{size[1]}; give --source the original images')
    return decoded
