"""Read untrusted files: no code in them is executed, and every failure is a one-line DataError that names the file."""

import contextlib
import math
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from protojax import errors, files

NUMERIC = 'biuf'  # kinds of NumPy types that a file may contain
MATLAB = """
import sys, numpy, scipy.io
_, path, arrays, *names = sys.argv
found = {name: value for name, value in scipy.io.loadmat(path, variable_names=names).items() if name in names}
for name, value in found.items():
    if value.dtype == object:
        found[name] = [str(cell.item()) for cell in value.flat]
numpy.savez(arrays, **found)
"""
TORCH, ELEMENTS = 4, {
    'Byte': 'u1', 'Char': 'i1', 'Short': 'i2', 'Int': 'i4', 'Long': 'i8', 'Half': 'f2', 'Float': 'f4', 'Double': 'f8',
}  # fmt: skip


@contextlib.contextmanager
def attempt(path: str | os.PathLike, problem: str) -> Iterator[None]:
    """Turn any failure inside into DataError('<path> <problem> (<reason>); download it again')."""
    try:
        yield
    except errors.DataError:
        raise
    except Exception as error:  # corrupted files raise exceptions of many types
        raise errors.DataError(f'{path} {problem} ({errors.first_line(error)}); download it again') from error


def lines(path: pathlib.Path) -> list[str]:
    """Return the lines of a UTF-8 text file that are not empty, without surrounding spaces and byte order mark."""
    with attempt(path, 'is not a text file'), files.open_file(path) as file:
        return [line.strip() for line in file.read().decode('utf-8-sig').splitlines() if line.strip()]


def array(path: pathlib.Path) -> np.ndarray:
    """Return the numeric array in a .npy file."""
    with attempt(path, 'is not a complete .npy file of numbers'), files.open_file(path) as file:
        found = np.load(file, allow_pickle=False)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in NUMERIC:
            raise ValueError('expected an array of numbers')
        return found


def matlab(path: pathlib.Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the named variables of a .mat file (format 7 or older), as far as it has them; cells of text as strings.

    SciPy reads them in a separate process, because corrupted files crash it.
    """
    with attempt(path, 'is not a complete .mat file'), tempfile.TemporaryDirectory() as place:
        files.open_file(path).close()
        arrays = os.path.join(place, 'arrays.npz')
        command = [sys.executable, '-P', '-c', MATLAB, path, arrays, *names]  # -P: no modules of the current folder
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            raise ValueError((ended.stderr.splitlines() or [f'SciPy ended with code {ended.returncode}'])[-1])
        with np.load(arrays, allow_pickle=False) as found:
            return dict(found)


def pickled(path: pathlib.Path) -> Any:
    """Return the arrays, dicts, lists, numbers and strings in a pickle (all protocols, of Python 2 or 3)."""
    with attempt(path, 'is not a pickle of plain arrays'), files.open_file(path) as file:
        return _ArrayUnpickler(file, encoding='latin1').load()


class _ArrayUnpickler(pickle._Unpickler):
    """Build plain values and numeric arrays only.

    The few functions that pickles of arrays refer to are replaced by methods, because NumPy's functions would accept
    types that contain Python objects. Attributes that a pickle assigns to the methods have no effect. This is the
    unpickler in Python, because the one in C allocates as much memory as a corrupted index demands.
    """

    def find_class(self, module, name):
        arrays = {'ndarray': None, '_reconstruct': self.array, '_frombuffer': self.frombuffer, 'dtype': self.dtype}
        known = {**arrays, 'scalar': self.scalar, 'encode': self.encode, 'bytes': self.encode}
        if name not in known:
            raise pickle.UnpicklingError(f'it refers to {module}.{name}')
        return known[name]

    def array(self, *_):
        return np.ndarray.__new__(_Array, 0)

    def dtype(self, code, *_):
        return _NumericType(code)

    def encode(self, text='', *_):  # bytes that Python 3 stores as text for Python 2
        return text.encode('latin1')

    def scalar(self, dtype, data):
        return np.frombuffer(_bytes(data), dtype.numpy)[0].item()

    def frombuffer(self, data, dtype, shape, order):
        return np.frombuffer(data, dtype.numpy).reshape(shape, order=order)


class _NumericType:
    """A NumPy type of numbers, whose state can only set the byte order."""

    __slots__ = ('numpy',)

    def __init__(self, code):
        self.numpy = np.dtype(str(code))
        if self.numpy.kind not in NUMERIC:
            raise pickle.UnpicklingError(f'it contains an array of type {code}')

    def __setstate__(self, state):
        self.numpy = self.numpy.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array whose shape, type and contents follow as its state; NumPy compares their sizes."""

    def __setstate__(self, state):
        _, shape, dtype, fortran, data = state
        super().__setstate__((1, shape, dtype.numpy, fortran, _bytes(data)))


def _bytes(data: str | bytes) -> bytes:
    return data.encode('latin1') if isinstance(data, str) else data  # a str is a byte string of Python 2


def torch_tensor(path: pathlib.Path) -> np.ndarray:
    """Return the tensor in a binary .t7 file of Lua Torch."""
    with attempt(path, 'is not a complete .t7 file of one tensor'), files.open_file(path) as file:
        return _TorchFile(file.read()).tensor()


class _TorchFile:
    """Bytes of a .t7 file and the current position; the first number reveals the byte order."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        self.order = '<' if data[:1] == bytes([TORCH]) else '>'

    def numbers(self, code: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.data, self.order + code, count, self.at)  # ValueError beyond the end
        self.at += found.nbytes
        return found

    def integer(self, code: str = 'i4') -> int:
        return int(self.numbers(code, 1)[0])

    def string(self) -> str:
        return str(self.numbers('u1', self.integer()).tobytes(), 'latin1')

    def element(self, kind: str) -> str:
        """Read the head of an object ('Tensor' or 'Storage') and return the type of its elements."""
        if self.integer() != TORCH:
            raise ValueError(f'it does not contain a {kind}')
        self.integer()  # index of the object
        name = self.string()
        name = self.string() if name.startswith('V ') else name  # files without a version begin with the class
        return ELEMENTS[name.removeprefix('torch.').removesuffix(kind)]

    def tensor(self) -> np.ndarray:
        code, dimensions = self.element('Tensor'), self.integer()
        sizes, strides = self.numbers('i8', dimensions), self.numbers('i8', dimensions)  # strides in elements
        offset = self.integer('i8') - 1
        if self.element('Storage') != code:
            raise ValueError('tensor and storage have different types')
        storage, total = self.numbers(code, self.integer('i8')), math.prod(sizes.tolist())
        if min((*sizes, *strides, offset)) < 0 or total > len(storage):
            raise ValueError(f'{total} elements do not fit a storage of {len(storage)}')
        return storage[offset + np.tensordot(strides, np.indices(sizes.tolist()), 1)]  # IndexError beyond the end
