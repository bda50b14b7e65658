"""Files that were made to do harm, and files that were damaged on the way: what each once did, it does no more."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import scipy.io
from PIL import Image
from test_formats import HEADER, WANTED, mat, tensor

from experiments.fuzzing.seeds import seed_element, seed_matrix
from protojax.datasets import formats
from protojax.datasets.formats.matlab import read_matlab
from protojax.datasets.formats.npy import read_npy
from protojax.datasets.formats.pickle import read_pickle
from protojax.datasets.formats.pictures import read_picture
from protojax.datasets.formats.torch7 import read_torch7
from protojax.datasets.sources.cub_forms import read_cub_features
from protojax.datasets.sources.cub_lists import check_cub_label_list, read_split_list
from protojax.datasets.sources.files import open_files, read_file
from protojax.datasets.sources.miniimagenet_files import open_miniimagenet_files
from protojax.datasets.sources.miniimagenet_forms import _indices_by_label, classes_in_form_of_arrays
from protojax.errors import DataError

SLACK = 32 << 20  # bytes beside the budget, for what is not counted


def refused(read, *arguments, size=0):
    """Why a file is refused, in a moment and within the memory that a file of its size may take."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(DataError) as error:
            read(*arguments)
        assert tracemalloc.get_traced_memory()[1] < formats.FACTOR * size + formats.CONSTANT + SLACK
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5  # a second, without the accounts of memory
    assert str(error.value).isprintable()
    return str(error.value)


def contents(path):
    """All files of an archive or folder."""
    with open_files(path) as files:
        return {name: bytes(files.contents(name)) for name in files.names}


def splits(path):
    with open_miniimagenet_files(path) as (found, _):
        return {split: {name: own.images() for name, own in classes.items()} for split, classes in found.items()}


def png(size=(84, 84)):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).save(file, 'PNG')
    return file.getvalue()


def tarred(path, members, mode='w:gz', **options):
    with tarfile.open(path, mode, **options) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def zipped(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, 'w', method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# Damage that has a checksum to be found by


@pytest.mark.parametrize('pack', [tarred, zipped])
def test_a_flipped_bit_of_a_compressed_archive_is_noticed(tmp_path, pack):
    members = {'images/a.bin': np.random.default_rng(0).bytes(3000), 'val.csv': b'filename,label\n' * 50}
    path = pack(tmp_path / ('x.tar.gz' if pack is tarred else 'x.zip'), members)
    whole, noticed = path.read_bytes(), 0
    for bit in range(0, 8 * len(whole), 8 * len(whole) // 300):
        path.write_bytes(flipped(whole, bit))
        try:
            found = contents(path)
        except DataError:
            noticed += 1
        else:  # times and the like
            assert all(found[name] == members[name] for name in members.keys() & found.keys()), bit
            assert pack is zipped or found == members  # what is the name of a file in a zip has no checksum
    assert noticed > 270


def test_a_flipped_bit_of_a_png_is_noticed():
    whole = png((12, 12))
    for bit in range(8 * len(whole)):
        with pytest.raises(DataError):
            read_picture(flipped(whole, bit), 'x.png', size=(12, 12), mode='RGB', formats=('PNG',))


def test_a_flipped_bit_of_a_compressed_variable_is_noticed():
    features = np.random.default_rng(0).normal(size=(20, 20))
    whole, noticed = mat({'features': features}), 0
    bits = range(8 * 136, 8 * len(whole), 97)
    for bit in bits:
        try:
            found = read_matlab(flipped(whole, bit), WANTED, 'x.mat')
        except DataError:
            noticed += 1
        else:  # of another name
            assert not found or (found['features'] == features).all()
    assert noticed > 0.95 * len(bits)


# What takes much memory


def emoji():
    text = ('a' * 65_532).encode('utf-16-le') + '\N{OWL}'.encode('utf-16-le')
    cell = seed_matrix((1, 65_534), seed_element(4, text), kind=4, name=b'')
    cells = seed_matrix((1_000, 1), cell * 1_000, kind=1, name=b'names')
    return HEADER + seed_element(15, zlib.compress(cells))


def test_matlab_strings_of_wide_characters():
    data = emoji()
    assert 'far more memory' in refused(read_matlab, data, WANTED, 'x.mat', size=len(data))


def test_matlab_zeros():
    data = mat({'features': np.zeros((4_000, 4_000))})
    assert 'far more memory' in refused(read_matlab, data, WANTED, 'x.mat', size=len(data))


def test_matlab_empty_cells(monkeypatch):
    monkeypatch.setattr(formats, 'CONSTANT', 1 << 20)
    cells = seed_matrix((1 << 14, 1), seed_element(14, b'') * (1 << 14), kind=1, name=b'names')
    data = HEADER + seed_element(15, zlib.compress(cells))
    assert 'far more memory' in refused(read_matlab, data, WANTED, 'x.mat', size=len(data))


def test_zip_of_zeros(tmp_path):
    path = zipped(tmp_path / 'x.zip', {'val.csv': bytes(200 << 20)})
    assert 'far more memory' in refused(splits, path, size=path.stat().st_size)


def test_zip_member_that_holds_more_than_it_announces(tmp_path):
    path = zipped(tmp_path / 'x.zip', {'val.csv': bytes(200 << 20)})
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack('<I', 200 << 20), struct.pack('<I', 1000)))
    assert 'val.csv cannot be read' in refused(splits, path, size=path.stat().st_size)


