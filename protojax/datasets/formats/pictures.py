"""Opens and decodes PNG, JPEG and WebP images; of PNGs every checksum is compared, JPEGs have none."""

import io
import struct
import warnings
import zlib

from PIL import Image, UnidentifiedImageError

from protojax.datasets.formats import Contents, Damaged, Where, reading_format
from protojax.errors import DataError

PNG, JPEG = b'\x89PNG\r\n\x1a\n', b'\xff\xd8'
CHUNKS = 1 << 16  # of a PNG; one of 64 MB has 8,192 where they are as small as encoders make them
SCANS, SCAN = 100, b'\xff\xda'  # of a JPEG; a progressive one has about ten
EXIFS, EXIF = 64, b'Exif\0\0'  # an image has one; Pillow joins them, in a time that grows with their square

# What Pillow finds odd in EXIF data does not matter to the pixels. Filters of the program itself come first.
warnings.filterwarnings('ignore', category=UserWarning, module=r'PIL\.', append=True)


def read_picture(
    contents: Contents, where: Where, *, size: tuple[int, int], mode: str, formats: tuple[str, ...]
) -> Image.Image:
    """A decoded image of the given (width, height), PIL mode ('L', 'RGB') and one of the formats ('PNG', 'JPEG')."""
    problem = f'is not a whole {" or ".join(formats)} image'
    with reading_format(where, problem), open_picture(bytes(contents), formats) as picture:
        if picture.size == size:
            return picture.convert(mode)
    found, wanted = ('x'.join(map(str, pair)) for pair in (picture.size, size))
    raise DataError(f'{where} is {found}, not {wanted}; bring all images to that size first')


def open_picture(contents: bytes, formats: tuple[str, ...]) -> Image.Image:
    """An image of which only the header is read, and for which no memory is taken yet."""
    _check_png(contents)
    _check_jpeg(contents)
    try:
        return Image.open(io.BytesIO(contents), formats=formats)
    except UnidentifiedImageError:  # its message is about the BytesIO
        raise Damaged('its header cannot be read') from None


def _check_jpeg(contents: bytes) -> None:
    """Damaged if a JPEG has more scans or EXIF data than it can need: each scan goes over all of its pixels.

    Bytes that look like the start of a scan may also stand by chance in a video that a phone puts behind the image,
    about once in 64 KB, so that long files may have more of them.
    """
    if not contents.startswith(JPEG):
        return
    if contents.count(SCAN) > SCANS + len(contents) // (1 << 16) or contents.count(EXIF) > EXIFS:
        raise Damaged('it has far more scans or EXIF data than an image needs')


def _check_png(contents: bytes) -> None:
    """Damaged if a part of a PNG does not have its checksum: Pillow passes over those of the pixels."""
    kind, at, chunks = b'', len(PNG), 0
    while contents.startswith(PNG) and kind != b'IEND':
        chunks += 1
        if chunks > CHUNKS:
            raise Damaged(f'it has more than {CHUNKS} chunks')
        if len(contents) - at < 12:
            raise Damaged('it ends early')
        end = at + 8 + struct.unpack_from('>I', contents, at)[0]
        if contents[end : end + 4] != struct.pack('>I', zlib.crc32(contents[at + 4 : end])):
            raise Damaged('a checksum is wrong')
        kind, at = contents[at + 4 : at + 8], end + 4
