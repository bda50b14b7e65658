"""The files of a tar archive, plain or compressed with gzip, read once from beginning to end."""

import contextlib
import gzip
import io
import pathlib
import tarfile
from collections.abc import Iterator

from protojax.datasets.sources.archives import DAMAGE, Files, visible
from protojax.errors import DataError

ENTRIES = 200_000
TOTAL = 3 << 29  # bytes of all files together; miniImageNet has 0.2 GB as JPEGs, 1.3 GB as arrays


class _Bounded(io.RawIOBase):
    """A file that is not read in larger pieces than an honest archive needs, as headers can ask for gigabytes."""

    def __init__(self, file, limit):
        self.file, self.limit = file, limit

    def read(self, size=-1):
        if not 0 <= size <= self.limit + tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f'a part of {size} bytes')
        return self.file.read(size)

    def seek(self, *position):
        return self.file.seek(*position)

    def tell(self):
        return self.file.tell()


@contextlib.contextmanager
def open_tar(path: pathlib.Path, *, limit: int) -> Iterator[Files]:
    """The files of a .tar or .tar.gz archive, each of at most `limit` bytes; all of them are held in memory."""
    try:
        with path.open('rb') as raw:
            compressed = raw.read(2) == b'\x1f\x8b'
            raw.seek(0)
            file = gzip.GzipFile(fileobj=raw) if compressed else raw
            with tarfile.open(fileobj=_Bounded(file, limit), mode='r:') as archive:
                contents = read(path, archive, limit)
    except (*DAMAGE, tarfile.TarError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f'{path} is not a whole tar archive ({error}); get it again') from error
    yield Files(path, visible(contents), contents.__getitem__)


def read(path: pathlib.Path, archive: tarfile.TarFile, limit: int) -> dict[str, bytes]:
    """Contents of all files, in one pass: compressed archives cannot be read in another order."""
    contents, total = {}, 0
    for count, entry in enumerate(archive):
        where, total = f'{path}: {entry.name[:100]!r}', total + entry.size
        parts = entry.name.split('/')
        if '..' in parts or parts[0] == '':
            raise DataError(f'{where} points outside the archive; get the archive from its authors')
        if not (entry.isreg() or entry.isdir()):
            raise DataError(f'{where} is a link or device; get the archive from its authors')
        if entry.size > limit or total > TOTAL or count >= ENTRIES:
            raise DataError(f'{where}: more or larger files than this data set has; get the archive again')
        if entry.isreg():
            contents['/'.join(part for part in parts if part != '.')] = archive.extractfile(entry).read()
    return contents
