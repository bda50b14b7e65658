"""Every test sees eight CPU devices, no silent change of rank, and the library's own warnings as errors."""

import gc
import os
import pathlib
import tempfile

import quick_compiler

LONGEST = [  # files of tests, begun first so that no worker is left with one of them when the others are through
    'test_faults.py',
    'test_devices_and_hosts.py',
    'test_cpu_kernels.py',
    'test_runs.py',
    'test_driver.py',
    'test_readme.py',
    'test_benchmark.py',
    'test_lowering.py',
    'test_notebook.py',
    'test_training.py',
    'test_statistician.py',
    'test_tasks.py',
    'test_export.py',
    'test_binaries.py',
    'test_fuzz.py',
    'test_figures.py',
    'test_publish.py',
    'test_folder_training.py',
    'test_building.py',
    'test_photos.py',
    'test_tables.py',
]
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {quick_compiler.flags(devices=8)}'
os.environ['JAX_TRACEBACK_IN_LOCATIONS_LIMIT'] = '0'  # operations need not know their lines: less to lower
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:  # otherwise this is a worker, or whoever starts the tests has chosen
    COMPILED = tempfile.TemporaryDirectory(prefix='protojax-tests-')  # what one process compiles is there for all
    os.environ['JAX_COMPILATION_CACHE_DIR'] = COMPILED.name
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'

import jax  # noqa: E402  (all this counts only if it is set first)
import pytest  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_configure(config):
    config.addinivalue_line('filterwarnings', 'error:::protojax')


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_collection_finish():
    gc.freeze()  # what all tests import need not be looked through again and again


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
