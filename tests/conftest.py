"""Every test sees eight CPU devices, no silent change of rank, and the library's own warnings as errors."""

import os
import pathlib

# Tests spend their time compiling, not computing, so the compiler had better not try hard.
FLAGS = '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0'
os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {FLAGS}'

import jax  # noqa: E402  (the flags count only if they are set first)
import pytest  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_configure(config):
    config.addinivalue_line('filterwarnings', 'error:::protojax')


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
