import functools
import hashlib
import http.server
import io
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import threading
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from protojax.datasets import omniglot, preparing
from protojax.datasets.omniglot import expected_characters, load_omniglot, split_of_character
from protojax.datasets.sources import downloads
from protojax.datasets.sources.downloads import RemoteFile, probe_download
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import DataError

SMALL = {'Korean': 3, 'Latin': 2, 'Hebrew': 2, 'Tengwar': 2}  # train, train, validation, test
HALF_OF = {'Korean': 0, 'Latin': 0, 'Hebrew': 0, 'Tengwar': 1}


def png(pixels, mode='1'):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, 'PNG')
    return file.getvalue()


def drawing(character, number):
    """A 105x105 drawing, white with one black bar that tells its character and number."""
    pixels = np.full((105, 105), 255, np.uint8)
    pixels[15 * character : 15 * character + 6, : 15 * number] = 0
    return png(pixels)


def small_files(drawings=2):
    """Two mappings of paths to contents, in the layout of the original archives."""
    halves = ({}, {})
    for alphabet, count in SMALL.items():
        for character in range(1, count + 1):
            for number in range(1, drawings + 1):
                path = f'{omniglot.HALVES[HALF_OF[alphabet]]}/{alphabet}/character{character:02}/0{number}_01.png'
                halves[HALF_OF[alphabet]][path] = drawing(character, number)
    return halves


def write_zips(folder, halves):
    folder.mkdir(parents=True, exist_ok=True)
    for half, files in zip(omniglot.HALVES, halves, strict=True):
        with zipfile.ZipFile(folder / f'{half}.zip', 'w', zipfile.ZIP_DEFLATED) as archive:
            for name, contents in files.items():
                archive.writestr(name, contents)
    return folder


