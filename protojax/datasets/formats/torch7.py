"""Reads Torch's binary .t7 files: numbers, strings, booleans, tables, storages and tensors, and nothing that runs.

A file is one object: a 4-byte type, then its contents. Tables and tensors carry an index, by which a later place in the
file can refer to them. Numbers have the byte order of the machine that wrote them; the first type tells which.
"""

import struct

import numpy as np

from protojax.datasets.formats import OBJECT, Budget, Contents, Damaged, Where, reading_format
from protojax.datasets.formats.strided import strided_view

OBJECTS = 1_000_000
DEPTH = 32
NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN = range(6)
ELEMENTS = {
    'Byte': 'u1', 'Char': 'i1', 'Short': 'i2', 'Int': 'i4', 'Long': 'i8', 'Half': 'f2', 'Float': 'f4', 'Double': 'f8',
}  # fmt: skip


def read_torch7(data: Contents, where: Where) -> float | str | bool | dict | np.ndarray:
    """The object in the bytes of a file: a float, str, bool, dict (tables) or read-only array (tensors, storages)."""
    with reading_format(where, 'is not a whole .t7 file'):
        return _Reader(data, '<' if bytes(data[:1]) != b'\0' else '>').object(0)


class _Reader:
    """The state of a reading: position and the indexed objects so far."""

    def __init__(self, data, order):
        self.data, self.at, self.order = data, 0, order
        self.objects, self.count = {}, 0
        self.spend = Budget(len(data)).spend

    def take(self, size):
        if not 0 <= size <= len(self.data) - self.at:
            raise Damaged(f'{size} bytes are announced, {len(self.data) - self.at} are left')
        self.at += size
        return memoryview(self.data)[self.at - size : self.at]

    def number(self, code):
        return struct.unpack(self.order + code, self.take(struct.calcsize(code)))[0]

    def array(self, code, length):
        dtype = np.dtype(self.order + code)
        return np.frombuffer(self.take(length * dtype.itemsize), dtype)

    def string(self):
        text = self.take(self.number('i'))
        self.spend(len(text))
        return str(text, 'latin1')

    def object(self, depth):
        """The object that begins here."""
        self.spend(OBJECT)
        self.count += 1
        if depth > DEPTH or self.count > OBJECTS:
            raise Damaged('it is nested too deep or holds too many objects')
        kind = self.number('i')
        if kind in (TABLE, TORCH):
            return self.indexed(kind, depth)
        if kind == STRING:
            return self.string()
        if kind == NUMBER:
            return self.number('d')
        if kind == BOOLEAN:
            return self.number('i') == 1
        if kind != NIL:
            raise Damaged(f'it holds an object of type {kind}')
        return None

    def indexed(self, kind, depth):
        """A table or torch object, or the earlier one that an index refers to."""
        index = self.number('i')
        if index in self.objects:
            return self.objects[index]
        value = self.table(depth) if kind == TABLE else self.torch(depth)
        self.objects[index] = value  # only now: nothing holds itself
        return value

    def table(self, depth):
        table = {}
        for _ in range(self.number('I')):
            key = self.object(depth + 1)
            if not isinstance(key, float | str | bool):
                raise Damaged('a table has a key that is neither number nor string')
            table[key] = self.object(depth + 1)
        return table

    def torch(self, depth):
        name = self.string()
        name = self.string() if name.startswith('V ') else name  # files without a version begin with the class
        element, kind = name.removeprefix('torch.').removesuffix('Tensor'), 'Tensor'
        if element == name.removeprefix('torch.'):
            element, kind = element.removesuffix('Storage'), 'Storage'
        if name != f'torch.{element}{kind}' or element not in ELEMENTS:
            raise Damaged(f'it holds an object of class {name[:40]!r}')
        if kind == 'Storage':
            return self.array(ELEMENTS[element], self.number('q'))
        return self.tensor(ELEMENTS[element], depth)

    def tensor(self, code, depth):
        """Sizes, strides (in elements), offset (from 1) and the storage that they are a view of."""
        dimensions = self.number('i')
        if not 0 <= dimensions <= 16:
            raise Damaged(f'a tensor has {dimensions} dimensions')
        sizes, strides = (tuple(map(int, self.array('i8', dimensions))) for _ in range(2))
        offset, storage = self.number('q') - 1, self.object(depth + 1)
        if storage is None or dimensions == 0:
            return np.zeros(0, code)
        if not isinstance(storage, np.ndarray) or storage.ndim != 1 or storage.dtype.str[1:] != code:
            raise Damaged('a tensor has no storage of its own type')
        return strided_view(storage, offset, sizes, strides)
