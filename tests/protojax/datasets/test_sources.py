"""Archives are unpacked inside their folder or not at all; downloads are verified."""

import functools
import hashlib
import http.server
import os
import tarfile
import threading

import pytest

from protojax.datasets import sources
from protojax.errors import DataError, Missing
from tests.fuzz import seeds

MEMBERS = {'a/b.txt': b'hello' * 500, 'c.txt': b'there'}


def packed(path, members=MEMBERS, change=lambda entry: None):
    """Write an archive of the type of its extension."""
    path.parent.mkdir(exist_ok=True)
    mode = 'w:gz' if path.suffix.lower() in ('.gz', '.tgz') else 'w'
    path.write_bytes(seeds.zip(8, members) if path.suffix == '.zip' else seeds.tar(mode, members, change))
    return path


@pytest.mark.parametrize('name', ['x.zip', 'x.tar', 'X.TAR.GZ', 'x.tgz'])
def test_archives_become_folders_and_errors_name_them(name, tmp_path):
    path = packed(tmp_path / name)
    (tmp_path / 'folder').mkdir()
    with sources.opened([tmp_path / 'folder', path], tmp_path / 'unpacked') as (folder, unpacked):
        assert folder == tmp_path / 'folder'
        found = {str(file.relative_to(unpacked)): file.read_bytes() for file in sources.files([unpacked], '.txt')}
        assert found == MEMBERS
    bad = pytest.raises(DataError, match=f'{name}/a/b.txt is bad')
    with bad, sources.opened([path], tmp_path / 'again') as (unpacked,):
        raise DataError(f'{unpacked}/a/b.txt is bad')


def link(entry, kind, target='/etc/passwd'):
    entry.type, entry.linkname, entry.size = kind, target, 0


HARMFUL = {
    'tar of ../evil': lambda path: packed(path / 'x.tar', {'../evil.txt': b'evil'}),
    'symlink': lambda path: packed(path / 'x.tar', change=lambda e: link(e, tarfile.SYMTYPE)),
    'symlink inside': lambda path: packed(path / 'x.tar', change=lambda e: link(e, tarfile.SYMTYPE, 'a')),
    'hard link': lambda path: packed(path / 'x.tar', change=lambda e: link(e, tarfile.LNKTYPE, '../../evil')),
    'device': lambda path: packed(path / 'x.tar', change=lambda e: link(e, tarfile.CHRTYPE)),
    'text': lambda path: (path / 'x.tar').write_bytes(b'no archive' * 100),
    'pipe': lambda path: os.mkfifo(path / 'x.zip'),
}


@pytest.mark.parametrize('name', HARMFUL)
def test_members_stay_inside(name, tmp_path):
    (tmp_path / 'source').mkdir()
    HARMFUL[name](tmp_path / 'source')
    (path,) = (tmp_path / 'source').iterdir()
    with pytest.raises(DataError, match=f'{path.name} cannot be unpacked') as error:
        sources.unpack(path, tmp_path / 'deep/inside/unpacked')
    assert str(error.value).isprintable()
    assert not list(tmp_path.rglob('*evil*')) and not sources.files([tmp_path / 'deep'], '')


@pytest.mark.parametrize('name', ['../evil.txt', 'a/../../evil.txt', '/evil.txt', '..\\evil.txt'])
def test_members_of_a_zip_stay_inside(name, tmp_path):
    sources.unpack(packed(tmp_path / 'x.zip', {name: b'evil'}), tmp_path / 'deep/inside/unpacked')
    assert [path.is_relative_to(tmp_path / 'deep/inside/unpacked') for path in tmp_path.rglob('*evil*')] == [True]


@pytest.mark.parametrize('name', ['x.zip', 'x.tar', 'x.tar.gz'])
def test_corrupted_archives_are_refused(name, tmp_path):
    path = packed(tmp_path / name)
    data = path.read_bytes()
    header = 512 + 2560 if name == 'x.tar' else len(data) // 2  # of the second member
    for k, bad in enumerate((data[: len(data) // 4], data[:header] + b'x' * 20 + data[header + 20 :])):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=f'{name} cannot be unpacked'):
            sources.unpack(path, tmp_path / str(k))


def test_hidden_files_are_skipped(tmp_path):
    for name in ('b.png', 'a/c.PNG', '.hidden/d.png', '__MACOSX/e.png', '._f.png', 'notes.txt'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [file.name for file in sources.files([tmp_path], '.png')] == ['c.PNG', 'b.png']


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A file on a server of this machine."""
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, 'log_message', lambda *args: None)
    contents = b'contents' * 1000
    (tmp_path / 'served').mkdir()
    (tmp_path / 'served/x.zip').write_bytes(contents)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / 'served')
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        url = f'http://127.0.0.1:{running.server_port}/x.zip'
        yield sources.Remote(url, hashlib.sha256(contents).hexdigest())
        running.shutdown()
        thread.join()


def test_downloads_are_kept(remote, tmp_path):
    path = sources.download(remote, tmp_path / 'downloads')
    assert path.read_bytes() == b'contents' * 1000
    (tmp_path / 'served/x.zip').unlink()
    assert sources.download(remote, tmp_path / 'downloads') == path
    with pytest.raises(Missing, match='x.zip cannot be downloaded .*404'):
        sources.download(remote, tmp_path / 'elsewhere')


def test_other_files_are_refused(remote, tmp_path):
    with pytest.raises(DataError, match='to have SHA-256 000'):
        sources.download(remote._replace(sha256='0' * 64), tmp_path / 'downloads')
    assert list((tmp_path / 'downloads').iterdir()) == []


def test_a_silent_host_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, 'TIMEOUT', 0.2)
    with http.server.HTTPServer(('127.0.0.1', 0), None) as mute, pytest.raises(Missing, match='timed out'):
        url = f'http://127.0.0.1:{mute.server_port}/file'  # it listens and never answers
        sources.download(sources.Remote(url, ''), tmp_path)