def write_folders(folder, halves):
    for name, contents in (halves[0] | halves[1]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Expect the alphabets of SMALL alone, have no network and a small stand-in."""
    few = functools.partial(handwriting, alphabets=(1, 1, 1), characters=2, drawings=2)
    monkeypatch.setattr(omniglot, 'handwriting', few)
    monkeypatch.setattr(omniglot.OmniglotCharacters, 'alphabets', SMALL)
    monkeypatch.setattr(omniglot, 'REMOTES', [RemoteFile('http://127.0.0.1:9/images_background.zip', 1, '')])


@pytest.fixture
def source(tmp_path):
    return write_zips(tmp_path / 'source', small_files())


@pytest.fixture
def load(tmp_path):
    return functools.partial(load_omniglot, data='real', data_dir=tmp_path / 'prepared', rotations=False)


def assert_same(a, b):
    for x, y in zip(a[2:], b[2:], strict=True):
        np.testing.assert_array_equal(x.items, y.items)
        assert x.names == y.names


def damage(path, change):
    """Rewrite one of the archives with changed contents."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, 'w') as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)


def first_drawing(files):
    return next(name for name in files if name.endswith('.png'))


# What is loaded


def test_official_split_has_the_papers_sizes():
    names = expected_characters(omniglot.ALPHABETS)
    sizes = {split: sum(split_of_character(name) == split for name in names) for split in omniglot.SPLITS}
    assert sizes == {'train': 1028, 'validation': 172, 'test': 423}
    assert split_of_character('Gurmukhi/character41') == 'train'
    assert split_of_character('Gurmukhi/character42') == 'test'


def test_splits_names_and_ink(load, source):
    data = load(source=source)
    assert (data.title, data.synthetic) == ('Omniglot', False)
    assert data.train.names == tuple(expected_characters({'Korean': 3, 'Latin': 2}))
    assert data.validation.names == ('Hebrew/character01', 'Hebrew/character02')
    assert data.test.names == ('Tengwar/character01', 'Tengwar/character02')
    assert data.train.items.shape == (5, 2, 28, 28, 1)
    assert data.train.items.dtype == np.uint8
    assert data.train.counts.tolist() == [2] * 5
    # Korean/character02, second drawing: a bar over rows 30-35 and columns 0-29 of 105, hence rows 8-9.6, columns 0-7.
    image = data.train.items[1, 1, :, :, 0].astype(int)
    assert image[8, :8].tolist() == [255] * 8
    assert (abs(image[9, :8] - 128) <= 1).all()
    assert image[:8].sum() == image[10:].sum() == image[:, 8:].sum() == 0


def test_nearest_has_no_grey_and_stands_beside_antialias(load, source):
    load(source=source)
    nearest = load(source=source, resize='nearest').train.items
    assert set(np.unique(nearest)) == {0, 255}
    assert len(np.unique(load().train.items)) > 2


def test_turning_before_shrinking_is_turning_after_it():
    """The official code turns drawings first; the grid of nearest neighbours is symmetric, so nothing depends on it."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (105, 105), dtype=np.uint8))
    size, method = (28, 28), omniglot.FILTERS['nearest']
    for turns in range(4):
        before = np.asarray(noise.rotate(90 * turns).resize(size, method))
        np.testing.assert_array_equal(before, np.rot90(np.asarray(noise.resize(size, method)), turns))


def test_rotations_are_classes_of_their_own(load, source):
    plain, turned = load(source=source), load(source=source, rotations=True)
    assert turned.train.names[4:8] == tuple(f'Korean/character02/rot{angle}' for angle in ('000', '090', '180', '270'))
    assert turned.train.names == tuple(sorted(turned.train.names))
    assert turned.train.counts.tolist() == [2] * 20
    for turns in range(4):
        np.testing.assert_array_equal(turned.train.items[4 + turns, 1], np.rot90(plain.train.items[1, 1], turns))


def test_folders_archives_and_one_archive_load_the_same(tmp_path, load, source):
    expected = load(source=source)
    halves = small_files()
    folders = write_folders(tmp_path / 'folders', halves)
    one = tmp_path / 'all.zip'
    with zipfile.ZipFile(one, 'w') as archive:
        for name, contents in (halves[0] | halves[1]).items():
            archive.writestr(f'omniglot/{name}', contents)
    mixed = shutil.copytree(folders, tmp_path / 'mixed')
    shutil.rmtree(mixed / 'images_evaluation')
    shutil.copy(source / 'images_evaluation.zip', mixed)
    half = folders / 'images_background'
    for number, given in enumerate((folders, one, mixed, half, source / 'images_evaluation.zip', str(source))):
        assert_same(load(source=given, data_dir=tmp_path / f'{number}'), expected)


def test_hidden_and_unknown_files_are_passed_over(tmp_path, load, source):
    expected = load(source=source)

    def add(files):
        files['__MACOSX/images_background/Korean/character01/._01_01.png'] = b'junk'
        files['images_background/.DS_Store'] = files['images_background/Korean/character01/.DS_Store'] = b'junk'
        files['images_background/Korean/character01/notes.txt'] = b'junk'
        files['images_background/Klingon/character01/01_01.png'] = b'junk'

    damage(source / 'images_background.zip', add)
    assert_same(load(source=source, data_dir=tmp_path / 'again'), expected)


def test_missing_drawing_is_counted(load, source, capsys):
    damage(source / 'images_background.zip', lambda files: files.pop(first_drawing(files)))
    data = load(source=source)
    assert data.train.counts.tolist() == [1, 2, 2, 2, 2]
    assert data.train.items[0, 1].sum() == 0  # padding
    assert 'drawings are missing, of 9 characters (Korean/character01 the first)' in capsys.readouterr().err


# Where it comes from


def test_prepared_data_need_no_source(load, source):
    first = load(source=source)
    shutil.rmtree(source)
    assert_same(load(), first)
    assert_same(load(data='auto'), first)


def test_another_source_is_prepared_anew(tmp_path, load, source):
    first = load(source=source)
    other = write_zips(tmp_path / 'other', small_files(drawings=3))
    assert load(source=other).train.items.shape[1] == 3
    assert load().train.items.shape[1] == 3
    assert_same(load(source=source), first)


def test_bad_source_leaves_prepared_data_alone(tmp_path, load, source):
    first = load(source=source)
    bad = write_zips(tmp_path / 'bad', small_files())
    damage(bad / 'images_evaluation.zip', lambda files: files.update({first_drawing(files): b'junk'}))
    with pytest.raises(DataError, match='not a whole PNG'):
        load(source=bad)
    assert_same(load(), first)


def test_auto_falls_back_where_there_is_no_network(load, tmp_path, capsys):
    data = load(data='auto')
    assert data.synthetic
    assert data.title == 'synthetic handwriting, not Omniglot'
    assert 'cannot be reached' in capsys.readouterr().err
    assert not (tmp_path / 'prepared').exists()


def test_real_never_falls_back(load):
    with pytest.raises(preparing.Missing, match='cannot be reached .*`source`'):
        load()


def test_synthetic_touches_neither_disk_nor_network(load, tmp_path, monkeypatch):
    monkeypatch.setattr(omniglot, 'REMOTES', None)
    data = load(data='synthetic', source=tmp_path / 'nowhere', rotations=True)
    assert data.synthetic
    assert data.train.names[1].endswith('/rot090')
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('data', ['auto', 'real'])
def test_bad_source_is_an_error_even_with_auto(load, tmp_path, data):
    with pytest.raises(DataError, match='`source=.*nowhere` does not exist'):
        load(data=data, source=tmp_path / 'nowhere')


# Downloads, from a server on this machine


@pytest.fixture
def server(tmp_path, source, monkeypatch):
    """Serves the folder of small archives, which are what REMOTES names."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=source)
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, 'log_message', lambda *args: None)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        remotes = []
        for half in omniglot.HALVES:
            contents = (source / f'{half}.zip').read_bytes()
            url = f'http://127.0.0.1:{running.server_port}/{half}.zip'
            remotes.append(RemoteFile(url, len(contents), hashlib.sha256(contents).hexdigest()))
        monkeypatch.setattr(omniglot, 'REMOTES', remotes)
        yield remotes
        running.shutdown()
        thread.join()


