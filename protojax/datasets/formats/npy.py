"""Reads NumPy's .npy files: a line of Python that describes the array, of which nothing is run, and its elements."""

import ast
import math
import struct

import numpy as np

from protojax.datasets.formats import Contents, Damaged, Where, reading_format

MAGIC = b'\x93NUMPY'
LONG_HEADER = 1024  # bytes; NumPy's own have 118
KEYS = {'descr', 'fortran_order', 'shape'}
TYPES = frozenset(f'{order}{code}' for order in '<>' for code in ('i2', 'i4', 'i8', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8'))
TYPES |= {'|b1', '|i1', '|u1'}


def read_npy(data: Contents, where: Where) -> np.ndarray:
    """The array in the bytes of a file, as a read-only view of them; where names it in errors."""
    with reading_format(where, 'is not a whole .npy file of numbers'):
        version, size = bytes(data[6:8]), 2 if data[6] == 1 else 4
        (length,) = struct.unpack('<H' if size == 2 else '<I', data[8 : 8 + size])
        if bytes(data[:6]) != MAGIC or version not in (b'\1\0', b'\2\0') or length > LONG_HEADER:
            raise Damaged('it does not begin as one')
        start = 8 + size + length
        header = ast.literal_eval(str(data[8 + size : start], 'ascii').strip())
        if not isinstance(header, dict) or header.keys() != KEYS:
            raise Damaged('its header describes no array')
        kind, fortran, shape = (header[key] for key in sorted(KEYS))
        if kind not in TYPES or not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise Damaged('its header describes no array of numbers')
        dtype = np.dtype(kind)
        if math.prod(shape) * dtype.itemsize != len(data) - start:
            raise Damaged(f'it holds {len(data) - start} bytes of an array of {dtype} {shape}')
        return np.frombuffer(data, dtype, offset=start).reshape(shape, order='F' if fortran else 'C')
