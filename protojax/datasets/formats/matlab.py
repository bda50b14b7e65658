"""Reads numbers, strings and cell arrays from MATLAB's .mat files (version 5, which MATLAB writes with -v6 and -v7).

A file is a header of 128 bytes and one element per variable: type, length, contents, mostly compressed. A compressed
element is opened only as far as its name unless it is wanted.
"""

import math
import struct
import zlib
from collections.abc import Collection

import numpy as np

from protojax.datasets.formats import OBJECT, Budget, Contents, Damaged, Where, reading_format
from protojax.errors import DataError

VARIABLES = 1_000
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: 'i1', 2: 'u1', 3: 'i2', 4: 'u2', 5: 'i4', 6: 'u4', 7: 'f4', 9: 'f8', 12: 'i8', 13: 'u8'}
TEXTS = {1: 'latin1', 2: 'latin1', 4: 'utf-16', 16: 'utf-8', 17: 'utf-16'}
CELL, CHAR, NUMERIC = 1, 4, range(6, 16)
COMPLEX = 0x0800


def read_matlab(data: Contents, names: Collection[str], where: Where) -> dict:
    """Those of the named variables that the bytes of a file hold: arrays [rows, columns], strings, lists (cells)."""
    if bytes(data[:10]) == b'MATLAB 7.3' or bytes(data[1:4]) == b'HDF':
        raise DataError(f'{where} has MATLAB format 7.3 (HDF5); save it in MATLAB with -v7')
    with reading_format(where, 'is not a whole .mat file'):
        order = {b'IM': '<', b'MI': '>'}.get(bytes(data[126:128]))
        if order is None or bytes(data[:6]) != b'MATLAB':
            raise Damaged('it does not begin as one')
        return _Reader(order, Budget(len(data))).variables(memoryview(data)[128:], names)


def _inflate(data, size, *, whole):
    """The first `size` bytes of compressed data; where that is the whole, its checksum is compared."""
    stream = zlib.decompressobj()
    contents = stream.decompress(data, size)
    if len(contents) < size:
        raise Damaged(f'{size} bytes are announced, {len(contents)} are there')
    if whole and (stream.decompress(stream.unconsumed_tail, 1) or not stream.eof):
        raise Damaged('compressed data go on or end early')
    return memoryview(contents)


class _Reader:
    """The byte order of a file, and the memory that it may take."""

    def __init__(self, order, budget):
        self.order, self.budget = order, budget

    def variables(self, data, names):
        found = {}
        for _ in range(VARIABLES):
            if not len(data):
                break
            kind, contents, data = self.element(data, padded=False)
            head = contents
            if kind == COMPRESSED:
                kind, length = struct.unpack(self.order + 'II', _inflate(contents, 8, whole=False))
                head = _inflate(contents, 8 + min(length, 1024), whole=False)[8:]
            if kind != MATRIX or not len(head) or (name := self.header(head)[2]) not in names:
                continue
            if head is not contents:
                self.budget.spend(length)
                contents = _inflate(contents, 8 + length, whole=True)[8:]
            found[name] = self.matrix(contents, depth=0)
        return found

    def element(self, data, padded=True):
        """The element that begins here: type, contents and what follows."""
        kind, length = struct.unpack(self.order + 'II', data[:8])
        if kind >> 16:  # a small element: type, length and up to 4 bytes of contents in 8 bytes
            kind, length, start, end = kind & 0xFFFF, kind >> 16, 4, 8
            if length > 4:
                raise Damaged('a small element announces more than 4 bytes')
        else:
            start, end = 8, 8 + (-(-length // 8) * 8 if padded else length)
        if start + length > len(data):
            raise Damaged(f'{length} bytes are announced, {len(data) - start} are left')
        return kind, data[start : start + length], data[end:]

    def array(self, data):
        """A numeric element and what follows it."""
        kind, contents, rest = self.element(data)
        if kind not in NUMBERS:
            raise Damaged(f'numbers have type {kind}')
        return np.frombuffer(contents, self.order + NUMBERS[kind]), rest

    def header(self, data):
        """Flags with the class, dimensions, name of a matrix and what follows them."""
        flags, data = self.array(data)
        dimensions, data = self.array(data)
        _, name, data = self.element(data)
        if len(flags) < 1 or not 2 <= len(dimensions) <= 32 or dimensions.min() < 0:
            raise Damaged('a matrix has no class or dimensions')
        return int(flags[0]), tuple(map(int, dimensions)), str(name, 'latin1'), data

    def matrix(self, data, depth):
        """A matrix of numbers, a string (the rows of a character matrix are joined) or a list of cells."""
        flags, dimensions, _, data = self.header(data)
        kind = flags & 0xFF
        if flags & COMPLEX:
            raise Damaged('a matrix has complex numbers')
        if kind in NUMERIC:
            return self.array(data)[0].reshape(dimensions, order='F')
        if kind == CHAR:
            return self.string(data)
        if kind == CELL and depth < 4:
            return self.cells(data, dimensions, depth)
        raise Damaged(f'a matrix has class {kind}')

    def string(self, data):
        kind, contents, _ = self.element(data)
        if kind not in TEXTS:
            raise Damaged('a string has an unknown encoding')
        self.budget.spend(4 * len(contents))
        encoding = TEXTS[kind] + {'<': '-le', '>': '-be'}[self.order] if TEXTS[kind] == 'utf-16' else TEXTS[kind]
        return str(contents, encoding)

    def cells(self, data, dimensions, depth):
        cells = []
        for _ in range(math.prod(dimensions)):
            self.budget.spend(OBJECT)
            kind, contents, data = self.element(data)
            if kind != MATRIX:
                raise Damaged(f'a cell has type {kind}')
            cells.append(self.matrix(contents, depth + 1) if len(contents) else '')
        return cells
