"""Images of all kinds: what is loaded is what a person would see, and hostile files are named and skipped."""

import os
import struct
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from protojax import images
from protojax.encoders import Conv4, EfficientNetLite
from protojax.errors import DataError
from protojax.images import ImageForm, contents, decode_image, find_images, load_images
from tests.fuzz import seeds

COLOUR, DRAWING = ImageForm((20, 30, 3)), ImageForm((20, 20, 1))
QUARTERS = np.zeros((20, 30, 3), np.uint8)  # red on the left, blue on the right, and a green corner
QUARTERS[:, :15, 0], QUARTERS[:, 15:, 2], QUARTERS[:8, :10] = 255, 255, (0, 255, 0)


def stroke(size=(20, 20), paper=255, ink=0):
    drawing = np.full(size, paper, np.uint8)
    drawing[size[0] // 4 : size[0] // 2, size[1] // 2 : size[1] * 3 // 4] = ink
    return drawing


def saved(path, picture, **options):
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(path, **options)
    return path


def read_image(path, form, **options):
    return decode_image(contents(path), form, name=str(path), **options)


@pytest.mark.parametrize('name', ['a.png', 'a.webp', 'A.JPEG', 'a.gif', 'a.bmp', 'a.tiff', 'a.heic'])
def test_formats(tmp_path, name):
    if name == 'a.heic':
        pytest.importorskip('pillow_heif').register_heif_opener()
    found = read_image(saved(tmp_path / name, QUARTERS, quality=95), COLOUR)
    assert found.shape == (20, 30, 3) and found.dtype == np.uint8
    for y, x in ((15, 5), (15, 25), (3, 4)):
        assert np.abs(found[y, x].astype(int) - QUARTERS[y, x]).max() < 60


def test_a_missing_package_for_heic_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'pillow_heif', None)
    with pytest.raises(DataError, match=r"^a\.heic is a HEIC image; pip install 'protojax\[heic\]' to read it$"):
        decode_image(bytes(4) + b'ftypheic', COLOUR, name='a.heic')


def test_photographs_are_turned_upright(tmp_path):
    flips = ['FLIP_LEFT_RIGHT', 'ROTATE_180', 'FLIP_TOP_BOTTOM', 'TRANSPOSE', 'ROTATE_90', 'TRANSVERSE', 'ROTATE_270']
    for orientation, flip in enumerate(flips, 2):
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = saved(tmp_path / 'a.png', Image.fromarray(QUARTERS).transpose(Image.Transpose[flip]), exif=exif)
        np.testing.assert_array_equal(read_image(path, COLOUR), QUARTERS)


@pytest.mark.parametrize('name', ['a.gif', 'a.tiff'])
def test_the_first_of_several_frames_is_read(tmp_path, name):
    others = [Image.new('RGB', (30, 20), colour) for colour in ('black', 'white')]
    found = read_image(saved(tmp_path / name, QUARTERS, save_all=True, append_images=others), COLOUR)
    assert np.abs(found.astype(int) - QUARTERS).max() < 60


def test_damaged_exif_does_not_spoil_the_picture(tmp_path, recwarn):
    path = saved(tmp_path / 'a.png', QUARTERS, exif=b'Exif\0\0II*\0\xff\xff\xff\xff garbage')
    recwarn.clear()
    np.testing.assert_array_equal(read_image(path, COLOUR), QUARTERS)
    assert not recwarn


def test_palettes_and_transparency(tmp_path):
    found = read_image(saved(tmp_path / 'palette.png', Image.fromarray(QUARTERS).quantize(8)), COLOUR)
    assert np.abs(found.astype(int) - QUARTERS).max() < 10
    alpha = np.broadcast_to(255 * (np.arange(30) < 15), (20, 30))
    found = read_image(saved(tmp_path / 'alpha.png', np.dstack([QUARTERS, alpha]).astype(np.uint8)), COLOUR)
    np.testing.assert_array_equal(found[:, :15], QUARTERS[:, :15])
    assert (found[:, 15:] == 255).all()  # white behind what is transparent


