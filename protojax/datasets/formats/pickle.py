"""Reads pickles of numbers, strings, lists, dictionaries and NumPy arrays, and runs nothing that stands in them.

A pickle is a program, and Python's own machine for it calls whatever the file names and allocates whatever it promises.
The machine here knows the opcodes of plain data only. Arrays are views of the bytes that were read, so that those of a
file of 900 MB are not in memory twice.
"""

import codecs
import pickle
import re
import struct
from typing import Any

from protojax.datasets.formats import Budget, Contents, Damaged, Where, reading_format
from protojax.datasets.formats.pickled_arrays import PickledArrays, PickledArrayText, UnbuiltArray

INSTRUCTIONS = 1_000_000  # the labels of 38,400 images need a third at most; a file of tiny objects could fill memory
LONG_TEXT = 1 << 16
LONG_LINE = 256  # bytes of a name or number
NEWLINE = re.compile(rb'\n')
LARGE_KEY = 1 << 60  # with numbers beyond it as keys, a file could choose their hashes


def read_pickle(data: Contents, where: Where) -> dict:
    """The dictionary pickled in the bytes of a file (all protocols, of Python 2 or 3); arrays are views of them."""
    with reading_format(where, 'is not a pickle of plain arrays'):
        value, _ = read_pickled_object(memoryview(data))
        if not isinstance(value, dict):
            raise Damaged('but of something else than a dictionary')
        return value


def read_pickled_object(data: memoryview, objects: type = PickledArrays) -> tuple[Any, int]:
    """The object at the start of a buffer, and where its pickle ends; `objects` says what names and calls stand for."""
    machine = _Machine(data, objects)
    return machine.run(), machine.at


class _Machine:
    """The state of a reading: position, stack (with the stacks below the open marks) and memo."""

    def __init__(self, data, objects):
        self.data, self.at, self.objects = data, 0, objects
        self.stack, self.below, self.memo = [], [], {}
        self.spend = Budget(len(data)).spend

    def run(self):
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
            return PickledArrayText(self.take(size))
        self.spend(4 * size)
        return str(self.take(size), encoding)

    def line(self, longest=LONG_LINE):
        """The bytes up to the end of a line."""
        if not (end := NEWLINE.search(self.data, self.at, self.at + longest)):
            raise Damaged('a line does not end')
        return self.take(end.end() - self.at)[:-1]

    def word(self):
        return str(self.line(), 'ascii')

    def integer(self):
        """A number of protocol 0, where 00 and 01 are truth values."""
        word = self.word().removesuffix('L')
        return word == '01' if word in ('00', '01') else int(word)

    def quoted(self):
        """A string of protocol 0 as Python 2 shows it, in quotes and with escapes."""
        line = self.line(len(self.data))
        if len(line) < 2 or line[0] not in b'\'"' or line[0] != line[-1]:
            raise Damaged('a string has no quotes')
        self.spend(len(line))
        value = codecs.escape_decode(line[1:-1])[0]
        return value if len(value) > LONG_TEXT else str(value, 'latin1')

    def unicode(self):
        """A string of protocol 0 in Unicode; one that is array data in disguise may be long."""
        line = self.line(len(self.data))
        self.spend(4 * len(line))
        return str(line, 'raw-unicode-escape')

    def mark(self):
        self.below.append(self.stack)
        self.stack = []

    def marked(self):
        """The items above the last mark, which is removed."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def remember(self, index):
        self.memo.update(self.dictionary([index, self.stack[-1]]))

    def recall(self, index):
        value = self.memo[index]
        return value.array if isinstance(value, UnbuiltArray) else value

    def pop2(self):
        second, first = self.stack.pop(), self.stack.pop()
        return first, second

    def extend(self, items):
        if not isinstance(self.stack[-1], list):
            raise Damaged('it appends to something else than a list')
        self.stack[-1].extend(items)

    def store(self, items):
        """Put [key, value, key, value, ...] into the dictionary on top."""
        if not isinstance(self.stack[-1], dict):
            raise Damaged('it stores items in something else than a dictionary')
        self.stack[-1].update(self.dictionary(items))

    def dictionary(self, items):
        """[key, value, key, value, ...] -> {key: value}."""
        for key in items[::2]:  # others can take for ever to hash
            if not isinstance(key, str) and not (isinstance(key, int) and abs(key) < LARGE_KEY):
                raise Damaged('a dictionary key is neither string nor number, or a huge one')
        return dict(zip(items[::2], items[1::2], strict=True))


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
    pickle.INT: lambda m: m.integer(),  # this and the next five are of protocol 0
    pickle.LONG: lambda m: m.integer(),
    pickle.FLOAT: lambda m: float(m.word()),
    pickle.STRING: lambda m: m.quoted(),
    pickle.UNICODE: lambda m: m.unicode(),
    pickle.GET: lambda m: m.recall(m.integer()),
    pickle.LIST: lambda m: m.marked(),
    pickle.DICT: lambda m: m.dictionary(m.marked()),
    pickle.EMPTY_LIST: lambda m: [],
    pickle.EMPTY_DICT: lambda m: {},
    pickle.EMPTY_TUPLE: lambda m: (),
    pickle.TUPLE: lambda m: tuple(m.marked()),
    pickle.TUPLE1: lambda m: (m.stack.pop(),),
    pickle.TUPLE2: lambda m: m.pop2(),
    pickle.TUPLE3: lambda m: (m.stack.pop(), m.stack.pop(), m.stack.pop())[::-1],
    pickle.BINGET: lambda m: m.recall(m.number(1)),
    pickle.LONG_BINGET: lambda m: m.recall(m.number(4)),
    pickle.GLOBAL: lambda m: m.objects.find_pickled(m.word(), m.word()),
    pickle.STACK_GLOBAL: lambda m: m.objects.find_pickled(*m.pop2()),
    pickle.REDUCE: lambda m: m.objects.call_pickled(*m.pop2(), m.spend),
    pickle.BUILD: lambda m: m.objects.build_pickled(*m.pop2(), m.spend),
    pickle.BINPERSID: lambda m: m.objects.outside_pickle(m.stack.pop()),
}

_DO = {  # opcodes that change what is there
    pickle.PROTO: lambda m: m.take(1),
    pickle.FRAME: lambda m: m.take(8),
    pickle.MARK: lambda m: m.mark(),
    pickle.PUT: lambda m: m.remember(m.integer()),
    pickle.BINPUT: lambda m: m.remember(m.number(1)),
    pickle.LONG_BINPUT: lambda m: m.remember(m.number(4)),
    pickle.MEMOIZE: lambda m: m.remember(len(m.memo)),
    pickle.APPEND: lambda m: m.extend([m.stack.pop()]),
    pickle.APPENDS: lambda m: m.extend(m.marked()),
    pickle.SETITEM: lambda m: m.store(m.pop2()),
    pickle.SETITEMS: lambda m: m.store(m.marked()),
}