def test_gzip_of_zeros(tmp_path):
    path = tmp_path / 'x.tar.gz'
    path.write_bytes(gzip.compress(bytes(200 << 20), 1))
    assert 'far more memory' in refused(splits, path, size=path.stat().st_size)


@pytest.mark.parametrize('pieces', [1, 2_000])
def test_sparse_tar(tmp_path, pieces):
    path, entry = tmp_path / 'x.tar', tarfile.TarInfo('val.csv')
    entry.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b'%011o\0' % (1 << 30), b'%011o\0' % 0  # one piece, at a gigabyte
    header[483:495] = b'%011o\0' % (1 << 30)
    header[148:156] = b'%06o\0 ' % (sum(header[:148]) + sum(header[156:]) + 8 * 32)
    path.write_bytes(bytes(header) * pieces + bytes(1024))
    assert 'sparse file' in refused(splits, path)


def test_sparse_tar_of_posix(tmp_path):
    sparse = {'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.realsize': str(1 << 30)}
    entry = tarfile.TarInfo('val.csv')
    entry.pax_headers = sparse
    (tmp_path / 'x.tar').write_bytes(entry.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
    assert 'sparse file' in refused(splits, tmp_path / 'x.tar')


def test_list_of_many_columns(tmp_path):
    header = ','.join(['filename', 'label', *map(str, range(6_000))])
    (tmp_path / 'train.csv').write_text(header + '\n' + 'a,b\n' * 5_000)
    assert "lists 'a', which is not" in refused(splits, tmp_path)


def test_list_that_names_one_image_many_times(tmp_path):
    (tmp_path / 'a.png').write_bytes(png())
    (tmp_path / 'train.csv').write_text('filename,label\n' + 'a.png,b\n' * 100_000)
    assert "lists 'a.png' twice" in refused(splits, tmp_path)


def test_many_images_that_are_tiny_in_their_archive(tmp_path):
    file = io.BytesIO()
    Image.new('1', (84, 84)).save(file, 'PNG')
    path = zipped(tmp_path / 'x.zip', {f'train/a/{n}.png': file.getvalue() for n in range(4_000)})
    assert 'more images of a class than fit' in refused(splits, path, size=path.stat().st_size)


def test_pickle_with_one_list_for_many_classes():
    indices = list(range(400))
    contents = {'image_data': np.zeros((400, 84, 84, 3), np.uint8), 'class_dict': dict.fromkeys(range(50_000), indices)}
    data = pickle.dumps(contents, 4)
    assert 'listed twice' in refused(lambda: classes_in_form_of_arrays(read_pickle(data, 'x'), 'x', 'train'))


def test_pickle_with_one_string_for_many_arrays():
    array = b'cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R'
    array += b'(K\x01J\x00\x00\x01\x00\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89h\x00tb'
    data = b'\x80\x02]X\x00\x00\x01\x00' + b'a' * (1 << 16) + b'q\x000(' + array * 5_000 + b'e.'
    assert 'far more memory' in refused(read_pickle, data.replace(b'q\x000', b'q\x00a'), 'x.pkl', size=len(data))


# What takes long


def test_tar_with_a_name_of_a_million_letters(tmp_path):
    path = tarred(tmp_path / 'x.tar', {'a/' * 500_000 + 'x': b''}, 'w', format=tarfile.GNU_FORMAT)
    assert 'a name takes 1000002 bytes' in refused(splits, path)


@pytest.mark.parametrize('pack', [zipped, tarred])
def test_archives_with_long_names(tmp_path, pack):
    name = 'a/' * 32_000 + 'x'
    path = pack(tmp_path / ('x.zip' if pack is zipped else 'x.tar.gz'), {name: b''})
    assert 'a very long name' in refused(splits, path)


@pytest.mark.parametrize(
    'description',
    [
        *(b'0' * 50_000, b'1' * 50_000, b'0' * 200_000, b'0 a=b\n', b'7 path=', b'-6 a=b\n', b' =\n' * 9_000),
        *(b'3 \n', b'4 =\n', b'5 ab\n'),  # without a key or without the sign
    ],
)
def test_odd_descriptions_in_a_tar(tmp_path, description):
    entry = tarfile.TarInfo('x')
    entry.type, entry.size = tarfile.XHDTYPE, len(description)
    padded = description + bytes(-len(description) % 512)
    (tmp_path / 'x.tar').write_bytes(entry.tobuf(tarfile.USTAR_FORMAT) + padded + bytes(1024))
    found = refused(splits, tmp_path / 'x.tar')
    assert 'a description of a member is damaged' in found or 'takes 200000 bytes' in found


def test_many_descriptions_in_a_small_tar(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, 'CONSTANT', 1 << 20)
    entry, description = tarfile.TarInfo('x'), b'5 a=\n' * 13_000
    entry.type, entry.size = tarfile.XHDTYPE, len(description)
    member = entry.tobuf(tarfile.USTAR_FORMAT) + description + bytes(-len(description) % 512)
    (tmp_path / 'x.tar.gz').write_bytes(gzip.compress(member * 4))
    assert 'far more memory' in refused(splits, tmp_path / 'x.tar.gz')


def test_zip_with_a_long_list_of_files(tmp_path):
    path = zipped(tmp_path / 'x.zip', {'val.csv': b''})
    data = bytearray(path.read_bytes())
    data[-10:-6] = struct.pack('<I', 17 << 20)  # what the end announces, before the place where the list begins
    path.write_bytes(data)
    assert 'the list of its files takes 17825792 bytes' in refused(splits, path)


def test_as_many_labels_as_images():
    began = time.process_time()
    found = _indices_by_label(np.arange(100_000)[::-1] // 2, 100_000, None, 'x', 'train')
    assert time.process_time() - began < 2
    assert len(found) == 50_000 and found['train 000'].tolist() == [99_998, 99_999]
    tiny = {'data': np.zeros((9, 1), np.uint8), 'labels': [1]}
    assert 'images of uint8 (1,)' in refused(classes_in_form_of_arrays, tiny, 'x', 'train')  # before the labels


@pytest.mark.parametrize('size', [-512, -1, -(1 << 40), 1 << 60])
def test_tar_with_an_impossible_size(tmp_path, size):
    entry = tarfile.TarInfo('val.csv')
    entry.size = size
    header = entry.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / 'x.tar').write_bytes(header * 200 + bytes(1024))
    assert 'a number in a header is damaged' in refused(splits, tmp_path / 'x.tar')


def test_pickle_with_keys_of_one_hash():
    keys = (k * (2**61 - 1) for k in range(60_000))
    data = b'\x80\x04}(' + b''.join(b'\x8a\x0a' + key.to_bytes(10, 'little') + b'N' for key in keys) + b'u.'
    assert 'a huge one' in refused(read_pickle, data, 'x.pkl')


def test_pickle_with_places_of_one_hash():
    data = b'}' + b''.join(b'p%d\n' % (k * (2**61 - 1)) for k in range(40_000)) + b'.'
    assert 'a huge one' in refused(read_pickle, data, 'x.pkl')


def test_a_folder_with_a_pipe(tmp_path):
    os.mkfifo(tmp_path / 'train.csv')
    assert 'it is no ordinary file' in refused(splits, tmp_path)


@pytest.mark.parametrize('name', ['x.zip', 'x.tar', 'x.pkl'])
def test_a_pipe_in_place_of_an_archive(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert 'it is no ordinary file' in refused(splits, tmp_path / name)


# What came as another exception


ODD_ARRAYS = [
    b"{'descr': {}, 'fortran_order': True, 'shape': (-1,), }",  # NumPy ends the process with SIGFPE here
    b"{'descr': 'V0', 'fortran_order': False, 'shape': (-1,), }",  # and here
    b"{'descr': '|S0', 'fortran_order': False, 'shape': (-1,), }",  # and here
    b"{'descr': 'V0', 'fortran_order': False, 'shape': (1, 1), }",
    b"{'descr': '|S0', 'fortran_order': False, 'shape': (1, 1), }",
    b"{'descr': '|O', 'fortran_order': False, 'shape': (0,), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, -1), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (True, 1), }",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': 1, }",
    b"{'descr': '<f4', 'fortran_order': False}",
    b'[1]',
    b'(' * 900,
    b'-' * 900 + b'1',
    b'__import__("os").getpid()',
]


@pytest.mark.parametrize('header', ODD_ARRAYS)
def test_odd_headers_of_arrays(header):
    data = b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header) + 1) + header + b'\n' + bytes(4)
    assert 'x.npy is not a whole .npy file' in refused(read_npy, data, 'x.npy')


