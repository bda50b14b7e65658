"""Files of other programs: read rightly if whole, refused in one line if not, and never run or believed."""

import io
import os
import pickle
import struct
import zlib

import numpy as np
import pytest
import scipy.io

from experiments.fuzzing.seeds import (
    CACHE,
    LABELLED,
    TABLE,
    seed_element,
    seed_matrix,
    seed_python2_pickle,
    seed_torch7,
    seed_torch7_class,
)
from protojax.datasets.formats import pickle as pickles
from protojax.datasets.formats.matlab import read_matlab
from protojax.datasets.formats.npy import read_npy
from protojax.datasets.formats.pickle import read_pickle
from protojax.datasets.formats.torch7 import read_torch7
from protojax.datasets.formats.torch_legacy import read_torch_legacy
from protojax.datasets.sources.files import read_file
from protojax.errors import DataError

VARIABLES = {
    'features': np.arange(12.0).reshape(3, 4),
    'labels': np.array([[1], [2], [2], [1]], np.uint8),
    'names': np.array([['owl'], ['Dürer']], object),
    'unwanted': np.zeros((50, 50)),
}
WANTED = ('features', 'labels', 'names')


def same(a, b):
    """Whether two trees of plain values are equal, arrays in type and shape as well."""
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return a == b


def mat(variables, compressed=True):
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compressed)
    return file.getvalue()


@pytest.mark.parametrize('protocol', range(6))
@pytest.mark.parametrize('value', [CACHE, LABELLED], ids=['cache', 'labelled'])
def test_pickles_of_python3(protocol, value, tmp_path):
    path = tmp_path / 'x.pkl'
    path.write_bytes(pickle.dumps(value, protocol))
    assert same(read_pickle(read_file(path), path), value)


LARGE = np.arange(1 << 17, dtype=np.uint8)  # whose bytes are a long string


@pytest.mark.parametrize('protocol', range(3))
def test_pickle_of_python2(protocol):
    value = {**CACHE, 'few': np.array([3, -4], '<i8'), 'large': LARGE}
    data = seed_python2_pickle(value, protocol)
    assert same(read_pickle(data, 'x'), value)
    theirs = pickle.loads(data, encoding='latin1')  # Python's own machine agrees
    assert same(theirs, value)


@pytest.mark.parametrize('protocol', range(6))
def test_large_arrays_in_all_protocols(protocol):
    assert same(read_pickle(pickle.dumps({'large': LARGE}, protocol), 'x'), {'large': LARGE})


def test_pickled_arrays_are_views_and_not_copies():
    data = pickle.dumps({'a': np.zeros(1000)}, 4)
    assert np.shares_memory(read_pickle(data, 'x')['a'], np.frombuffer(data, np.uint8))


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_pickle_runs_nothing(protocol, tmp_path):
    victim = tmp_path / 'run'
    for evil in (
        Evil(os.system, f'touch {victim}'),
        Evil(open, str(victim), 'w'),
        Evil(eval, f'open({str(victim)!r}, "w")'),
    ):
        data = pickle.dumps({'image_data': evil}, protocol)
        with pytest.raises(DataError, match='refers to'):
            read_pickle(data, 'evil.pkl')
        assert not victim.exists()
    pickle.loads(data)  # Python's own machine falls for it: the test can fail
    assert victim.exists()


PROLOGUE = b'\x80\x02'
EMPTY_ARRAY = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
OBJECTS = b'cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R'


@pytest.mark.parametrize(
    'data',
    [
        b'',
        b'(dp0\n',  # protocol 0
        b'(dp0\nS1\nI1\ns.',
        b"S'a'\nI" + b'1' * 400 + b'\n.',
        PROLOGUE + b'cos\nsystem\nU\x02id\x85R.',
        PROLOGUE + b'ios\nsystem\n.',  # INST
        PROLOGUE + b'(cos\nsystem\no.',  # OBJ
        PROLOGUE + b'cnumpy\nndarray\n)\x81.',  # NEWOBJ
        PROLOGUE + b'cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.',  # calls ndarray(2147483647)
        PROLOGUE + b'Pid\n.',  # persistent id
        PROLOGUE + b'\x82\x01.',  # extension registry
        PROLOGUE + EMPTY_ARRAY + b'(K\x01J\xff\xff\xff\x7f\x85' + OBJECTS + b'\x89U\x01xtb.',  # array of objects
        PROLOGUE + EMPTY_ARRAY + b'}b.',
        PROLOGUE + b'}(' + b'K\x01u.',  # a key without a value
        PROLOGUE + b'})K\x01s.',  # a tuple as key
        PROLOGUE + b'}K\x01a.',  # appends to a dictionary
        PROLOGUE + b'B\xff\xff\xff\xff.',  # announces 4 GB of bytes
        PROLOGUE + b'\x8e' + b'\xff' * 8 + b'.',
        PROLOGUE + b'h\x07.',  # recalls what was never stored
        PROLOGUE + b'a.',
        PROLOGUE + b't.',
        PROLOGUE + b'K\x01.',
        PROLOGUE + b'c' + b'a' * 400,
        b'\x80\x04\x8c\x02os\x8c\x06system\x93.',
    ],
)
def test_odd_pickles_are_refused(data):
    with pytest.raises(DataError, match=r'^x\.pkl is .*; get it again$'):
        read_pickle(data, 'x.pkl')


def test_pickled_memo_takes_no_more_than_it_holds():
    assert read_pickle(PROLOGUE + b'}r\xff\xff\xff\x7f.', 'x') == {}  # Python's own machine would take 32 GB


def test_pickle_of_endless_objects_is_refused():
    with pytest.raises(DataError, match='too many objects'):
        read_pickle(PROLOGUE + b'}' * (pickles.INSTRUCTIONS + 1), 'x')


