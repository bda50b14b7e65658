"""Reads pickles of numbers, strings, lists, dictionaries and NumPy arrays, and runs nothing that stands in them.

A pickle is a program, and Python's own machine for it calls whatever the file names and allocates whatever it promises.
The machine here knows the opcodes of plain data only. Arrays are views of the mapped file, so that a file of 900 MB
costs no memory of its own, and no length is believed before it is compared with what is left of the file.
"""

import mmap
import pickle
import struct
from pathlib import Path

from protojax.datasets.formats import Damaged, pickled_arrays
from protojax.datasets.formats.pickled_arrays import Text, Unbuilt
from protojax.errors import DataError

INSTRUCTIONS = 1_000_000  # the labels of 38,400 images need a third at most; a file of tiny objects could fill memory
LONG_TEXT = 1 << 16
LONG_LINE = 256
DAMAGE = (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error)  # besides Damaged


def load(path):
    """The dictionary pickled in a file (protocols 2 to 5, of Python 2 or 3); arrays are read-only views of the file."""
    try:
        with Path(path).open('rb') as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise DataError(f'{path} cannot be read ({error}); get it again') from error
    return loads(data, path)


def loads(data, where):
    """The dictionary pickled in a buffer; where names it in errors."""
    try:
        value, _ = read(memoryview(data))
    except Damaged as error:
        raise DataError(f'{where} is not a pickle of plain arrays: {error}; get it again') from error
    except DAMAGE as error:
        raise DataError(f'{where} is a damaged pickle; get it again') from error
    if not isinstance(value, dict):
        raise DataError(f'{where} is a pickle, but not of a dictionary; get it again')
    return value


def read(data, objects=pickled_arrays):
    """The object at the start of a buffer, and where its pickle ends; `objects` says what names and calls stand for."""
    machine = _Machine(data, objects)
    return machine.run(), machine.at


class _Machine:
    """The state of a reading: position, stack (with the stacks below the open marks) and memo."""

    def __init__(self, data, objects):
        self.data, self.at, self.objects = data, 0, objects
        self.stack, self.below, self.memo = [], [], {}
        self.spare = len(data) + LONG_TEXT  # bytes that strings may still take

    def run(self):
        if self.data[:1] != pickle.PROTO:
            raise Damaged('it begins otherwise, as those of protocols 0 and 1 do')
        for _ in range(INSTRUCTIONS):
            opcode = bytes(self.take(1))
            if opcode == pickle.STOP:
                return self.stack.pop()
            if opcode in _PUSH:
                value = _PUSH[opcode](self)
                self.stack.append(value)  # the stack may be another one by now
            elif opcode in _DO:
                _DO[opcode](self)
            else:
                raise Damaged(f'it uses opcode {opcode!r}')
        raise Damaged('it holds too many objects')

    def take(self, size):
        """The next bytes of the file, not copied."""
        if size > len(self.data) - self.at:
            raise Damaged('it ends early')
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size, signed=False):
        return int.from_bytes(self.take(size), 'little', signed=signed)

    def string(self, size, encoding='utf-8'):
        if size > LONG_TEXT:
            return Text(self.take(size))
        text = str(self.take(size), encoding)
        self.spend(len(text) if text.isascii() else 4 * len(text))
        return text

    def line(self):
        length = bytes(self.data[self.at : self.at + LONG_LINE]).index(b'\n')
        return str(self.take(length + 1)[:-1], 'ascii')

    def spend(self, size):
        self.spare -= size
        if self.spare < 0:
            raise Damaged('its strings grow larger than the file')

    def mark(self):
        self.below.append(self.stack)
        self.stack = []

    def marked(self):
        """The items above the last mark, which is removed."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def remember(self, index):
        self.memo[index] = self.stack[-1]

    def recall(self, index):
        value = self.memo[index]
        return value.array if isinstance(value, Unbuilt) else value

    def pop2(self):
        second, first = self.stack.pop(), self.stack.pop()
        return first, second

    def extend(self, items):
        if not isinstance(self.stack[-1], list):
            raise Damaged('it appends to something else than a list')
        self.stack[-1].extend(items)

    def store(self, items):
        """Put [key, value, key, value, ...] into the dictionary on top."""
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise Damaged('a dictionary is incomplete')
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):  # nested tuples can take for ever to hash
                raise Damaged('a dictionary key is neither string nor number')
            self.stack[-1][key] = value


_PUSH = {  # opcodes that push a value
    pickle.NONE: lambda m: None,
    pickle.NEWTRUE: lambda m: True,
    pickle.NEWFALSE: lambda m: False,
    pickle.BININT: lambda m: m.number(4, signed=True),
    pickle.BININT1: lambda m: m.number(1),
    pickle.BININT2: lambda m: m.number(2),
    pickle.LONG1: lambda m: m.number(m.number(1), signed=True),
    pickle.BINFLOAT: lambda m: struct.unpack('>d', m.take(8))[0],
    pickle.SHORT_BINSTRING: lambda m: m.string(m.number(1), 'latin1'),  # a str of Python 2
    pickle.BINSTRING: lambda m: m.take(m.number(4)),
    pickle.SHORT_BINBYTES: lambda m: m.take(m.number(1)),
    pickle.BINBYTES: lambda m: m.take(m.number(4)),
    pickle.BINBYTES8: lambda m: m.take(m.number(8)),
    pickle.BYTEARRAY8: lambda m: m.take(m.number(8)),
    pickle.SHORT_BINUNICODE: lambda m: m.string(m.number(1)),
    pickle.BINUNICODE: lambda m: m.string(m.number(4)),
    pickle.BINUNICODE8: lambda m: m.string(m.number(8)),
    pickle.EMPTY_LIST: lambda m: [],
    pickle.EMPTY_DICT: lambda m: {},
    pickle.EMPTY_TUPLE: lambda m: (),
    pickle.TUPLE: lambda m: tuple(m.marked()),
    pickle.TUPLE1: lambda m: (m.stack.pop(),),
    pickle.TUPLE2: lambda m: m.pop2(),
    pickle.TUPLE3: lambda m: (m.stack.pop(), m.stack.pop(), m.stack.pop())[::-1],
    pickle.BINGET: lambda m: m.recall(m.number(1)),
    pickle.LONG_BINGET: lambda m: m.recall(m.number(4)),
    pickle.GLOBAL: lambda m: m.objects.find(m.line(), m.line()),
    pickle.STACK_GLOBAL: lambda m: m.objects.find(*m.pop2()),
    pickle.REDUCE: lambda m: m.objects.call(*m.pop2(), m.spend),
    pickle.BUILD: lambda m: m.objects.build(*m.pop2()),
    pickle.BINPERSID: lambda m: m.objects.outside(m.stack.pop()),
}

_DO = {  # opcodes that change what is there
    pickle.PROTO: lambda m: m.take(1),
    pickle.FRAME: lambda m: m.take(8),
    pickle.MARK: lambda m: m.mark(),
    pickle.BINPUT: lambda m: m.remember(m.number(1)),
    pickle.LONG_BINPUT: lambda m: m.remember(m.number(4)),
    pickle.MEMOIZE: lambda m: m.remember(len(m.memo)),
    pickle.APPEND: lambda m: m.extend([m.stack.pop()]),
    pickle.APPENDS: lambda m: m.extend(m.marked()),
    pickle.SETITEM: lambda m: m.store(m.pop2()),
    pickle.SETITEMS: lambda m: m.store(m.marked()),
}
