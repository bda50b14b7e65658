"""Compiles the C++ kernels on first use and keeps the library in the user's cache.

The name of a library is made of everything that it depends on, so a new version, compiler or machine builds its own,
and of a digest of its content, so that a damaged file is noticed before it is loaded.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jaxlib
from absl import logging

from protojax.files import cache_folder

SOURCES = sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in ('.cc', '.h'))
FLAGS = ('-O2', '-std=c++17', '-shared', '-fPIC', '-w')
NATIVE = (('-march=native',), ('-mcpu=native',), ())  # the first that the compiler accepts


class BuildError(Exception):
    """The kernels cannot be had on this machine; the message says why."""


def load_kernels(*defines: str) -> ctypes.CDLL:
    """The library of kernels with some names defined, compiled if the cache has no sound copy."""
    compiler = [*_compiler(), *(f'-D{name}' for name in defines)]
    directory = _cache_directory()
    key = _key(compiler)
    for path in directory.glob(f'{key}-*.so'):
        try:
            if _digest(path.read_bytes()) == path.stem.partition('-')[2]:
                return ctypes.CDLL(str(path))
            problem = 'content changed'
        except OSError as error:
            problem = str(error)
        logging.warning('Building the CPU kernels again: %s is damaged (%s).', path, problem)
        path.unlink(missing_ok=True)
    path = _compile(compiler, directory, key)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f'the compiled library does not load: {error}') from error


def _compiler():
    """Command of the compiler: $CXX or the usual names."""
    choice = os.environ.get('CXX')
    commands = [shlex.split(choice)] if choice else [['c++'], ['g++'], ['clang++']]
    for command in commands:
        if shutil.which(command[0]):
            return command
    raise BuildError(f'no C++ compiler: {choice} not found' if choice else 'no C++ compiler: install g++ or set $CXX')


def _cache_directory():
    """Directory that nobody else can write to: what lies there will be run."""
    directory = cache_folder('kernels')
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.stat().st_uid != os.getuid():
            raise BuildError(f'{directory} belongs to another user; set $XDG_CACHE_HOME')
        directory.chmod(0o700)
    except OSError as error:
        raise BuildError(f'no cache for the compiled library: {error}; set $XDG_CACHE_HOME') from error
    return directory


def _key(compiler):
    parts = [path.read_bytes() for path in SOURCES]
    parts += [repr((compiler, FLAGS, NATIVE, jaxlib.__version__, _version(compiler), _cpu())).encode()]
    return _digest(b'\0'.join(parts))


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:24]


def _version(compiler):
    return subprocess.run([*compiler, '--version'], capture_output=True, check=False).stdout


def _cpu():
    """What -march=native depends on."""
    try:
        lines = Path('/proc/cpuinfo').read_text().split('\n\n')[0].splitlines()
    except OSError:
        lines = []
    wanted = ('model name', 'flags', 'Features', 'CPU part', 'isa')
    return platform.machine(), platform.processor(), [line for line in lines if line.startswith(wanted)]


def _compile(compiler, directory, key):
    """Compiles into a temporary file and renames it, so that other processes see a whole library or none."""
    logging.info('Compiling the CPU kernels, once on this machine.')
    source = next(path for path in SOURCES if path.suffix == '.cc')
    handle, temporary = tempfile.mkstemp(suffix='.tmp', dir=directory)
    os.close(handle)
    try:
        for native in NATIVE:
            command = [*compiler, *FLAGS, *native, '-I', jax.ffi.include_dir(), str(source), '-o', temporary]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                path = directory / f'{key}-{_digest(Path(temporary).read_bytes())}.so'
                os.replace(temporary, path)
                return path
    except OSError as error:
        raise BuildError(f'{shlex.join(compiler)} does not run: {error}') from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    reason = next((line for line in result.stderr.splitlines() if 'error' in line), f'exit code {result.returncode}')
    raise BuildError(f'{shlex.join(compiler)} fails: {reason}')