@pytest.mark.parametrize(
    'array', [np.ones((3, 4)), np.ones((2, 3, 4), '>f2', order='F'), np.arange(3), np.ones((), 'u1')]
)
def test_arrays_of_numpy(array):
    file = io.BytesIO()
    np.save(file, array)
    found = read_npy(file.getvalue(), 'x.npy')
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    with pytest.raises(DataError):
        read_npy(file.getvalue() + b'x', 'x.npy')


def infinite(what):
    double = seed_element(9, struct.pack('<2d', np.inf, np.inf))
    flags, sizes = seed_element(6, struct.pack('<II', 6, 0)), seed_element(5, struct.pack('<ii', 1, 1))
    head = (double + sizes) if what == 'flags' else (flags + double)
    return HEADER + seed_element(14, head + seed_element(1, b'features') + seed_element(9, bytes(8)))


@pytest.mark.parametrize('what', ['flags', 'dimensions'])
def test_infinite_numbers_in_matlab_headers(what):
    assert 'x.mat is not a whole' in refused(read_matlab, infinite(what), WANTED, 'x.mat')


def test_torch_strides_that_do_not_matter():
    np.testing.assert_array_equal(read_torch7(tensor((1, 1), (2**62, 1)), 'x.t7'), np.zeros((1, 1)))


