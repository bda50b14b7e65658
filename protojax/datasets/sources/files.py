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

from protojax.datasets.formats import Budget, Damaged, reading_format
from protojax.datasets.formats.tar import read_tar
from protojax.errors import DataError
from protojax.files import open_file, read_whole

TARS = ('.tar', '.tar.gz', '.tgz')
ARCHIVES = ('.zip', *TARS)
LARGEST = 3 << 30  # bytes of a file; pickled training images of miniImageNet have 0.8 GB, as text 2.3 GB
MOST_FILES = 200_000
LONGEST_NAME = 1_000
LONGEST_DIRECTORY = 16 << 20  # bytes of a zip's list of its files; that of Omniglot has 3 MB
PIECE = 1 << 20


class Files(NamedTuple):
    """The files below a folder or in an archive."""

    path: pathlib.Path
    names: tuple[str, ...]  # sorted, with '/' between parts; hidden files are left out
    size: int  # bytes of the archive, or of all files
    contents: Callable[..., bytes | memoryview]  # of a name; DataError if damaged or longer than a second argument


@contextlib.contextmanager
def open_files(path: str | os.PathLike) -> Iterator[Files]:
    """The files of a folder or archive."""
    path = pathlib.Path(path)
    if path.is_dir():
        yield _files_of_folder(path)
    elif path.name.lower().endswith(TARS):
        yield _files_of_tar(path)
    else:
        with contextlib.ExitStack() as opened:
            with reading_format(path, 'is not a whole zip archive'):
                file = opened.enter_context(open_file(path))
                # What ZipFile itself goes by; it knows all the places where a size can stand.
                end = zipfile._EndRecData(file)
                if end and end[zipfile._ECD_SIZE] > LONGEST_DIRECTORY:  # which would take long to read
                    raise Damaged(f'the list of its files takes {end[zipfile._ECD_SIZE]} bytes')
                archive = opened.enter_context(zipfile.ZipFile(file))
            yield _files_of_zip(path, archive)


def read_file(path: pathlib.Path, limit: int = LARGEST) -> bytes:
    """Contents of a file."""
    with reading_format(path, 'cannot be read'):
        return read_whole(path, largest=limit)


def _files_of_folder(path: pathlib.Path) -> Files:
    found = (pathlib.Path(at, name) for at, _, here in os.walk(path) for name in here)
    names = _visible_files(path, (file.relative_to(path).as_posix() for file in found))
    size = sum(os.stat(path / name).st_size for name in names if os.path.exists(path / name))
    return Files(path, names, size, lambda name, limit=LARGEST: read_file(path / name, limit))


def _files_of_zip(path: pathlib.Path, archive: zipfile.ZipFile) -> Files:
    entries, size = archive.infolist(), path.stat().st_size
    with reading_format(path, 'is not a whole zip archive'):
        for entry in entries:
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Damaged(f'{entry.filename:.100} is compressed otherwise than by deflate')
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise Damaged(f'{entry.filename:.100} is a link')
            _check_file_inside(entry.filename)
        Budget(size).spend(sum(entry.file_size for entry in entries))

    def contents(name, limit=LARGEST):
        entry = archive.getinfo(name)
        _check_file_size(f'{path}: {name}', entry.file_size, limit)
        with reading_format(f'{path}: {name}', 'cannot be read'), archive.open(entry) as file:
            return file.read(entry.file_size + 1)  # beyond the end, where the checksum is compared

    return Files(path, _visible_files(path, (entry.filename for entry in entries)), size, contents)


def _files_of_tar(path: pathlib.Path) -> Files:
    """Of a tar archive all is held in memory: compressed ones cannot be read in another order than theirs."""
    data = read_file(path)
    size, budget, found = len(data), Budget(len(data)), {}
    with reading_format(path, 'is not a whole tar archive'):
        if data[:2] == b'\x1f\x8b':
            data = _unzipped(data, budget)
        for name, contents in read_tar(data, budget).items():
            _check_file_inside(name)
            found['/'.join(part for part in name.split('/') if part != '.')] = contents

    def contents(name, limit=LARGEST):
        _check_file_size(f'{path}: {name}', len(found[name]), limit)
        return found[name]

    return Files(path, _visible_files(path, found), size, contents)


def _unzipped(data: bytes, budget: Budget) -> bytearray:
    """What gzip has compressed, read to the end: there the checksum is."""
    contents = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while piece := file.read(PIECE):
            budget.spend(len(piece))
            contents += piece
    return contents


def _visible_files(path: pathlib.Path, names: Iterable[str]) -> tuple[str, ...]:
    """Sorted names without folders and the hidden files that systems leave about, such as .DS_Store and __MACOSX/."""
    found = set()
    for name in names:
        if len(name) > LONGEST_NAME or len(found) == MOST_FILES:
            raise DataError(f'{path} has more than {MOST_FILES} files, or one with a very long name; get it again')
        if name[-1:] not in ('', '/') and not any(part.startswith(('.', '__MACOSX')) for part in name.split('/')):
            found.add(name)
    return tuple(sorted(found))


def _check_file_inside(name: str) -> None:
    """Damaged if a name leads out of the archive that it is in."""
    parts = name.replace('\\', '/').split('/')
    if '..' in parts or parts[0] == '' or ':' in parts[0]:
        raise Damaged(f'{name:.100} points outside the archive')


def _check_file_size(where, size: int, limit: int) -> None:
    if size > limit:
        raise DataError(f'{where} has {size} bytes, far more than a file of this data set; get it again')
