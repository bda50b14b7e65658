"""All tests see eight CPU devices, no silent promotion of ranks, and the library's warnings as errors."""

import fcntl
import gc
import importlib
import logging
import multiprocessing.forkserver
import os
import pathlib
import tempfile

import pytest

from tests.helpers import compiler

os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {compiler.flags(devices=8)}'
os.environ['JAX_NUMPY_RANK_PROMOTION'] = 'raise'
os.environ['JAX_TRACEBACK_IN_LOCATIONS_LIMIT'] = '0'  # lowering is faster without line numbers
if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:  # set by whoever starts the tests, or by the parent of this worker
    COMPILED = tempfile.TemporaryDirectory(prefix='protojax-tests-')  # programs compiled once for all processes
    os.environ['JAX_COMPILATION_CACHE_DIR'] = COMPILED.name
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.1'  # storing others costs more than it saves
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'


def pytest_configure(config):
    config.addinivalue_line('filterwarnings', 'error:::protojax')
    if hasattr(config, 'workerinput'):
        with open(__file__) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the first worker compiles the kernels for all
            importlib.import_module('protojax.encoders.cpu')._unavailable()


def pytest_unconfigure():
    multiprocessing.forkserver._forkserver._stop()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: 'slow' not in item.keywords)  # first, so that no worker ends with one of them


def pytest_collection_finish():
    gc.freeze()  # objects of imported modules need not be scanned again and again


@pytest.fixture(autouse=True)
def global_state():
    """Restore what commands set for their process: levels and handlers of logs, the cache of compiled programs."""
    import absl.logging
    import jax  # not by the process that only starts the workers

    names = ('enable_compilation_cache', 'compilation_cache_dir', 'persistent_cache_min_compile_time_secs')
    settings = {f'jax_{name}': getattr(jax.config, f'jax_{name}') for name in names}
    verbosity, level, handlers = absl.logging.get_verbosity(), logging.root.level, logging.root.handlers
    yield
    absl.logging.set_verbosity(verbosity)
    logging.root.handlers = handlers
    logging.root.setLevel(level)
    for name, value in settings.items():
        jax.config.update(name, value)


@pytest.fixture
def x64():
    """Double precision during one test."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(scope='session')
def finished_run(tmp_path_factory):
    """The workdir of a finished run of tests.helpers.tiny on one device, for tests that read or copy it."""
    from tests.helpers import tiny

    workdir = tmp_path_factory.mktemp('finished')
    with tiny.on_devices(1):
        tiny.run(workdir)
    return workdir


@pytest.fixture
def real_data():
    """A function that finds the folder of a real data set in PROTOJAX_TEST_DATA, or skips the test."""

    def find(name):
        folder = os.environ.get('PROTOJAX_TEST_DATA')
        if not folder or not pathlib.Path(folder, name).is_dir():
            pytest.skip(f'PROTOJAX_TEST_DATA does not contain {name}/')
        return pathlib.Path(folder, name)

    return find
