"""Files from the network: asked for with time limits, checked, and only then given their name."""

import hashlib
import http.client
import os
import pathlib
import ssl
import tempfile
import threading
import urllib.error
import urllib.request
from typing import NamedTuple

from protojax.datasets.sources import announce
from protojax.errors import DataError, Missing, first_line

PROBE = 5  # seconds within which a host has to answer
STALL = 30  # seconds without a byte after which a download is given up
NETWORK = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)


class RemoteFile(NamedTuple):
    """A file on the network."""

    url: str
    size: int  # bytes
    sha256: str


def download(remote: RemoteFile, folder: pathlib.Path) -> pathlib.Path:
    """The file in folder, taken from the network unless it is there already. Missing if the network has it not."""
    path = folder / remote.url.rsplit('/', 1)[-1]
    if path.exists() and path.stat().st_size == remote.size and _download_digest(path) == remote.sha256:
        return path
    probe_download(remote.url)
    announce(f'downloading {remote.url} ({remote.size / 1e6:.1f} MB)')
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f'{path.name}.', suffix='.part', dir=folder)
    try:
        with open(handle, 'wb') as file:
            _copy_download(remote, file)
        if _download_digest(pathlib.Path(part)) != remote.sha256:
            raise DataError(f'{remote.url} is not the file with SHA-256 {remote.sha256}; give that as `source`')
        os.replace(part, path)
    finally:
        pathlib.Path(part).unlink(missing_ok=True)
    return path


def _copy_download(remote: RemoteFile, file) -> None:
    """Write the remote file's bytes to file; Missing if there are fewer or more than remote.size."""
    done = 0
    try:
        with urllib.request.urlopen(remote.url, timeout=STALL) as response:
            while done <= remote.size and (chunk := response.read(1 << 16)):
                done += file.write(chunk)
    except NETWORK as error:
        raise Missing(
            f'{remote.url} broke off at byte {done} ({first_line(error)}); retry or give a `source`'
        ) from error
    if done != remote.size:
        raise Missing(f'{remote.url} gave {done} bytes, not {remote.size}; retry or give a `source`')


def probe_download(url: str) -> None:
    """Missing unless the url answers within PROBE seconds."""
    answer = ['no answer']

    def ask():
        try:
            urllib.request.urlopen(urllib.request.Request(url, method='HEAD'), timeout=PROBE).close()
            answer[0] = ''
        except (*NETWORK, OSError) as error:
            answer[0] = first_line(error)

    thread = threading.Thread(target=ask, daemon=True)  # as urllib waits without limit for the host's address
    thread.start()
    thread.join(PROBE)
    if answer[0]:
        raise Missing(f'{url} cannot be reached ({answer[0]}); give the files as `source`')


def _download_digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