def test_downloads_are_prepared_and_kept(load, source, server, tmp_path):
    downloaded = load()
    shutil.rmtree(source)
    kept = tmp_path / 'prepared/downloads/omniglot'
    assert sorted(path.name for path in kept.iterdir()) == ['images_background.zip', 'images_evaluation.zip']
    shutil.rmtree(tmp_path / 'prepared/omniglot_characters')
    assert_same(load(), downloaded)  # from the kept archives, as the server has none any more


def test_wrong_checksum_is_refused(load, server, tmp_path, monkeypatch):
    monkeypatch.setattr(omniglot, 'REMOTES', [server[0]._replace(sha256='0' * 64), server[1]])
    with pytest.raises(DataError, match='images_background.zip is not the file with SHA-256 000'):
        load(data='auto')
    assert list((tmp_path / 'prepared/downloads/omniglot').iterdir()) == []


@pytest.mark.parametrize('difference', [-1, 1])
def test_wrong_size_is_refused(load, server, tmp_path, monkeypatch, difference):
    monkeypatch.setattr(omniglot, 'REMOTES', [server[0]._replace(size=server[0].size + difference), server[1]])
    with pytest.raises(preparing.Missing, match=f'gave .* bytes, not {server[0].size + difference}'):
        load()
    assert list((tmp_path / 'prepared/downloads/omniglot').iterdir()) == []


def test_file_that_the_server_lacks_is_missing(load, source, server):
    (source / 'images_evaluation.zip').unlink()
    with pytest.raises(preparing.Missing, match='images_evaluation.zip cannot be reached .*404'):
        load()


def test_silent_host_is_given_up(monkeypatch):
    monkeypatch.setattr(downloads, 'PROBE', 0.2)
    with http.server.HTTPServer(('127.0.0.1', 0), None) as mute, pytest.raises(preparing.Missing, match='cannot be'):
        probe_download(f'http://127.0.0.1:{mute.server_port}/file')  # it listens and never answers


