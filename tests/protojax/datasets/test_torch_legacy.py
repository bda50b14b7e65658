"""PyTorch's legacy .pth files: honest ones give their tensors, others one line."""

import pickle
import struct

import numpy as np
import pytest

from protojax.datasets.formats.torch_legacy import MAGIC, read_torch_legacy
from protojax.errors import DataError

ORDERED_DICT = b'ccollections\nOrderedDict\n)R'


def number(value):
    return b'J' + struct.pack('<i', value)


def text(value):
    return b'X' + struct.pack('<I', len(value)) + value.encode()


def numbers(values):
    return b'(' + b''.join(map(number, values)) + b't'


def tensor(storage, count, offset, sizes, strides, kind=b'FloatStorage'):
    storage = text('storage') + b'ctorch\n' + kind + b'\n' + text(storage) + text('cpu') + number(count)
    identity = b'(' + storage + b'NtQ'
    arguments = identity + number(offset) + numbers(sizes) + numbers(strides) + b'\x89' + ORDERED_DICT
    return b'ctorch._utils\n_rebuild_tensor_v2\n(' + arguments + b'tR'


def file(tensors, storages, magic=MAGIC, build=b''):
    """A .pth file of pickled tensors by name and the elements of each storage."""
    machine = {'protocol_version': 1001, 'little_endian': True, 'type_sizes': {'int': 4}}
    items = b''.join(text(name) + pickled for name, pickled in tensors.items())
    state = b'\x80\x02' + ORDERED_DICT + b'(' + items + b'u' + build + b'.'
    parts = [pickle.dumps(value, 2) for value in (magic, 1001, machine)] + [state, pickle.dumps(list(storages), 2)]
    data = [struct.pack('<q', len(elements)) + elements.tobytes() for elements in storages.values()]
    return b''.join(parts + data)


SIX = {'7': np.arange(6, dtype='<f4')}


def test_strides_and_offsets_are_honoured():
    tensors = {
        'rows': tensor('7', 6, 0, (2, 3), (3, 1)),
        'columns': tensor('7', 6, 0, (2, 3), (1, 2)),
        'last': tensor('7', 6, 4, (2,), (1,)),
        'number': tensor('8', 1, 0, (), (), b'LongStorage'),
    }
    found = read_torch_legacy(file(tensors, SIX | {'8': np.array([5])}), 'x.pth')
    np.testing.assert_array_equal(found['rows'], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(found['columns'], [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(found['last'], [4, 5])
    assert found['number'] == 5 and found['number'].dtype == np.int64


def test_versions_of_layers_are_passed_over():
    state = b'}' + text('_metadata') + ORDERED_DICT + b's'
    found = read_torch_legacy(file({'a': tensor('7', 6, 0, (6,), (1,))}, SIX, build=state + b'b'), 'x.pth')
    assert list(found) == ['a']


def test_agrees_with_torch(tmp_path):
    torch = pytest.importorskip('torch')
    state = {'a': torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), 'n': torch.tensor(3)}
    torch.save(state, tmp_path / 'x.pth', _use_new_zipfile_serialization=False)
    found = read_torch_legacy((tmp_path / 'x.pth').read_bytes(), 'x.pth')
    np.testing.assert_array_equal(found['a'], state['a'].numpy())
    assert found['a'].strides == tuple(4 * s for s in state['a'].stride())
    assert found['n'] == 3


HOSTILE = {
    'beyond the storage': file({'a': tensor('7', 6, 1, (6,), (1,))}, SIX),
    'a stride beyond it': file({'a': tensor('7', 6, 0, (2,), (6,))}, SIX),
    'before the storage': file({'a': tensor('7', 6, -1, (2,), (1,))}, SIX),
    'backwards': file({'a': tensor('7', 6, 5, (2,), (-1,))}, SIX),
    'one element as many': file({'a': tensor('7', 6, 0, (1 << 30,), (0,))}, SIX),
    'sizes without strides': file({'a': tensor('7', 6, 0, (2, 3), (3,))}, SIX),
    'a storage that is not there': file({'a': tensor('9', 6, 0, (6,), (1,))}, SIX),
    'another count': file({'a': tensor('7', 5, 0, (5,), (1,))}, SIX),
    'another kind of storage': file({'a': tensor('7', 6, 0, (6,), (1,), b'DoubleStorage')}, SIX),
    'a call': file({'a': b'cos\nsystem\n(' + text('true') + b'tR'}, SIX),
    'a number in place of a tensor': file({'a': number(1)}, SIX),
    'another magic number': file({'a': tensor('7', 6, 0, (6,), (1,))}, SIX, magic=1),
    'no tensors': file({}, {}),
    'a list of tensors': b''.join(pickle.dumps(value, 2) for value in (MAGIC, 1001, {'little_endian': True}, [], [])),
    'a zip archive': b'PK\x03\x04' + bytes(100),
    'nothing': b'',
}


@pytest.mark.parametrize('name', HOSTILE)
def test_a_hostile_file_gets_one_line(name):
    with pytest.raises(DataError, match=r'x\.pth .*get it again'):
        read_torch_legacy(HOSTILE[name], 'x.pth')


def test_a_cut_file_gets_one_line():
    whole = file({'a': tensor('7', 6, 0, (6,), (1,))}, SIX)
    read_torch_legacy(whole, 'x.pth')
    for size in range(0, len(whole), 7):
        with pytest.raises(DataError):
            read_torch_legacy(whole[:size], 'x.pth')
