"""NumPy arrays in pickles: what NumPy's functions would make of the arguments there, with every size checked.

A pickled array is a call of `_reconstruct`, whose result is later given shape, type and bytes; its type is a call of
`dtype`, whose result is later given a byte order. None of these functions is called here: the calls are recognised.
"""

import codecs
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from protojax.datasets.formats import Damaged

CHUNK = 1 << 24
DTYPES = frozenset(('b1', 'i1', 'i2', 'i4', 'i8', 'u1', 'u2', 'u4', 'u8', 'f2', 'f4', 'f8'))


class _PickledGlobal(NamedTuple):
    """One of the few functions and classes that array pickles refer to; never called."""

    name: str


class PickledArrayText(NamedTuple):
    """A long string that is left in the file: array data in disguise."""

    utf8: memoryview


class _PickledDtype:
    """A type of array elements, whose byte order may still change."""

    def __init__(self, code):
        if code not in DTYPES:
            raise Damaged(f'an array has type {code[:20]!r}')
        self.code, self.order = code, '='


class UnbuiltArray:
    """An array whose contents are still to come."""

    array: np.ndarray | None = None


GLOBALS = {('numpy', 'ndarray'): 'ndarray', ('numpy', 'dtype'): 'dtype', ('_codecs', 'encode'): 'encode'}
for _core in ('numpy.core', 'numpy._core'):
    GLOBALS |= {(f'{_core}.multiarray', '_reconstruct'): 'reconstruct', (f'{_core}.multiarray', 'scalar'): 'scalar'}
    GLOBALS[f'{_core}.numeric', '_frombuffer'] = 'frombuffer'


class PickledArrays:
    """What a reader of pickles makes of references, calls and states where arrays are all that it builds."""

    @staticmethod
    def find_pickled(module: str, name: str) -> _PickledGlobal:
        """What stands for module.name, if that is one of the few."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise Damaged('it refers to something without a name')
        if (module, name) not in GLOBALS:
            raise Damaged(f'it refers to {module + "." + name:.80}'.replace('\n', ' '))
        return _PickledGlobal(GLOBALS[module, name])

    @staticmethod
    def call_pickled(function: Any, arguments: tuple, spend: Callable[[int], None]) -> Any:
        """What a call would give, for the few calls that array pickles make; spend(n) asks for n bytes of memory."""
        match function, arguments:
            case _PickledGlobal('reconstruct'), (_PickledGlobal('ndarray'), *_):
                return UnbuiltArray()
            case _PickledGlobal('dtype'), (str(code), *_):
                return _PickledDtype(code)
            case _PickledGlobal('encode'), (PickledArrayText(text) | str(text), 'latin1' | 'latin-1'):
                spend(len(text))
                return text.encode('latin1') if isinstance(text, str) else _pickled_latin1(text)
            case _PickledGlobal('scalar'), (_PickledDtype() as dtype, data):
                return _pickled_array(data, dtype, (), False, spend).item()
            case _PickledGlobal('frombuffer'), (data, _PickledDtype() as dtype, tuple(shape), 'C' | 'F' as order):
                return _pickled_array(data, dtype, shape, order == 'F', spend)
        raise Damaged('it calls a function in an unknown way')

    @staticmethod
    def build_pickled(value: Any, state: Any, spend: Callable[[int], None]) -> Any:
        """The value after its state is set: an array gets its contents, a type its byte order."""
        match value, state:
            case UnbuiltArray(array=None), (int(), tuple(shape), _PickledDtype() as dtype, fortran, data):
                value.array = _pickled_array(data, dtype, shape, fortran is True or fortran == 1, spend)
                return value.array
            case _PickledDtype(), (int(), '<' | '>' | '|' | '=' as order, None, None, None, *_):
                value.order = order
                return value
        raise Damaged('it sets the state of an unknown object')

    @staticmethod
    def outside_pickle(identity: Any) -> NoReturn:
        """What an identity stands for that is stored outside the pickle: nothing, for arrays."""
        raise Damaged('it refers to something outside of itself')


def _pickled_array(data, dtype, shape, fortran, spend):
    """An array on given bytes, which are as many as its shape says."""
    if isinstance(data, str):  # a string of Python 2
        spend(len(data))
        data = data.encode('latin1')
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise Damaged('an array has an impossible shape')
    return np.frombuffer(data, dtype.order + dtype.code).reshape(shape, order='F' if fortran else 'C')


def _pickled_latin1(utf8):
    """Bytes that Python 3 stored as text in protocol 2; in pieces, as a whole array of text needs much memory."""
    decoder, data = codecs.getincrementaldecoder('utf-8')(), bytearray()
    for start in range(0, len(utf8), CHUNK):
        data += decoder.decode(utf8[start : start + CHUNK]).encode('latin1')
    decoder.decode(b'', final=True)
    return data
