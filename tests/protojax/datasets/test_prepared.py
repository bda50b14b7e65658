"""Data are prepared once, completely or not at all, and again if they are corrupted or the source is another."""

import functools
import json
import os
import pathlib
import resource
import shutil
import signal

import numpy as np
import pytest
import tensorflow_datasets as tfds

from protojax.datasets import Splits, prepared, sources
from protojax.errors import DataError, Missing
from tests.helpers.forks import SERVER

FEATURES = {'items': tfds.features.Tensor(shape=(None, 2), dtype=np.float32)}
SYNTHETIC = Splits('synthetic numbers', True, None)


def records(folders):
    """Each file has the numbers of one class of its split."""
    splits = {}
    for file in sources.files(folders, '.txt'):
        if 'kill' in file.read_text():
            os.kill(os.getpid(), signal.SIGKILL)
        if 'bad' in file.read_text():
            raise DataError(f'{file} is bad')
        items = np.array(file.read_text().split(), np.float32).reshape(-1, 2)
        splits.setdefault(file.parent.name, []).append({'name': file.stem, 'items': items})
    return splits


PLAN = prepared.Plan('Numbers', 'numbers/plain/1.0.0', FEATURES, lambda source: [source], records)


def load(place, source=None, data='real', **options):
    directory = options.pop('data_dir', place / 'prepared')
    return prepared.load(
        options.pop('plan', PLAN), data=data, source=source, data_dir=directory, synthetic=lambda: SYNTHETIC, **options
    )


def write(folder, shift=0):
    for name in ('train/b', 'train/a', 'test/c'):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        count = 4 if name == 'train/a' else 2
        (folder / f'{name}.txt').write_text(' '.join(str(k + shift) for k in range(count)))
    return folder


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / 'source')


def assert_numbers(data, shift=0):
    assert data.title == 'Numbers' and not data.synthetic and data.validation is None
    assert data.train.names == ('a', 'b') and data.test.names == ('c',)
    assert data.train.counts.tolist() == [2, 1]
    np.testing.assert_array_equal(data.train.items[0], [[shift, 1 + shift], [2 + shift, 3 + shift]])
    np.testing.assert_array_equal(data.train.items[1], [[shift, 1 + shift], [0, 0]])  # padding


def test_prepared_data_import_no_module(source, tmp_path, monkeypatch):
    load(tmp_path, source)
    (tmp_path / 'malicious.py').write_text('raise SystemExit')
    monkeypatch.syspath_prepend(tmp_path)
    features = tmp_path / 'prepared/numbers/plain/1.0.0/features.json'
    kind = 'tensorflow_datasets.core.features.features_dict.FeaturesDict'
    nested = {'json': r'{"a": {"type": "malicious\u002eText", "content": {}}}'}  # JSON in JSON, with an escape
    features.write_text(json.dumps({'pythonClassName': kind, 'jsonFeature': nested}))
    with pytest.raises(DataError, match='corrupted .*malicious.Text'):
        load(tmp_path)


def test_prepared_data_have_the_features_of_their_plan(source, tmp_path):
    load(tmp_path, source)
    plan = PLAN._replace(features={'items': tfds.features.Tensor(shape=(None, 3), dtype=np.float32)})
    with pytest.raises(DataError, match='corrupted .*other features'):
        load(tmp_path, plan=plan)


def test_prepared_data_need_no_source(tmp_path, source):
    assert_numbers(load(tmp_path, source))
    shutil.rmtree(source)
    assert_numbers(load(tmp_path))
    assert_numbers(load(tmp_path, data='auto'))
    only = load(tmp_path, splits=('test',))
    assert only.train is None and only.test.names == ('c',)


def test_another_source_is_prepared_again(tmp_path, source):
    load(tmp_path, source)
    assert_numbers(load(tmp_path, write(tmp_path / 'other', shift=9)), shift=9)
    assert_numbers(load(tmp_path), shift=9)
    assert_numbers(load(tmp_path, source))


def test_a_bad_source_leaves_prepared_data_alone(tmp_path, source):
    load(tmp_path, source)
    bad = write(tmp_path / 'bad')
    (bad / 'test/c.txt').write_text('bad')
    with pytest.raises(DataError, match='bad/test/c.txt is bad'):
        load(tmp_path, bad)
    assert_numbers(load(tmp_path))


def test_synthetic_data_are_a_last_resort(tmp_path):
    assert load(tmp_path, data='auto') is SYNTHETIC and load(tmp_path, data='synthetic') is SYNTHETIC
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Missing, match='Numbers is not prepared .*`source`'):
        load(tmp_path)


@pytest.mark.parametrize(
    'options', [{'data': 'fake'}, {'data_dir': 'gs://bucket/data'}, {'data': 'auto', 'source': 'nowhere'}]
)
def test_unusable_options(tmp_path, options):
    name, value = list(options.items())[-1]
    with pytest.raises(DataError, match=f'`{name}={value}`'):
        load(tmp_path, **options)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    'name, harm', [('*train*', cut), ('dataset_info.json', cut), ('source.txt', pathlib.Path.unlink)]
)
def test_corrupted_data_are_prepared_again(tmp_path, source, name, harm):
    load(tmp_path, source)
    (file,) = (tmp_path / 'prepared/numbers/plain/1.0.0').glob(name)
    harm(file)
    if name != 'source.txt':
        with pytest.raises(DataError, match=r'1\.0\.0 is corrupted .*`source`'):  # rather than synthetic data
            load(tmp_path, data='auto')
    assert_numbers(load(tmp_path, source))
    assert_numbers(load(tmp_path))


def exit_codes(*arguments, processes=1):
    """Load in processes that run at the same time."""
    started = [SERVER.Process(target=load, args=arguments) for _ in range(processes)]
    for act in (SERVER.Process.start, SERVER.Process.join):
        for process in started:
            act(process)
    return [process.exitcode for process in started]


def test_a_killed_preparation_is_done_again(tmp_path, source):
    (source / 'test/c.txt').write_text('kill')
    assert exit_codes(tmp_path, source) == [-signal.SIGKILL]
    left = functools.partial((tmp_path / 'prepared').rglob, f'{prepared.TEMPORARY}*')
    assert list(left())
    with pytest.raises(Missing):
        load(tmp_path)
    assert_numbers(load(tmp_path, write(source)))
    assert not list(left())


def test_two_processes_prepare_at_once(tmp_path, source):
    assert exit_codes(tmp_path, source, processes=2) == [0, 0]
    assert_numbers(load(tmp_path))


def test_a_full_disk(tmp_path, source):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10000, before[1]))
    try:
        with pytest.raises(DataError, match='cannot prepare .*File too large.*`data_dir`'):
            load(tmp_path, source)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_numbers(load(tmp_path, source))
