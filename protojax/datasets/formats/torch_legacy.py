"""Reads the state of a network from PyTorch's legacy .pth files, without PyTorch and running nothing of the file.

Such a file is five pickles one after the other: a magic number, a version, the writer's machine, a dictionary of
tensors, and the names of their storages; then, of each storage, the number of its elements and their bytes. (Files by
PyTorch 1.6 and later are zip archives, which are not read here.)
"""

from typing import NamedTuple

import numpy as np

from protojax.datasets.formats import Contents, Damaged, Where, reading_format
from protojax.datasets.formats.pickle import read_pickled_object
from protojax.datasets.formats.strided import strided_view

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
ELEMENTS = {'FloatStorage': '<f4', 'LongStorage': '<i8'}


def read_torch_legacy(data: Contents, where: Where) -> dict[str, np.ndarray]:
    """The tensors in the bytes of a file, by name, as read-only views of them; where names it in errors."""
    with reading_format(where, 'is not a whole legacy .pth file of tensors'):
        data, at, values = memoryview(data), 0, []
        for _ in range(5):
            value, size = read_pickled_object(data[at:], _Objects)
            values.append(value)
            at += size
        magic, version, machine, state, names = values
        if (magic, version) != (MAGIC, VERSION) or machine['little_endian'] is not True or not isinstance(state, dict):
            raise Damaged('it begins otherwise')
        tensors = {name: value for name, value in state.items() if isinstance(value, _Tensor)}
        if not tensors or len(tensors) < len(state):
            raise Damaged('it holds other things than tensors')
        wanted = {tensor.storage.name: tensor.storage for tensor in tensors.values()}
        found = _legacy_storages(data[at:], names, wanted)
        return {name: strided_view(found[t.storage.name], t.offset, t.sizes, t.strides) for name, t in tensors.items()}


def _legacy_storages(data, names, wanted):
    """The elements of each storage, in the order of their names."""
    found, at = {}, 0
    for name in names:
        dtype = np.dtype(ELEMENTS[wanted[name].kind])
        count = int.from_bytes(data[at : at + 8], 'little', signed=True)
        end = at + 8 + count * dtype.itemsize
        if count != wanted[name].count or not 0 <= count <= (len(data) - at - 8) // dtype.itemsize:
            raise Damaged(f'a storage has {count} elements, not {wanted[name].count}, or fewer bytes are left')
        found[name], at = np.frombuffer(data[at + 8 : end], dtype), end
    return found


class _Function(NamedTuple):
    """A name that state dictionaries refer to; never called."""

    name: str


class _Storage(NamedTuple):
    name: str
    kind: str  # of ELEMENTS
    count: int


class _Tensor(NamedTuple):
    """A view of a storage that comes later in the file."""

    storage: _Storage
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class _Objects:
    """What the names and calls in a state dictionary stand for."""

    @staticmethod
    def find_pickled(module, name):
        known = {('collections', 'OrderedDict'), ('torch._utils', '_rebuild_tensor_v2')}
        known |= {('torch', storage) for storage in ELEMENTS}
        if (module, name) not in known:
            raise Damaged(f'it refers to {module}.{name}'[:80])
        return _Function(name)

    @staticmethod
    def call_pickled(function, arguments, spend):
        match function, arguments:
            case _Function('OrderedDict'), ():
                return {}
            case (
                _Function('_rebuild_tensor_v2'),
                (_Storage() as storage, int(offset), tuple(sizes), tuple(strides), bool(), dict()),
            ) if all(type(number) is int for number in (*sizes, *strides)):
                return _Tensor(storage, offset, sizes, strides)
        raise Damaged('it calls a function in an unknown way')

    @staticmethod
    def build_pickled(value, state, spend):
        """A dictionary's own attributes (versions of the layers) do not matter."""
        if not isinstance(value, dict) or not isinstance(state, dict):
            raise Damaged('it sets the state of an unknown object')
        return value

    @staticmethod
    def outside_pickle(identity):
        match identity:
            case 'storage', _Function(kind), str(name), str(), int(count), None if kind in ELEMENTS:
                return _Storage(name, kind, count)
        raise Damaged('it refers to something other than a storage')