@pytest.mark.parametrize('damage', [lambda data: data, lambda data: data.replace(b'\x00\x00\x80\x00', b'\xff' * 4)])
def test_zip_members_of_other_methods(tmp_path, damage):
    path = zipped(tmp_path / 'x.zip', {'val.csv': b'filename,label\n' * 99}, zipfile.ZIP_LZMA)
    path.write_bytes(damage(path.read_bytes()))
    assert 'compressed otherwise than by deflate' in refused(splits, path)


def test_png_with_transparency_and_no_palette(tmp_path):
    file = io.BytesIO()
    Image.new('P', (84, 84)).save(file, 'PNG', transparency=b'\x00\x80')
    data = file.getvalue()
    start = data.index(b'PLTE') - 4
    end = start + 12 + struct.unpack('>I', data[start : start + 4])[0]
    (tmp_path / 'train' / 'a').mkdir(parents=True)
    (tmp_path / 'train' / 'a' / 'x.png').write_bytes(data[:start] + data[end:])
    assert 'x.png is not a whole JPEG or PNG image' in refused(splits, tmp_path)


def test_a_line_of_many_digits(tmp_path):
    (tmp_path / 'testids.txt').write_text('9' * 5_000)
    assert "'99" in refused(read_split_list, tmp_path, 'test', ['a', 'b'])


