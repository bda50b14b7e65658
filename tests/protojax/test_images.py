"""Images of all kinds: what is loaded is what a person would see, and hostile files are named and skipped."""

import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from protojax import images
from protojax.encoders import Conv4, EfficientNetLite
from protojax.errors import DataError
from protojax.images import ImageForm, decode_image, find_images, image_form, load_images, read_image

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


@pytest.mark.parametrize('name', ['a.png', 'a.jpg', 'a.webp', 'A.JPEG'])
def test_formats(tmp_path, name):
    options = {} if name == 'a.png' else {'quality': 95}
    found = read_image(saved(tmp_path / name, QUARTERS, **options), COLOUR)
    assert found.shape == (20, 30, 3) and found.dtype == np.uint8
    for y, x in ((15, 5), (15, 25), (3, 4)):
        assert np.abs(found[y, x].astype(int) - QUARTERS[y, x]).max() < 60


@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_photograph_is_turned_upright(tmp_path, orientation):
    picture = Image.fromarray(QUARTERS)
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = picture.transpose(undo[orientation]) if orientation in undo else picture
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = read_image(saved(tmp_path / 'a.png', stored, exif=exif), COLOUR)
    np.testing.assert_array_equal(found, QUARTERS)


def test_damaged_exif_does_not_spoil_the_picture(tmp_path):
    path = saved(tmp_path / 'a.png', QUARTERS, exif=b'Exif\0\0II*\0\xff\xff\xff\xff garbage')
    np.testing.assert_array_equal(read_image(path, COLOUR), QUARTERS)


def test_palettes_and_transparency(tmp_path):
    flat = Image.fromarray(QUARTERS)
    palette = flat.quantize(8)
    found = read_image(saved(tmp_path / 'palette.png', palette), COLOUR)
    assert np.abs(found.astype(int) - QUARTERS).max() < 10
    alpha = Image.fromarray(
        np.dstack([QUARTERS, np.where(np.arange(30) < 15, 255, 0) + np.zeros((20, 1))]).astype('u1')
    )
    found = read_image(saved(tmp_path / 'alpha.png', alpha), COLOUR)
    np.testing.assert_array_equal(found[:, :15], QUARTERS[:, :15])
    assert (found[:, 15:] == 255).all()  # white behind what is transparent
    palette.info['transparency'] = int(np.asarray(palette)[19, 29])
    found = read_image(saved(tmp_path / 'both.png', palette, transparency=palette.info['transparency']), COLOUR)
    assert (found[10:, 20:] == 255).all()


def test_sixteen_bits_are_scaled_not_cut(tmp_path):
    ramp = np.linspace(0, 65535, 600).astype(np.uint16).reshape(20, 30)
    found = read_image(saved(tmp_path / 'a.png', ramp), COLOUR)
    assert np.abs(found[..., 0].astype(int) - (ramp >> 8)).max() <= 1


def test_grey_and_one_bit_pictures_in_colour(tmp_path):
    grey = stroke((20, 30))
    for name, picture in {'l.png': Image.fromarray(grey), '1.png': Image.fromarray(grey).convert('1')}.items():
        found = read_image(saved(tmp_path / name, picture), COLOUR)
        np.testing.assert_array_equal(found, np.dstack([grey] * 3))


