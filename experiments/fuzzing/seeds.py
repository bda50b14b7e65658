"""Small whole files of every format, as the programs that people have would write them."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)
SIDE = 8  # pixels of the images here
CACHE = {
    'image_data': RNG.integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8),
    'class_dict': {'n01532829': [0, 1, 2], 'n01558993': [3, 4, 5]},
}
LABELLED = {
    'data': np.asfortranarray(CACHE['image_data'][:4]),
    'labels': [7, 7, 9, 9],
    'catname2label': {'dog': 7, 'cat': 9},
    'scalar': np.int64(-5),
    'floats': np.linspace(0, 1, 7, dtype='>f4'),
    'others': (None, True, False, 1.5, -1, 70_000, 1 << 40, 'Dürer', []),
}
TABLE = {'features': np.arange(24.0).reshape(2, 3, 4), 'names': {1.0: 'owl', 2.0: 'tit'}, 'whole': True}


def seed_pickles() -> list[bytes]:
    """By Python 3 in all protocols, and by Python 2 in its own."""
    python3 = [pickle.dumps(value, protocol) for value in (CACHE, LABELLED) for protocol in range(6)]
    return [*python3, *(seed_python2_pickle(CACHE, protocol) for protocol in (0, 1, 2))]


def seed_python2_pickle(value, protocol: int) -> bytes:
    """A value as Python 2 pickles it."""
    if protocol == 0:
        return _python2_text(value) + b'.'
    return (b'\x80\x02' if protocol == 2 else b'') + _python2_binary(value) + b'.'


def _python2_text(value) -> bytes:
    if isinstance(value, str):
        return b'S' + repr(value.encode('latin1'))[1:].encode() + b'\np9\n'
    if isinstance(value, dict):
        return b'(dp1\n' + b''.join(_python2_text(key) + _python2_text(item) + b's' for key, item in value.items())
    if isinstance(value, list):
        return b'(lp2\n' + b''.join(_python2_text(item) + b'a' for item in value)
    if isinstance(value, np.ndarray):
        order, code = value.dtype.str[:1].encode(), value.dtype.str[1:].encode()
        dtype = b"cnumpy\ndtype\np3\n(S'" + code + b"'\np4\nI0\nI1\ntp5\nRp6\n(I3\nS'" + order + b"'\np7\n"
        state = b'(I1\n(' + b''.join(map(_python2_text, value.shape)) + b'tp8\n' + dtype + b'NNNI-1\nI-1\nI0\ntbI00\n'
        array = b"cnumpy.core.multiarray\n_reconstruct\np10\n(cnumpy\nndarray\np11\n(I0\ntp12\nS'b'\np13\ntp14\nRp15\n"
        return array + state + _python2_text(str(value.tobytes(), 'latin1')) + b'tp16\nb'
    return b'I%d\n' % value


def _python2_binary(value) -> bytes:
    if isinstance(value, str):
        data = value.encode('latin1')
        return (b'U' + bytes([len(data)]) if len(data) < 256 else b'T' + struct.pack('<I', len(data))) + data
    if isinstance(value, dict):
        return b'}q\x01(' + b''.join(_python2_binary(key) + _python2_binary(item) for key, item in value.items()) + b'u'
    if isinstance(value, list):
        return b']q\x02(' + b''.join(map(_python2_binary, value)) + b'e'
    if isinstance(value, np.ndarray):
        order, code = value.dtype.str[:1].encode(), value.dtype.str[1:].encode()
        dtype = b'cnumpy\ndtype\n(U\x02' + code + b'K\x00K\x01tR(K\x03U\x01' + order
        dtype += b'NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb'
        state = b'(K\x01(' + b''.join(map(_python2_binary, value.shape)) + b't' + dtype + b'I00\n'
        array = b'cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btRq\x03'
        return array + state + _python2_binary(str(value.tobytes(), 'latin1')) + b'tb'
    return b'J' + struct.pack('<i', value)


def seed_torch7(value, order: str = '<', counter=None) -> bytes:
    """A value as Torch writes it."""
    counter = counter if counter is not None else iter(range(1, 1000))
    if isinstance(value, bool):
        return struct.pack(order + 'ii', 5, value)
    if isinstance(value, float):
        return struct.pack(order + 'id', 1, value)
    if isinstance(value, str):
        return struct.pack(order + 'ii', 2, len(value)) + value.encode('latin1')
    head = struct.pack(order + 'ii', 3 if isinstance(value, dict) else 4, next(counter))
    if isinstance(value, dict):
        pairs = (seed_torch7(part, order, counter) for pair in value.items() for part in pair)
        return head + struct.pack(order + 'i', len(value)) + b''.join(pairs)
    name = {'f4': 'Float', 'f8': 'Double', 'i8': 'Long'}[value.dtype.str[1:]]
    sizes = value.shape + tuple(stride // value.itemsize for stride in value.strides)
    return (
        head
        + seed_torch7_class(f'torch.{name}Tensor', order)
        + struct.pack(f'{order}i{len(sizes)}qq', value.ndim, *sizes, 1)
        + struct.pack(order + 'ii', 4, next(counter))
        + seed_torch7_class(f'torch.{name}Storage', order)
        + struct.pack(order + 'q', value.size)
        + value.ravel(order='K').astype(order + value.dtype.str[1:]).tobytes()
    )


def seed_torch7_class(name: str, order: str = '<') -> bytes:
    return struct.pack(order + 'i3s', 3, b'V 1') + struct.pack(order + 'i', len(name)) + name.encode()


MATLAB = b'MATLAB 5.0 MAT-file'.ljust(124) + b'\x00\x01IM'


def seed_element(kind: int, contents: bytes) -> bytes:
    """An element of a .mat file."""
    return struct.pack('<II', kind, len(contents)) + contents + bytes(-len(contents) % 8)


def seed_matrix(dimensions, contents: bytes, *, kind: int = 6, name: bytes = b'features') -> bytes:
    flags, shape = struct.pack('<II', kind, 0), struct.pack(f'<{len(dimensions)}i', *dimensions)
    return seed_element(14, seed_element(6, flags) + seed_element(5, shape) + seed_element(1, name) + contents)


def seed_compressed_matlab(variable: bytes) -> bytes:
    data = zlib.compress(variable)
    return struct.pack('<II', 15, len(data)) + data


def seed_matlab_variables() -> list[bytes]:
    words = (seed_element(4, word.encode('utf-16-le')) for word in ('owl', 'tit'))
    text = (seed_matrix((1, 3), word, kind=4, name=b'') for word in words)
    return [
        seed_matrix((3, 4), seed_element(9, np.arange(12.0).tobytes())),
        seed_matrix((4, 1), seed_element(2, bytes([1, 2, 2, 1])), kind=9, name=b'labels'),
        seed_matrix((2, 1), b''.join(text), kind=1, name=b'names'),
        seed_matrix((9, 9), seed_element(9, bytes(8 * 81)), name=b'unwanted'),
    ]


def seed_picture(number: int = 0, format: str = 'PNG', mode: str = 'RGB', size=(SIDE, SIDE), **options) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, format, **options)
    return file.getvalue()


def seed_archive_members() -> dict[str, bytes]:
    """The files of an archive of miniImageNet: a list with its images."""
    images = {f'images/{number}.png': seed_picture(number) for number in range(2)}
    images['images/2.jpg'] = seed_picture(2, 'JPEG')
    rows = ''.join(f'{name[7:]},n0{number}\n' for number, name in enumerate(images))
    return {'val.csv': f'filename,label\n{rows}'.encode(), **images}


def _seed_tar(files: dict[str, bytes], format: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w', format=format) as archive:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
    return file.getvalue()


def seed_tars() -> list[bytes]:
    long = {f'{"folder/" * 20}{name}': contents for name, contents in seed_archive_members().items()}
    arrays = {'mini-imagenet-cache-val.pkl': pickle.dumps(CACHE, 4)}
    formats = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    return [_seed_tar(files, format) for files in (seed_archive_members(), long, arrays) for format in formats]


def seed_tar_gzs() -> list[bytes]:
    return [gzip.compress(data) for data in seed_tars()]


def seed_zips() -> list[bytes]:
    folders = {name.replace('images/', 'val/n01/'): contents for name, contents in seed_archive_members().items()}
    others = [_seed_zip(folders, method) for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    return [_seed_zip(files, method) for files in (seed_archive_members(), folders) for method in (0, 8)] * 2 + others


def _seed_zip(files: dict[str, bytes], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', method) as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)
    return file.getvalue()


def seed_npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def seed_legacy_pth() -> bytes:
    """Two tensors that share a storage, as PyTorch before 1.6 saved them."""

    def tensor(offset, sizes, strides):
        storage = b'(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x007X\x03\x00\x00\x00cpuK\x06Ntq\x01Q'
        numbers = (b'(' + b''.join(b'K' + bytes([n]) for n in pair) + b't' for pair in (sizes, strides))
        call = b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + b'K' + bytes([offset]) + b''.join(numbers)
        return call + b'\x89ccollections\nOrderedDict\n)RtR'

    state = b'\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00a' + tensor(0, (2, 3), (3, 1))
    state += b'X\x01\x00\x00\x00b' + tensor(3, (3,), (1,)) + b'u.'
    head = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {'little_endian': True})]
    return b''.join(head) + state + pickle.dumps(['7'], 2) + struct.pack('<q', 6) + np.arange(6, dtype='<f4').tobytes()
