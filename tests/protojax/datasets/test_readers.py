"""Readers of untrusted files: valid files load, no code runs, and every failure is one line that names the file."""

import io
import os
import pickle
import struct

import numpy as np
import pytest
import scipy.io

from protojax.datasets import readers
from protojax.errors import DataError
from tests.fuzz.seeds import torch_file

ARRAYS = {
    'image_data': np.arange(60, dtype=np.uint8).reshape(3, 4, 5),
    'columns': np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    'big': np.arange(3, dtype='>f4'),
    'empty': np.zeros((0, 2), np.int64),
    'scalar': np.int64(-5),
    'plain': [None, True, 1.5, 1 << 40, 'Dürer', {'a': (1, [])}],
}
PYTHON_2 = (  # {'x': np.array([1, 2], np.uint8)}, protocol 2
    b'\x80\x02}q\x00U\x01xq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85q\x04U\x01bq\x05'
    b'\x87q\x06Rq\x07(K\x01K\x02\x85q\x08cnumpy\ndtype\nq\tU\x02u1q\nK\x00K\x01\x87q\x0bRq\x0c(K\x03U\x01|q\rNNNJ\xff\xff'
    b'\xff\xffJ\xff\xff\xff\xffK\x00tq\x0eb\x89U\x02\x01\x02q\x0ftq\x10bs.'
)


def refused(read, path, data=None):
    """Expect an error of one line, for a file with these contents."""
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DataError) as error:
        read(path)
    assert str(path) in str(error.value) and str(error.value).isprintable()


def saved(save, *arguments, **options):
    save(file := io.BytesIO(), *arguments, **options)
    return file.getvalue()


def matlab(path):
    return readers.matlab(path, ('numbers', 'bytes', 'text', 'cells', 'missing'))


@pytest.mark.parametrize('protocol', range(6))
def test_pickled_arrays(protocol, tmp_path):
    (tmp_path / 'x.pkl').write_bytes(pickle.dumps(ARRAYS, protocol))
    found = readers.pickled(tmp_path / 'x.pkl')
    for name in ('image_data', 'columns', 'big', 'empty'):
        np.testing.assert_array_equal(found[name], ARRAYS[name], strict=name != 'big')
    assert found['scalar'] == -5 and found['plain'] == ARRAYS['plain']


def test_pickles_of_python_2(tmp_path):
    (tmp_path / 'x.pkl').write_bytes(PYTHON_2)
    assert readers.pickled(tmp_path / 'x.pkl')['x'].tolist() == [1, 2]


class Harmful:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


STATE = pickle.dumps((None, {'__defaults__': (1,)}), 2)[2:-1]  # of the function which makes types
HARMFUL = {
    'call': pickle.dumps(Harmful(os.system, ('touch harmed',))),
    'objects': pickle.dumps(np.array([{}], object)),
    'structured type': pickle.dumps(np.zeros(2, [('a', 'i4')])),
    'too few bytes': PYTHON_2.replace(b'K\x02\x85', b'K\x09\x85'),
    'persistent': b'\x80\x02K\x01Q.',
    'attributes of a function': b'\x80\x02cnumpy\ndtype\n' + STATE + b'b.',
    'large index': b'\x80\x02K\x01r\xff\xff\xff\x7fK\x02Q.',
    'cut': pickle.dumps(ARRAYS)[:-20],
    'text': b'no pickle',
}


@pytest.mark.parametrize('name', HARMFUL)
def test_a_pickle_runs_no_code(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(readers.pickled, tmp_path / 'x.pkl', HARMFUL[name])
    assert os.listdir(tmp_path) == ['x.pkl']


@pytest.mark.parametrize('order', '<>')
@pytest.mark.parametrize('array', [np.arange(24.0).reshape(2, 3, 4), np.arange(6, dtype=np.float32).reshape(3, 2).T])
def test_torch_tensors(array, order, tmp_path):
    (tmp_path / 'x.t7').write_bytes(torch_file(array, order))
    np.testing.assert_array_equal(readers.torch_tensor(tmp_path / 'x.t7'), array)


def placed(sizes, strides, offset):
    """A .t7 file with a storage of 0 .. 5; the offset counts from 1."""
    data = torch_file(np.arange(6.0))
    old, new = (struct.pack('<qqq', *values) for values in ((6, 1, 1), (*sizes, *strides, offset)))
    assert data.count(old) == 1
    return data.replace(old, new)


def test_a_tensor_may_be_a_part_of_its_storage(tmp_path):
    (tmp_path / 'x.t7').write_bytes(placed((2,), (3,), 2))
    assert readers.torch_tensor(tmp_path / 'x.t7').tolist() == [1, 4]


@pytest.mark.parametrize(
    'sizes, strides, offset',
    [((7,), (1,), 1), ((2,), (6,), 1), ((2,), (1,), 0), ((2,), (-1,), 6), ((1 << 40,), (0,), 1)],
)
def test_tensors_stay_inside_their_storage(sizes, strides, offset, tmp_path):
    refused(readers.torch_tensor, tmp_path / 'x.t7', placed(sizes, strides, offset))


@pytest.mark.parametrize(
    'data, read',
    [(saved(np.save, np.arange(50.0)), readers.array), (torch_file(np.arange(20.0)), readers.torch_tensor)],
)
def test_every_cut_file_is_refused(data, read, tmp_path):
    (tmp_path / 'x').write_bytes(data)
    read(tmp_path / 'x')
    for size in range(0, len(data) - 1, 11):
        refused(read, tmp_path / 'x', data[:size])


VARIABLES = {
    'numbers': np.arange(6.0).reshape(2, 3),
    'bytes': np.array([[1, 2]], np.uint8),
    'text': 'Dürer',
    'cells': np.array([['owl'], ['long-eared owl']], object),
    'other': {'of': 'another kind'},
}


def test_matlab_variables(tmp_path, monkeypatch):
    scipy.io.savemat(tmp_path / 'x.mat', VARIABLES, do_compression=True)
    (tmp_path / 'numpy.py').write_text('raise SystemExit("code of the current folder")')
    monkeypatch.chdir(tmp_path)
    found = matlab(tmp_path / 'x.mat')
    np.testing.assert_array_equal(found.pop('numbers'), VARIABLES['numbers'], strict=True)
    np.testing.assert_array_equal(found.pop('bytes'), VARIABLES['bytes'], strict=True)
    assert found.pop('text').tolist() == ['Dürer'] and found.pop('cells').tolist() == ['owl', 'long-eared owl']
    assert not found


CRASHING = saved(scipy.io.savemat, VARIABLES)
UNKNOWN_TYPE = CRASHING.replace(struct.pack('<I', 9), struct.pack('<I', 99), 1)  # of numbers; it crashes SciPy


@pytest.mark.parametrize(
    'data',
    [
        UNKNOWN_TYPE,
        CRASHING[:300],
        saved(scipy.io.savemat, {'cells': {'of': 'another kind'}}),
        b'MATLAB 7.3 MAT-file'.ljust(124) + b'\0\2IM' + bytes(500),
    ],
)
def test_unreadable_matlab_files(data, tmp_path):
    refused(matlab, tmp_path / 'x.mat', data)


def test_arrays_of_objects_and_archives_of_arrays_are_refused(tmp_path):
    refused(readers.array, tmp_path / 'x.npy', saved(np.save, np.array([{}], object), allow_pickle=True))
    refused(readers.array, tmp_path / 'x.npz', saved(np.savez, np.ones(3)))


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'x')
    for read in (readers.lines, readers.array, readers.pickled, readers.torch_tensor, matlab):
        refused(read, tmp_path / 'x')
