"""Small valid files of every format."""

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable

import numpy as np
import scipy.io
from PIL import Image

SIZE = 8  # pixels of the images
PIXELS = np.random.default_rng(0).integers(0, 256, (6, SIZE, SIZE, 3), dtype=np.uint8)
CACHE = {'image_data': PIXELS, 'class_dict': {'n01532829': [0, 1, 2], 'n01558993': [3, 4, 5]}}
LABELLED = {'data': np.asfortranarray(PIXELS[:4]), 'labels': [7, 7, 9, 9], 'catname2label': {'dog': 7, 'cat': 9}}
BIRDS = {
    'classes.txt': b'1 001.Owl\n2 002.Tit\n3 003.Auk\n4 004.Jay\n',
    'image_class_labels.txt': b''.join(b'%d %d\n' % (k, -(-k // 2)) for k in range(1, 9)),
    'class_attribute_labels_continuous.txt': b'0.5 1e2 3\n' * 4,
    'trainvalclasses.txt': b'001.Owl\n002.Tit\n003.Auk\n',
    'testids.txt': b'4\n',
}


def pickles() -> list[bytes]:
    return [pickle.dumps(value, protocol) for value in (CACHE, LABELLED) for protocol in range(6)]


def torch_file(array: np.ndarray, order: str = '<') -> bytes:
    """A .t7 file as Lua Torch writes it: a tensor and its storage."""

    def head(kind, index):
        name = f'torch.{ {"f4": "Float", "f8": "Double"}[array.dtype.str[1:]] }{kind}'.encode()
        return struct.pack(order + 'iii3si', 4, index, 3, b'V 1', len(name)) + name

    strides = [stride // array.itemsize for stride in array.strides]
    numbers = struct.pack(f'{order}i{2 * array.ndim}qq', array.ndim, *array.shape, *strides, 1)
    elements = array.ravel(order='K').astype(order + array.dtype.str[1:]).tobytes()
    return head('Tensor', 1) + numbers + head('Storage', 2) + struct.pack(order + 'q', array.size) + elements


def matlab(compressed: bool) -> bytes:
    values = {'features': np.arange(12.0).reshape(3, 4), 'names': np.array(['owl', 'tit'], object), 'other': 'text'}
    scipy.io.savemat(file := io.BytesIO(), values, do_compression=compressed)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


def picture(number: int = 0, format: str = 'PNG', mode: str = 'RGB', size: int = SIZE, **options) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(file := io.BytesIO(), format, **options)
    return file.getvalue()


def images() -> dict[str, bytes]:
    """A source of miniImageNet: a list with its images."""
    files = {'images/0.png': picture(0), 'images/1.png': picture(1), 'images/2.jpg': picture(2, 'JPEG')}
    rows = ''.join(f'{name[7:]},n0{number}\n' for number, name in enumerate(files))
    return {'val.csv': f'filename,label\n{rows}'.encode(), **files}


def tar(mode: str, files: dict[str, bytes] | None = None, change: Callable = lambda entry: None) -> bytes:
    with tarfile.open(fileobj=(file := io.BytesIO()), mode=mode) as archive:
        for name, contents in (files or images()).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            change(entry)
            archive.addfile(entry, io.BytesIO(contents))
    return file.getvalue()


def zip(method: int, files: dict[str, bytes] | None = None) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), 'w', method) as archive:
        for name, contents in (files or images()).items():
            archive.writestr(name, contents)
    return file.getvalue()