def test_pickled_strings_cannot_multiply():
    text = 'é' * 40_000  # stored once, encoded again and again
    once = b'c_codecs\nencode\n' + b'h\x00U\x06latin1\x86R'
    data = PROLOGUE + b'X' + struct.pack('<I', 80_000) + text.encode() + b'q\x00](' + once * 3000 + b'e.'
    with pytest.raises(DataError, match='far more memory'):
        read_pickle(data, 'x')


@pytest.mark.parametrize('order', ['<', '>'])
def test_torch_values(order, tmp_path):
    path = tmp_path / 'x.t7'
    path.write_bytes(seed_torch7(TABLE, order))
    table = read_torch7(read_file(path), path)
    np.testing.assert_array_equal(table.pop('features'), TABLE['features'])
    assert table == {'names': {1.0: 'owl', 2.0: 'tit'}, 'whole': True}


def test_torch_strides_and_references():
    tensor = np.arange(6, dtype='<f4').reshape(2, 3).T
    np.testing.assert_array_equal(read_torch7(seed_torch7(tensor), 'x'), tensor)
    twice = struct.pack('<iii', 3, 1, 2) + seed_torch7(1.0) + seed_torch7(TABLE['features'], counter=iter([2, 3]))
    twice += seed_torch7(2.0) + struct.pack('<ii', 4, 2)
    table = read_torch7(twice, 'x')
    assert table[1.0] is table[2.0]


def tensor(sizes, strides, offset=1, stored=6):
    body = struct.pack(f'<i{len(sizes)}q{len(strides)}qq', len(sizes), *sizes, *strides, offset)
    storage = struct.pack('<ii', 4, 2) + seed_torch7_class('torch.FloatStorage') + struct.pack('<q', stored) + bytes(24)
    return struct.pack('<ii', 4, 1) + seed_torch7_class('torch.FloatTensor') + body + storage


@pytest.mark.parametrize(
    'data',
    [
        b'',
        struct.pack('<i', 6),  # a function
        struct.pack('<ii', 4, 1) + seed_torch7_class('nn.Linear'),
        struct.pack('<ii', 4, 1) + seed_torch7_class('torch.FloatTensor'),
        tensor([2, 3], [3, 1], offset=2),  # leaves the storage by one
        tensor([2, 3], [3, 1], offset=0),
        tensor([2, 3], [-3, 1]),
        tensor([1 << 40], [0]),  # one element shown as a million million
        tensor([1 << 62, 4], [0, 0]),
        tensor([2, 3], [3, 1], stored=1 << 60),
        tensor([2, 3], [3, 1], stored=-1),
        struct.pack('<iii', 3, 1, 1) * 100,  # tables in tables
        struct.pack('<iii', 3, 1, 1) + struct.pack('<i', 0) * 2,  # nil as a key
        struct.pack('<iii', 3, 1, -1),
        struct.pack('<ii', 2, 1 << 30),
    ],
)
def test_odd_torch_files_are_refused(data):
    with pytest.raises(DataError, match=r'^x\.t7 is .*; get it again$'):
        read_torch7(data, 'x.t7')


@pytest.mark.parametrize('compressed', [True, False])
def test_matlab_variables(compressed, tmp_path):
    path = tmp_path / 'x.mat'
    path.write_bytes(mat(VARIABLES, compressed))
    found = read_matlab(read_file(path), WANTED, path)
    assert found.keys() == set(WANTED)
    assert found['names'] == ['owl', 'Dürer']
    np.testing.assert_array_equal(found['features'], VARIABLES['features'])
    np.testing.assert_array_equal(found['labels'], VARIABLES['labels'])


HEADER = mat({})[:128]
BIG = struct.pack('<II', 14, 1 << 31)  # announces 2 GB


@pytest.mark.parametrize(
    'data',
    [
        b'',
        b'MATLAB 5.0',
        HEADER + b'\x0e',
        HEADER + BIG,
        HEADER + seed_element(15, zlib.compress(BIG + bytes(2000)))[:-8],
        HEADER + seed_element(15, zlib.compress(BIG + bytes(1 << 22))),  # a small bomb with a large promise
        HEADER + seed_element(15, b'no zlib at all.'),
        HEADER + seed_matrix((2, 3), seed_element(9, bytes(40))),
        HEADER + seed_matrix((2, -3), seed_element(9, bytes(48))),
        HEADER + seed_matrix((1 << 30, 1 << 30), seed_element(9, bytes(48))),
        HEADER + seed_matrix((6,), seed_element(9, bytes(48))),
        HEADER + seed_matrix((2, 3), seed_element(14, bytes(48))),
        HEADER + seed_matrix((2, 3), b'', kind=3),  # an object
        HEADER + seed_matrix((1 << 20, 1 << 10), bytes(64), kind=1),  # cells that are not there
        HEADER + seed_matrix((1, 1), seed_element(9, bytes(8)), kind=1),  # a cell that is no matrix
    ],
)
def test_odd_matlab_files_are_refused(data):
    with pytest.raises(DataError, match=r'^x\.mat is .*; get it again$'):
        read_matlab(data, WANTED, 'x.mat')


def test_matlab_of_format_7_3_is_named():
    with pytest.raises(DataError, match='-v7'):
        read_matlab(b'MATLAB 7.3 MAT-file' + bytes(200), WANTED, 'x.mat')


@pytest.mark.parametrize(
    'read',
    [read_pickle, read_torch7, read_npy, read_torch_legacy, lambda data, where: read_matlab(data, WANTED, where)],
)
def test_empty_files(read):
    with pytest.raises(DataError, match='^empty is not a.*; get it again$'):
        read(b'', 'empty')