# Damage to what is prepared


def record_file(tmp_path, split='train'):
    return next((tmp_path / 'prepared').glob(f'omniglot_characters/antialias/1.0.0/*-{split}.array_record*'))


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    'name, harm',
    [
        ('train', truncate),
        ('train', pathlib.Path.unlink),
        ('test', lambda path: path.write_bytes(b'')),
        ('dataset_info.json', truncate),
        ('dataset_info.json', pathlib.Path.unlink),
        ('source.txt', pathlib.Path.unlink),
    ],
)
def test_damaged_data_are_prepared_again(load, source, tmp_path, name, harm):
    first = load(source=source)
    file = record_file(tmp_path, name) if '.' not in name else record_file(tmp_path).with_name(name)
    harm(file)
    with pytest.raises(DataError, match=r'1\.0\.0 is damaged .*`source`'):
        load(data='auto')
    assert_same(load(source=source), first)
    assert_same(load(), first)


SCRIPT = """
import functools, os, signal, sys
from protojax.datasets import omniglot
omniglot.OmniglotCharacters.alphabets = {alphabets}
shrink = omniglot._shrink_drawing
def killed(files, name, resize):
    if 'Tengwar' in name:
        os.kill(os.getpid(), signal.SIGKILL)
    return shrink(files, name, resize)
if 'kill' in sys.argv:
    omniglot._shrink_drawing = killed
print(omniglot.load_omniglot(data='real', source=sys.argv[1], data_dir=sys.argv[2]).train.items.sum())
"""


def start(*arguments):
    command = [sys.executable, '-c', SCRIPT.format(alphabets=SMALL), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_killed_preparation_is_done_again(load, source, tmp_path):
    killed = start(source, tmp_path / 'prepared', 'kill')
    assert killed.communicate()[0] == '' and killed.returncode == -9
    place = tmp_path / 'prepared/omniglot_characters/antialias'
    assert list(place.glob('preparing-*'))
    with pytest.raises(preparing.Missing):
        load()
    assert load(source=source).train.items.shape == (5, 2, 28, 28, 1)
    assert not list(place.glob('preparing-*'))


def test_two_processes_prepare_at_once(load, source, tmp_path):
    both = [start(source, tmp_path / 'prepared') for _ in range(2)]
    expected = str(load(source=source, rotations=True).train.items.sum())
    assert [process.communicate()[0].strip() for process in both] == [expected] * 2


# Sources that cannot be used, and disks


def test_empty_folder(load, tmp_path):
    (tmp_path / 'empty').mkdir()
    with pytest.raises(DataError, match='`source=.*empty` has no images_background'):
        load(source=tmp_path / 'empty')


def test_missing_half(load, source):
    (source / 'images_evaluation.zip').unlink()
    with pytest.raises(DataError, match='has no images_evaluation'):
        load(source=source)


def test_half_a_download(load, source):
    truncate(source / 'images_background.zip')
    with pytest.raises(DataError, match='images_background.zip is not a whole zip archive'):
        load(source=source)


def test_missing_alphabet_and_characters_are_named(load, source):
    def remove(files):
        for name in [n for n in files if 'Latin' in n or 'Korean/character02' in n]:
            del files[name]

    damage(source / 'images_background.zip', remove)
    with pytest.raises(DataError, match=r'lack 3 characters \(all of Latin, Korean/character02\)'):
        load(source=source)


def test_few_alphabets_are_not_omniglot(load, source, monkeypatch):
    monkeypatch.setattr(omniglot.OmniglotCharacters, 'alphabets', omniglot.ALPHABETS)
    with pytest.raises(DataError, match=r'lack 16\d\d characters \(all of Alphabet_of_the_Magi, .*\.\.\.\)'):
        load(source=source)


def header_of(width, height):
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))

    header = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(b'')) + chunk(b'IEND', b'')