def test_anything_else_that_goes_wrong(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr('protojax.datasets.formats.torch7._Reader.object', fail)
    assert refused(read_torch7, b'', 'x.t7') == 'x.t7 is not a whole .t7 file (MemoryError); get it again'


# Files that change while they are used


def test_files_that_are_cut_after_they_were_opened(tmp_path):
    cache = {'image_data': np.ones((500, 84, 84, 3), np.uint8), 'class_dict': {'a': list(range(500))}}
    path = tmp_path / 'mini-imagenet-cache-val.pkl'
    path.write_bytes(pickle.dumps(cache, 4))
    np.save(tmp_path / 'features.npy', np.ones((2_000, 1_000), np.float32))
    features = read_cub_features(tmp_path / 'features.npy')
    os.truncate(tmp_path / 'features.npy', 1_000)
    with open_miniimagenet_files(path) as (found, _):
        os.truncate(path, 1_000)  # a mapped file would end this process with SIGBUS now
        assert found['validation']['a'].images().all() and features.all()


# Smaller matters


@pytest.mark.parametrize('labels', [[1.5, 1.0], [1.0, np.nan], [1.0, np.inf]])
def test_labels_that_are_no_whole_numbers(labels):
    assert 'not all whole numbers from 1 to 2' in refused(check_cub_label_list, np.array(labels), 2, 'x.mat')


def test_complex_numbers():
    file = io.BytesIO()
    scipy.io.savemat(file, {'features': np.array([[1 + 2j]])})
    assert 'complex numbers' in refused(read_matlab, file.getvalue(), WANTED, 'x.mat')


def test_control_characters_of_foreign_names(tmp_path):
    (tmp_path / 'train.csv').write_text('filename,label\n\x1b[2J\x07.png,a\n')
    assert r"lists '\x1b[2J\x07.png'" in refused(splits, tmp_path)
    path = zipped(tmp_path / 'x.zip', {'../\x1b[2J': b''})
    assert r'\x1b[2J points outside' in refused(splits, path)


@pytest.mark.parametrize('form', ['x', 'x.zip', 'x.tar.gz'])
def test_control_characters_in_the_name_of_a_damaged_image(tmp_path, form):
    name, path = 'train/a/\x1b[2J\x07.png', tmp_path / form
    if form == 'x':
        (path / name).parent.mkdir(parents=True)
        (path / name).write_bytes(b'no image')
    else:
        (zipped if form == 'x.zip' else tarred)(path, {name: b'no image'})
    assert refused(splits, path).startswith(rf'{path}/train/a/\x1b[2J\x07.png is not a whole JPEG or PNG image')


def test_missing_files(tmp_path):
    assert 'No such file' in refused(read_file, tmp_path / 'nowhere')