def test_sixteen_bits_are_scaled_not_cut(tmp_path):
    ramp = np.linspace(0, 65535, 600).astype(np.uint16).reshape(20, 30)
    found = read_image(saved(tmp_path / 'a.png', ramp), COLOUR)
    assert np.abs(found[..., 0].astype(int) - (ramp >> 8)).max() <= 1


DRAWINGS = {
    'dark on light': stroke(),
    'light on dark': stroke(paper=0, ink=255),
    'pencil on grey paper': stroke(paper=150, ink=60),
    'chalk on a board': stroke(paper=60, ink=150),
    'larger and not square': np.kron(stroke(), np.ones((10, 15), np.uint8)),
    'black on nothing': Image.fromarray(np.dstack([stroke(ink=0, paper=0), 255 - stroke()])),
    'white on nothing': Image.fromarray(np.dstack([stroke(ink=255, paper=255), 255 - stroke()])),
}


@pytest.mark.parametrize('name', DRAWINGS)
def test_ink_is_255_whatever_the_drawing_was_made_with(tmp_path, name):
    found = read_image(saved(tmp_path / 'a.png', DRAWINGS[name]), DRAWING)
    np.testing.assert_array_equal(found[..., 0], 255 - stroke())


def test_ink_can_be_told(tmp_path):
    mostly_ink = np.full((20, 20), 30, np.uint8)  # dark ink to the very edge, and little paper
    mostly_ink[5:10, 5:15] = 220
    path = saved(tmp_path / 'a.png', mostly_ink)
    assert read_image(path, DRAWING, ink='light')[7, 7, 0] == 255
    assert read_image(path, DRAWING, ink='dark')[7, 7, 0] == 0
    assert not read_image(saved(tmp_path / 'b.png', np.full((9, 9), 255, np.uint8)), DRAWING).any()  # an empty sheet


def test_the_central_square_is_shown(tmp_path):
    wide = np.zeros((100, 300, 3), np.uint8)
    wide[10:90, 110:190] = 255  # 80 % of the shorter side, in the middle
    path = saved(tmp_path / 'a.png', wide)
    assert read_image(path, ImageForm((16, 16, 3), crop=0.8)).min() > 200
    assert read_image(path, ImageForm((16, 16, 3), crop=1.0))[0, 0].max() < 20
    assert read_image(path, ImageForm((16, 16, 3)))[8, 2].max() == 0  # the whole image, to its left edge


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png_of(width, height):
    """A PNG that announces a size and holds next to nothing."""
    header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    body = chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(bytes(1000))) + chunk(b'IEND', b'')
    return b'\x89PNG\r\n\x1a\n' + body


WHOLE = seeds.picture(size=20)
HOSTILE = {
    'bomb': png_of(9000, 9000),
    'bomb that Pillow warns about': png_of(12000, 12000),
    'no rows': png_of(20, 0),
    'cut': WHOLE[:-300],
    'empty': b'',
    'a flipped bit': WHOLE[:-20] + b'x' + WHOLE[-19:],
    'another format': b'%!PS-Adobe-3.0' + bytes(50),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_files_are_refused_in_one_line(tmp_path, name):
    path = tmp_path / 'x.png'
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataError, match=r'x\.png ') as caught, warnings.catch_warnings(action='error'):
        read_image(path, COLOUR)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    'form', [ImageForm((224, 224, 3), 1.0, True), ImageForm((16, 16, 3), 1e-9, True), ImageForm((16, 16, 3), 2.0)]
)
def test_sizes_that_fill_the_memory_or_are_impossible(tmp_path, form):
    Image.new('1', (65535, 1)).save(tmp_path / 'x.png')
    with pytest.raises(DataError, match=r'x\.png is not a usable image'):
        read_image(tmp_path / 'x.png', form)


