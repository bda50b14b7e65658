"""Every test sees eight CPU devices, no silent change of rank, and the library's own warnings as errors."""

import gc
import os
import pathlib

import quick_compiler

LONGEST = [  # files of tests, begun first so that no worker is left with one of them when the others are through
    'test_faults.py',
    'test_hosts.py',
    'test_runs.py',
    'test_readme.py',
    'test_driver.py',
    'test_cpu_kernels.py',
    'test_benchmark.py',
    'test_devices.py',
    'test_notebook.py',
    'test_binaries.py',
    'test_fuzz.py',
    'test_export.py',
    'test_folder_training.py',
    'test_tables.py',
]
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {quick_compiler.flags(devices=8)}'

import jax  # noqa: E402  (the flags count only if they are set first)
import pytest  # noqa: E402
from jax.experimental.compilation_cache import compilation_cache  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_configure(config):
    config.addinivalue_line('filterwarnings', 'error:::protojax')


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_collection_finish():
    gc.freeze()  # what all tests import need not be looked through again and again


@pytest.fixture(scope='module')
def compiled_once(tmp_path_factory):
    """What the tests of a file compile is kept until its end: for files that do the same run again and again."""
    values = {
        'jax_compilation_cache_dir': str(tmp_path_factory.mktemp('compiled')),
        'jax_persistent_cache_min_compile_time_secs': 0,
        'jax_persistent_cache_min_entry_size_bytes': -1,
    }
    before = {name: getattr(jax.config, name) for name in values}

    def configure(settings):
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # otherwise it stays what it was when the first program was compiled

    configure(values)
    yield
    configure(before)


@pytest.fixture
def x64():
    """Double precision for the length of one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def real_data():
    """A function that finds the folder of a real data set below PROTOJAX_TEST_DATA; without it the test is skipped."""

    def find(name):
        place = os.environ.get('PROTOJAX_TEST_DATA')
        if not place or not pathlib.Path(place, name).is_dir():
            pytest.skip(f'PROTOJAX_TEST_DATA names no folder with {name}/')
        return pathlib.Path(place, name)

    return find
