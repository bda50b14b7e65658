"""Reads numbers, strings and cell arrays from MATLAB's .mat files (version 5, which MATLAB writes with -v6 and -v7).

A file is a header of 128 bytes and one element per variable: type, length, contents, mostly compressed. A compressed
element is opened only as far as its name unless it is wanted, and then only to the length that it announces, which is
bounded.
"""

import math
import mmap
import struct
import zlib
from pathlib import Path

import numpy as np

from protojax.errors import DataError

LIMIT = 1 << 30  # bytes of all wanted variables; CUB's features have 200 MB
RATIO = 1100  # zlib cannot shrink more than 1,032 times
CELLS = 1_000_000
VARIABLES = 1_000
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 9: 'f8', 12: 'i8', 13: 'u8'}
TEXTS = {1: 'latin1', 2: 'latin1', 4: 'utf-16', 16: 'utf-8', 17: 'utf-16'}
CELL, CHAR, NUMERIC = 1, 4, range(6, 16)


class _Damaged(Exception):
    """Why the file cannot be read."""


def load(path, names):
    """Those of the named variables that a file holds: arrays [rows, columns], strings, or lists (cells) of these."""
    try:
        with Path(path).open('rb') as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise DataError(f'{path} cannot be read ({error}); get it again') from error
    return loads(data, names, path)


def loads(data, names, where):
    """The variables of given names in a buffer; where names it in errors."""
    if data[:10] == b'MATLAB 7.3' or data[1:4] == b'HDF':
        raise DataError(f'{where} has MATLAB format 7.3 (HDF5); save it in MATLAB with -v7')
    order = {b'IM': '<', b'MI': '>'}.get(bytes(data[126:128]))
    try:
        if order is None or bytes(data[:6]) != b'MATLAB':
            raise _Damaged('it does not begin as one')
        return _variables(memoryview(data)[128:], order, names)
    except _Damaged as error:
        raise DataError(f'{where} is not a whole .mat file: {error}; get it again') from error
    except (ValueError, struct.error, zlib.error) as error:
        raise DataError(f'{where} is a damaged .mat file; get it again') from error


def _variables(data, order, names):
    found, spare = {}, LIMIT
    for _ in range(VARIABLES):
        if not len(data):
            break
        kind, contents, data = _element(data, order, padded=False)
        head = contents
        if kind == COMPRESSED:
            kind, length = struct.unpack(order + 'II', _inflate(contents, 8))
            if length > min(spare, RATIO * len(contents)):
                raise _Damaged(f'a variable announces {length} bytes in {len(contents)} compressed ones')
            head = _inflate(contents, 8 + min(length, 1024))[8:]
        if kind != MATRIX or (name := _name(head, order)) not in names:
            continue
        if head is not contents:
            spare -= length
            contents = _inflate(contents, 8 + length)[8:]
        found[name] = _matrix(contents, order, depth=0)
    return found


def _inflate(data, size):
    """The first `size` bytes of compressed data."""
    contents = zlib.decompressobj().decompress(data, size)
    if len(contents) < size:
        raise _Damaged(f'{size} bytes are announced, {len(contents)} are there')
    return memoryview(contents)


def _element(data, order, padded=True):
    """The element that begins here: type, contents and what follows."""
    kind, length = struct.unpack(order + 'II', data[:8])
    if kind >> 16:  # a small element: type, length and up to 4 bytes of contents in 8 bytes
        kind, length, start, end = kind & 0xFFFF, kind >> 16, 4, 8
        if length > 4:
            raise _Damaged('a small element announces more than 4 bytes')
    else:
        start, end = 8, 8 + (-(-length // 8) * 8 if padded else length)
    if start + length > len(data):
        raise _Damaged(f'{length} bytes are announced, {len(data) - start} are left')
    return kind, data[start : start + length], data[end:]


def _array(data, order):
    """A numeric element and what follows it."""
    kind, contents, rest = _element(data, order)
    if kind not in NUMBERS:
        raise _Damaged(f'numbers have type {kind}')
    return np.frombuffer(contents, order + NUMBERS[kind]), rest


def _header(data, order):
    """Class, dimensions, name of a matrix and what follows them."""
    flags, data = _array(data, order)
    dimensions, data = _array(data, order)
    _, name, data = _element(data, order)
    if len(flags) < 1 or not 2 <= len(dimensions) <= 32 or dimensions.min() < 0:
        raise _Damaged('a matrix has no class or dimensions')
    return int(flags[0]) & 0xFF, tuple(map(int, dimensions)), str(name, 'latin1'), data


def _name(data, order):
    return _header(data, order)[2] if len(data) else ''


def _matrix(data, order, depth):
    """A matrix of numbers, a string (the rows of a character matrix are joined) or a list of cells."""
    kind, dimensions, _, data = _header(data, order)
    if kind in NUMERIC:
        return _array(data, order)[0].reshape(dimensions, order='F')
    if kind == CHAR:
        return _string(data, order)
    if kind == CELL and depth < 4:
        return _cells(data, order, dimensions, depth)
    raise _Damaged(f'a matrix has class {kind}')


def _string(data, order):
    kind, contents, _ = _element(data, order)
    if kind not in TEXTS or len(contents) > 1 << 16:
        raise _Damaged('a string has an unknown encoding or is very long')
    encoding = TEXTS[kind] + {'<': '-le', '>': '-be'}[order] if TEXTS[kind] == 'utf-16' else TEXTS[kind]
    return str(contents, encoding)


def _cells(data, order, dimensions, depth):
    count = math.prod(dimensions)
    if count > min(CELLS, len(data) // 8):
        raise _Damaged(f'{count} cells are announced in {len(data)} bytes')
    cells = []
    for _ in range(count):
        kind, contents, data = _element(data, order)
        if kind != MATRIX:
            raise _Damaged(f'a cell has type {kind}')
        cells.append(_matrix(contents, order, depth + 1) if len(contents) else '')
    return cells