def test_endless_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / 'pipe.png')
    with open(tmp_path / 'huge.png', 'wb') as file:
        file.truncate(1 << 42)
    for name, reason in {'pipe': 'not a regular file', 'huge': 'MemoryError'}.items():
        with pytest.raises(DataError, match=reason):
            read_image(tmp_path / f'{name}.png', COLOUR)


@pytest.fixture
def folder(tmp_path):
    for name in ('cat', 'dog', 'birds/owl', '.hidden'):
        (tmp_path / 'set' / name).mkdir(parents=True)
        for number in range(2):
            saved(tmp_path / 'set' / name / f'{number}.png', QUARTERS)
    saved(tmp_path / 'set' / 'loose.png', QUARTERS)
    (tmp_path / 'set' / 'fish').mkdir()
    (tmp_path / 'set' / 'notes.txt').write_text('hello')
    (tmp_path / 'set' / 'dog' / '1.png').write_bytes(b'broken')
    (tmp_path / 'set' / 'dog' / '._0.png').write_bytes(b'left by a file system')
    return tmp_path / 'set'


def test_a_folder_of_folders_is_classes(folder):
    loaded = load_images(folder, COLOUR)
    assert loaded.names == ('birds/owl', 'cat', 'dog')
    assert loaded.items.shape == (6, 20, 30, 3)
    classes = [loaded.names[label].split('/')[-1] if label >= 0 else 'set' for label in loaded.labels]
    assert sorted(classes) == ['cat', 'cat', 'dog', 'owl', 'owl', 'set']
    assert [path.parent.name for path in loaded.paths] == classes
    unreadable, other = loaded.skipped
    assert find_images(folder).empty == ('fish',)
    assert 'dog/1.png' in unreadable and 'notes.txt is not an image' in other
    together = load_images([folder / 'cat', folder / 'loose.png'], COLOUR)
    assert together.names == () and together.labels.tolist() == [-1] * 3


def test_folders_that_are_not_entered_are_reported(folder, monkeypatch):
    def scandir(path, scandir=os.scandir):  # fails although the tests may run as root, who can read every folder
        return scandir('/nowhere/fish' if 'fish' in path else path)

    monkeypatch.setattr(os, 'scandir', scandir)
    (folder / 'linked').symlink_to('cat')
    loaded = load_images(folder, COLOUR)
    assert loaded.names == ('birds/owl', 'cat', 'dog')
    assert [line.split()[0].split('/')[-1] for line in loaded.skipped] == ['1.png', 'linked', 'notes.txt', 'fish']


def test_the_form_is_that_of_the_encoder(folder):
    loaded = load_images(folder / 'cat', EfficientNetLite(item_shape=(32, 32, 3)))
    assert loaded.items.shape == (2, 32, 32, 3)
    assert load_images(folder / 'cat', Conv4(item_shape=(28, 28, 1))).items.shape == (2, 28, 28, 1)
    for other in (Conv4(), ImageForm((28, 28, 2))):
        with pytest.raises(ValueError, match='or an ImageForm, got '):
            load_images(folder / 'cat', other)


def test_drawings_are_told_from_photographs(tmp_path):
    rng = np.random.default_rng(0)
    photo = np.asarray(Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize((160, 120)))
    grey = np.asarray(Image.fromarray(photo).convert('L'))
    drawn = [stroke(), stroke(paper=0, ink=255), stroke(paper=180, ink=40)]
    drawings = [saved(tmp_path / f'{k}.png', np.kron(d, np.ones((5, 5), np.uint8))) for k, d in enumerate(drawn)]
    photos = [saved(tmp_path / 'p.jpg', photo), saved(tmp_path / 'g.jpg', grey)]
    assert images.are_drawings(drawings)
    assert not images.are_drawings(photos) and not images.are_drawings([saved(tmp_path / 'c.png', QUARTERS)])
    assert images.are_drawings([*drawings, *photos])  # most of them
