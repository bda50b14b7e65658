"""Sources of a data set: folders, archives, which are unpacked once, and files that are downloaded."""

import contextlib
import hashlib
import http.client
import os
import pathlib
import shutil
import ssl
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from absl import logging

from protojax.datasets import readers
from protojax.errors import DataError, Missing, first_line
from protojax.files import open_file, sha256

ARCHIVES = ('.zip', '.tar', '.tar.gz', '.tgz')
# Names of the splits in sources.
SPLIT_NAMES = {'train': 'train', 'val': 'validation', 'valid': 'validation', 'validation': 'validation', 'test': 'test'}
TIMEOUT = 10  # seconds without data after which a download is given up
NETWORK = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)


def check_disjoint(splits: Mapping[str, Iterable[str]], where: str | os.PathLike) -> None:
    """Raise DataError if a class is in two splits."""
    owner: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if owner.setdefault(name, split) != split:
                raise DataError(f'{where}: class {name!r} is in both {owner[name]} and {split}; remove one')


@contextlib.contextmanager
def opened(paths: Sequence[pathlib.Path], temporary: pathlib.Path) -> Iterator[list[pathlib.Path]]:
    """Unpack the archives among paths below `temporary`; errors inside name the archives instead.

    Yields:
        The paths in their order, each archive replaced by the folder that it is unpacked to.
    """
    folders = {path: temporary / str(k) if is_archive(path) else path for k, path in enumerate(paths)}
    try:
        for path in filter(is_archive, paths):
            unpack(path, folders[path])
        yield list(folders.values())
    except DataError as error:
        message = str(error)
        for path, folder in folders.items():
            message = message.replace(str(folder), str(path))
        raise type(error)(message) from error


def is_archive(path: pathlib.Path) -> bool:
    """Return whether a path is a file with the extension of an archive."""
    return path.name.lower().endswith(ARCHIVES) and not path.is_dir()


def unpack(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpack a .zip or .tar archive into a new folder; members cannot be written outside it."""
    folder.mkdir(parents=True)
    with readers.attempt(path, 'cannot be unpacked'), open_file(path) as file:
        if path.name.lower().endswith('.zip'):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(folder)
        else:
            with tarfile.open(fileobj=file) as archive:
                archive.extractall(folder, filter=_without_links)
                # tarfile stops at a corrupted header without an error; at the true end it finds zeros.
                archive.fileobj.seek(archive.offset)
                if any(archive.fileobj.read(tarfile.BLOCKSIZE)):
                    raise tarfile.ReadError('a header is corrupted')


def _without_links(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Reject links before tarfile filters a member: the filter of some Python versions lets links leave the folder."""
    if member.issym() or member.islnk():
        raise ValueError(f'{member.name[:100]} is a link')
    return tarfile.data_filter(member, folder)


def files(folders: Sequence[pathlib.Path], *suffixes: str) -> list[pathlib.Path]:
    """Return the visible files below folders with one of the extensions (lower case), in order of their names."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob('*')):
            hidden = any(part.startswith(('.', '__MACOSX')) for part in path.relative_to(folder).parts)
            if path.name.lower().endswith(suffixes) and not hidden and path.is_file():
                found.append(path)
    return found


def fingerprint(paths: Sequence[pathlib.Path]) -> str:
    """Return a digest of names, sizes and modification times of paths and of all files below them."""
    digest = hashlib.sha256()
    for path in map(os.path.abspath, paths):
        below = sorted(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)
        for file in [path, *below]:
            stat = os.lstat(file)
            digest.update(os.fsencode(f'{file} {stat.st_size} {stat.st_mtime_ns}\n'))
    return digest.hexdigest()


class Remote(NamedTuple):
    """A file on the network."""

    url: str
    sha256: str


def download(remote: Remote, folder: pathlib.Path) -> pathlib.Path:
    """Return the local path, downloading the file unless it is already in `folder`.

    Raises:
        Missing: If the download fails.
    """
    path = folder / remote.url.rsplit('/', 1)[-1]
    if path.exists() and sha256(path) == remote.sha256:
        return path
    logging.info('downloading %s', remote.url)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'{path.name}.', dir=folder) as temporary:
        part = pathlib.Path(temporary, path.name)
        try:
            with open(part, 'wb') as file, urllib.request.urlopen(remote.url, timeout=TIMEOUT) as response:
                shutil.copyfileobj(response, file)
        except NETWORK as error:
            raise Missing(f'{remote.url} cannot be downloaded ({first_line(error)}); pass it as `source`') from error
        if sha256(part) != remote.sha256:
            raise DataError(f'expected {remote.url} to have SHA-256 {remote.sha256}; retry or pass it as `source`')
        os.replace(part, path)
    return path