DRAWINGS = {
    'dark on light': stroke(),
    'light on dark': stroke(paper=0, ink=255),
    'pencil on grey paper': stroke(paper=150, ink=60),
    'chalk on a board': stroke(paper=60, ink=150),
    'one bit': Image.fromarray(stroke()).convert('1'),
    'larger and not square': np.kron(stroke(), np.ones((10, 15), np.uint8)),
    'in colour': np.dstack([stroke()] * 3),
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
    with pytest.raises(ValueError, match='ink'):
        images.read_images([path], DRAWING, ink='blue')


def test_an_empty_sheet_has_no_ink(tmp_path):
    assert not read_image(saved(tmp_path / 'a.png', np.full((9, 9), 255, np.uint8)), DRAWING).any()


def test_jpeg_drawings(tmp_path):
    large = np.kron(stroke(), np.ones((15, 15), np.uint8))
    found = read_image(saved(tmp_path / 'a.jpg', large, quality=60), DRAWING)
    assert np.abs(found[..., 0].astype(int) - (255 - stroke())).max() < 40


def test_the_central_square_is_shown(tmp_path):
    wide = np.zeros((100, 300, 3), np.uint8)
    wide[10:90, 110:190] = 255  # 80 % of the shorter side, in the middle
    path = saved(tmp_path / 'a.png', wide)
    assert read_image(path, ImageForm((16, 16, 3), crop=0.8)).min() > 200
    corner = read_image(path, ImageForm((16, 16, 3), crop=1.0))[0, 0]
    assert corner.max() < 20
    assert read_image(path, ImageForm((16, 16, 3)))[8, 2].max() == 0  # the whole image, to its left edge


def test_huge_photographs_are_decoded_small(tmp_path):
    path = saved(tmp_path / 'a.jpg', Image.new('RGB', (4000, 3000), (200, 100, 50)), quality=80)
    found = read_image(path, ImageForm((84, 84, 3)))
    assert np.abs(found.astype(int) - (200, 100, 50)).max() < 5


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png_of(width, height):
    """A PNG that announces a size and holds next to nothing."""
    header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    body = chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(bytes(1000))) + chunk(b'IEND', b'')
    return b'\x89PNG\r\n\x1a\n' + body


def whole_png():
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)).save(stream, 'PNG')
    return stream.getvalue()


def jpeg_with(segment, count):
    """A whole JPEG with a segment repeated: a scan is put at the end, all others at the beginning."""
    stream = io.BytesIO()
    Image.new('L', (20, 20)).save(stream, 'JPEG', progressive=True)
    whole = stream.getvalue()
    if segment == b'scan':
        last = whole[whole.rindex(b'\xff\xda') : -2]
        return whole[:-2] + count * last + whole[-2:]
    return whole[:2] + count * segment + whole[2:]


EXIF = b'\xff\xe1\x00\x10Exif\0\0MM\0*\0\0\0\x08'


@pytest.mark.parametrize(('segment', 'few', 'many'), [(b'scan', 50, 200), (EXIF, 50, 100)], ids=['scans', 'EXIF'])
def test_repeated_parts_of_a_jpeg(segment, few, many):
    assert not decode_image(jpeg_with(segment, few), COLOUR).any()
    with pytest.raises(DataError, match='far more scans or EXIF data'):
        decode_image(jpeg_with(segment, many), COLOUR)


def test_a_png_of_empty_chunks():
    whole, empty = whole_png(), chunk(b'teXt', b'')
    assert decode_image(whole[:-12] + empty * 100 + whole[-12:], COLOUR).any()
    with pytest.raises(DataError, match='more than 65536 chunks'):
        decode_image(whole[:-12] + empty * 70_000 + whole[-12:], COLOUR)


def test_what_pillow_says_of_a_file_is_not_shown(tmp_path):
    with pytest.raises(DataError, match=r'^x\.png is not .* \(its header cannot be read\)$'):
        decode_image(b'text', COLOUR, name='x.png')
    exif = b'Exif\0\0MM\0*\0\0\0\x08\xff\xff' + b'\x01\x12\0\x03\xff\xff\xff\xff\0\6\0\0' * 9
    path = saved(tmp_path / 'a.jpg', QUARTERS, exif=exif)
    program = f'from protojax.images import *; read_image({str(path)!r}, ImageForm((9, 9, 3)))'
    assert subprocess.run([sys.executable, '-c', program], capture_output=True, check=True).stderr == b''


HOSTILE = {
    'bomb': png_of(9000, 9000),
    'larger bomb': png_of(2**31 - 1, 2**31 - 1),
    'no rows': png_of(20, 0),
    'cut': whole_png()[:-300],
    'empty': b'',
    'text': b'not an image',
    'another format': b'GIF89a' + bytes(50),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_files_are_refused_in_one_line(tmp_path, name):
    path = tmp_path / 'x.png'
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataError, match=r'x\.png ') as caught:
        read_image(path, COLOUR)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(('mode', 'form'), [('RGBA', DRAWING), ('LA', DRAWING), ('I;16', DRAWING), ('L', COLOUR)])
