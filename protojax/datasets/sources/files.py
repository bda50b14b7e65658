"""The files of a source: a folder, a zip archive or a tar archive. Every file of a stranger is opened here.

Files are read and never mapped, as a mapped file that others shorten ends the whole program. An archive has a budget of
memory that is compared with what its files announce before any of them is read.
"""

import contextlib
import gzip
import io
import os
import pathlib
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from protojax.datasets.formats import Budget, Damaged, reading
from protojax.datasets.formats.tar import read_tar
from protojax.errors import DataError

TARS = ('.tar', '.tar.gz', '.tgz')
ARCHIVES = ('.zip', *TARS)
LARGEST = 3 << 30  # bytes of a file; pickled training images of miniImageNet have 0.8 GB, as text 2.3 GB
MOST_FILES = 200_000
LONGEST_NAME = 1_000
PIECE = 1 << 20


class Files(NamedTuple):
    """The files below a folder or in an archive."""

    path: pathlib.Path
    names: tuple[str, ...]  # sorted, with '/' between parts; hidden files are left out
    size: int  # bytes of the archive, or of all files
    contents: Callable[[str, int], bytes | memoryview]

    def read(self, name: str, limit: int = LARGEST) -> bytes | memoryview:
        """Contents of a file; DataError if it is damaged or has more than `limit` bytes."""
        return self.contents(name, limit)


@contextlib.contextmanager
def open_files(path: str | os.PathLike) -> Iterator[Files]:
    """The files of a folder or archive."""
    path = pathlib.Path(path)
    if path.is_dir():
        yield folder(path)
    elif path.name.lower().endswith(TARS):
        yield tar(path)
    else:
        with reading(path, 'is not a whole zip archive'):
            archive = zipfile.ZipFile(path)
        with archive:
            yield zip_archive(path, archive)


def read_file(path: pathlib.Path, limit: int = LARGEST) -> bytes:
    """Contents of a file, of which never more than it has now are read."""
    with reading(path, 'cannot be read'):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its other end
        with open(descriptor, 'rb') as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged('it is no ordinary file')
            check_size(path, status.st_size, limit)
            return file.read(status.st_size)


def folder(path: pathlib.Path) -> Files:
    found = (pathlib.Path(at, name) for at, _, here in os.walk(path) for name in here)
    names = visible(path, (file.relative_to(path).as_posix() for file in found))
    size = sum(os.stat(path / name).st_size for name in names if os.path.exists(path / name))
    return Files(path, names, size, lambda name, limit: read_file(path / name, limit))


def zip_archive(path: pathlib.Path, archive: zipfile.ZipFile) -> Files:
    entries, size = archive.infolist(), path.stat().st_size
    with reading(path, 'is not a whole zip archive'):
        for entry in entries:
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Damaged(f'{entry.filename:.100} is compressed otherwise than by deflate')
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise Damaged(f'{entry.filename:.100} is a link')
            check_inside(entry.filename)
        Budget(size).spend(sum(entry.file_size for entry in entries))

    def contents(name, limit):
        entry = archive.getinfo(name)
        check_size(f'{path}: {name}', entry.file_size, limit)
        with reading(f'{path}: {name}', 'cannot be read'), archive.open(entry) as file:
            return file.read(entry.file_size + 1)  # beyond the end, where the checksum is compared

    return Files(path, visible(path, (entry.filename for entry in entries)), size, contents)


def tar(path: pathlib.Path) -> Files:
    """Of a tar archive all is held in memory: compressed ones cannot be read in another order than theirs."""
    data = read_file(path)
    size, budget, found = len(data), Budget(len(data)), {}
    with reading(path, 'is not a whole tar archive'):
        if data[:2] == b'\x1f\x8b':
            data = unzipped(data, budget)
        for name, contents in read_tar(data, budget).items():
            check_inside(name)
            found['/'.join(part for part in name.split('/') if part != '.')] = contents

    def contents(name, limit):
        check_size(f'{path}: {name}', len(found[name]), limit)
        return found[name]

    return Files(path, visible(path, found), size, contents)


def unzipped(data: bytes, budget: Budget) -> bytearray:
    """What gzip has compressed, read to the end: there the checksum is."""
    contents = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(PIECE):
            budget.spend(len(piece))
            contents += piece
    return contents


def visible(path: pathlib.Path, names: Iterable[str]) -> tuple[str, ...]:
    """Sorted names without folders and the hidden files that systems leave about, such as .DS_Store and __MACOSX/."""
    found = set()
    for name in names:
        if len(name) > LONGEST_NAME or len(found) == MOST_FILES:
            raise DataError(f'{path} has more than {MOST_FILES} files, or one with a very long name; get it again')
        if name[-1:] not in ('', '/') and not any(part.startswith(('.', '__MACOSX')) for part in name.split('/')):
            found.add(name)
    return tuple(sorted(found))


def check_inside(name: str) -> None:
    """Damaged if a name leads out of the archive that it is in."""
    parts = name.replace('\\', '/').split('/')
    if '..' in parts or parts[0] == '' or ':' in parts[0]:
        raise Damaged(f'{name:.100} points outside the archive')


def check_size(where, size: int, limit: int) -> None:
    if size > limit:
        raise DataError(f'{where} has {size} bytes, far more than a file of this data set; get it again')
