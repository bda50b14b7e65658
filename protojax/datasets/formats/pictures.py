"""Decodes PNG and JPEG images; of PNGs every checksum is compared, JPEGs have none."""

import io
import struct
import zlib

from PIL import Image

from protojax.datasets.formats import Damaged, reading
from protojax.errors import DataError

PNG = b'\x89PNG\r\n\x1a\n'


def read_picture(contents, where, *, size: tuple[int, int], mode: str, formats: tuple[str, ...]) -> Image.Image:
    """A decoded image of the given (width, height), PIL mode ('L', 'RGB') and one of the formats ('PNG', 'JPEG')."""
    contents = bytes(contents)
    with reading(where, f'is not a whole {" or ".join(formats)} image'):
        check_png(contents)
        with Image.open(io.BytesIO(contents), formats=formats) as picture:  # reads the header, allocates nothing
            if picture.size == size:
                return picture.convert(mode)
    found, wanted = ('x'.join(map(str, pair)) for pair in (picture.size, size))
    raise DataError(f'{where} is {found}, not {wanted}; bring all images to that size first')


def check_png(contents: bytes) -> None:
    """Damaged if a part of a PNG does not have its checksum: Pillow passes over those of the pixels."""
    kind, at = b'', len(PNG)
    while contents.startswith(PNG) and kind != b'IEND':
        if len(contents) - at < 12:
            raise Damaged('it ends early')
        end = at + 8 + struct.unpack_from('>I', contents, at)[0]
        if contents[end : end + 4] != struct.pack('>I', zlib.crc32(contents[at + 4 : end])):
            raise Damaged('a checksum is wrong')
        kind, at = contents[at + 4 : at + 8], end + 4