def test_a_small_file_does_not_become_a_large_picture(tmp_path, mode, form):
    Image.new(mode, (4200, 4200)).save(tmp_path / 'x.png')
    with pytest.raises(DataError, match='more memory than a file of its size'):
        read_image(tmp_path / 'x.png', form)


@pytest.mark.parametrize('progressive', [False, True])
def test_a_flat_jpeg_is_decoded_small_or_not_at_all(tmp_path, progressive):
    Image.new('RGB', (4200, 4200)).save(tmp_path / 'x.jpg', progressive=progressive)
    if not progressive:
        assert not read_image(tmp_path / 'x.jpg', COLOUR).any()
    else:
        with pytest.raises(DataError, match='more memory than a file of its size'):
            read_image(tmp_path / 'x.jpg', COLOUR)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'pipe.png')
    with pytest.raises(DataError, match='it is no ordinary file'):
        read_image(tmp_path / 'pipe.png', COLOUR)


def test_too_long_files_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(images, 'LARGEST_FILE', 100)
    with pytest.raises(DataError, match='more than 100'):
        read_image(saved(tmp_path / 'a.png', np.random.default_rng(0).integers(0, 255, (30, 30), np.uint8)), COLOUR)


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
    classes = [loaded.names[label] if label >= 0 else '' for label in loaded.labels]
    assert sorted(classes) == ['', 'birds/owl', 'birds/owl', 'cat', 'cat', 'dog']
    assert [path.parent.name for path, name in zip(loaded.paths, classes, strict=True) if name == 'dog'] == ['dog']
    (line,) = loaded.skipped
    assert 'dog/1.png' in line


def test_what_is_no_image_is_known_by_name(folder):
    found = find_images(folder)
    assert found.empty == ('fish',)
    assert [path.name for path in found.others] == ['notes.txt']


def test_files_and_folders_together(folder):
    loaded = load_images([folder / 'cat', folder / 'loose.png'], COLOUR)
    assert loaded.names == () and (loaded.labels == -1).all() and len(loaded.items) == 3
    with pytest.raises(DataError, match='does not exist'):
        load_images(folder / 'nowhere', COLOUR)


def test_the_form_is_that_of_the_encoder(folder):
    loaded = load_images(folder / 'cat', EfficientNetLite(item_shape=(32, 32, 3)))
    assert loaded.items.shape == (2, 32, 32, 3)
    assert load_images(folder / 'cat', Conv4(item_shape=(28, 28, 1))).items.shape == (2, 28, 28, 1)
    with pytest.raises(ValueError, match='not of images'):
        load_images(folder / 'cat', Conv4())


def test_drawings_are_told_from_photographs(tmp_path):
    rng = np.random.default_rng(0)
    photo = np.asarray(Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize((160, 120)))
    grey = np.asarray(Image.fromarray(photo).convert('L'))
    drawings = [saved(tmp_path / f'd{n}.png', np.kron(d, np.ones((5, 5), np.uint8))) for n, d in enumerate(
        [stroke(), stroke(paper=0, ink=255), stroke(paper=180, ink=40)])]  # fmt: skip
    photos = [saved(tmp_path / 'p.jpg', photo), saved(tmp_path / 'g.jpg', grey)]
    coloured = saved(tmp_path / 'c.png', QUARTERS)
    assert images.are_drawings(drawings)
    assert not images.are_drawings(photos) and not images.are_drawings([coloured])
    assert images.are_drawings([*drawings, *photos])  # most of them


def test_an_encoder_without_a_shape_of_images_is_told():
    for encoder in (object(), ImageForm((28, 28, 2))):
        with pytest.raises(ValueError, match='is not of images.*give an ImageForm'):
            image_form(encoder)