@pytest.mark.parametrize(
    'contents, message',
    [
        (b'not an image', 'is not a whole PNG image'),
        (b'', 'is not a whole PNG image'),
        (drawing(1, 1)[:70], 'is not a whole PNG image'),
        (png(np.zeros((28, 28), np.uint8)), 'is 28x28, not 105x105'),
        (header_of(10000, 8000), 'is 10000x8000, not 105x105'),
        (header_of(100000, 100000), 'is not a whole PNG image .*decompression bomb'),
        (b'\0' * (omniglot.LONGEST + 1), f'.*has {omniglot.LONGEST + 1} bytes, far more'),
    ],
    ids=['text', 'empty', 'truncated', 'small', 'large', 'bomb', 'long'],
)
@pytest.mark.parametrize('form', [write_zips, write_folders])
def test_bad_image_is_named(load, tmp_path, form, contents, message):
    halves = small_files()
    halves[0]['images_background/Korean/character02/02_01.png'] = contents
    with pytest.raises(DataError, match=f'Korean/character02/02_01.png {message}'):
        load(source=form(tmp_path / 'bad', halves))


def test_damaged_archive_entry_is_named(load, source):
    path = source / 'images_evaluation.zip'
    contents = bytearray(path.read_bytes())
    contents[60 + len('images_evaluation/Tengwar/character01/01_01.png')] ^= 255
    path.write_bytes(contents)
    with pytest.raises(DataError, match='images_evaluation.zip: .*01_01.png cannot be read'):
        load(source=source)


@pytest.mark.parametrize('name', ['../../evil.png', '/etc/evil.png', 'a/../../evil.png', '..\\evil.png', 'C:/evil.png'])
def test_path_outside_the_archive(load, source, name):
    damage(source / 'images_background.zip', lambda files: files.update({name: b'evil'}))
    with pytest.raises(DataError, match='evil.png.* points outside'):
        load(source=source)


def test_link_in_the_archive(load, source):
    entry = zipfile.ZipInfo('images_background/Korean/character01/link.png')
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(source / 'images_background.zip', 'a') as archive:
        archive.writestr(entry, '/etc/passwd')
    with pytest.raises(DataError, match='link.png.* is a link'):
        load(source=source)


def test_full_disk(load, source, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10000, before[1]))
    try:
        with pytest.raises(DataError, match='cannot prepare .*File too large.*`data_dir`'):
            load(source=source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(load(source=source).train.names) == 5
    assert not list((tmp_path / 'prepared').rglob(f'{preparing.TEMPORARY}*'))  # nothing of the failed attempt is left


def test_data_dir_that_cannot_be_made(load, source, tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(DataError, match='cannot prepare .*Not a directory.*`data_dir`'):
        load(source=source, data_dir=tmp_path / 'file' / 'below')


@pytest.mark.parametrize(
    'options, message',
    [
        ({'data': 'fake'}, '`data=fake`'),
        ({'resize': 'cubic'}, '`resize=cubic`'),
        ({'data_dir': 'gs://bucket/data'}, '`data_dir=gs://bucket/data`'),
    ],
)
def test_unknown_options(load, options, message):
    with pytest.raises(DataError, match=message):
        load(**options)


def test_every_error_is_one_line(load, source):
    damage(source / 'images_background.zip', lambda files: files.update({first_drawing(files): b'junk'}))
    with pytest.raises(DataError) as caught:
        load(source=source)
    assert '\n' not in str(caught.value)


def test_real_omniglot(load, monkeypatch, real_data):
    monkeypatch.setattr(omniglot.OmniglotCharacters, 'alphabets', omniglot.ALPHABETS)
    data = load(source=real_data('omniglot'))
    assert [len(split.names) for split in data[2:]] == [1028, 172, 423]
    for split in data[2:]:
        assert split.items.shape[1:] == (20, 28, 28, 1)
        assert (split.counts == 20).all()
        assert (split.items.max((2, 3, 4)) > 100).all()  # ink in every drawing
        assert split.items.mean() < 40  # on an empty page
