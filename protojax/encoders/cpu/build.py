"""Compile the C++ kernels on first use and keep the library in the user's cache.

The file name contains a hash of everything the library depends on, so a new version, compiler or machine builds
another one, and a hash of its content, so that a corrupted file is detected before it is loaded.
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
    """The kernels are unavailable on this machine; the message is the reason."""


def load(*defines: str) -> ctypes.CDLL:
    """Load the library with some macros defined, compiling it unless the cache contains a valid copy."""
    compiler = [*_compiler(), *(f'-D{name}' for name in defines)]
    try:
        folder, key = _folder(), _key(compiler)
        for path in folder.glob(f'{key}-*.so'):
            if _digest(path.read_bytes()) == path.stem.partition('-')[2]:
                return ctypes.CDLL(str(path))
            logging.warning('compiling the CPU kernels again: %s is corrupted', path)
            path.unlink(missing_ok=True)
        return ctypes.CDLL(str(_compile(compiler, folder, key)))
    except OSError as error:
        raise BuildError(f'cannot build or load the library: {error}; set $CXX or $XDG_CACHE_HOME') from error


def _compiler() -> list[str]:
    """Return the command of the compiler: $CXX or a usual name."""
    choice = os.environ.get('CXX')
    for command in [shlex.split(choice)] if choice else [['c++'], ['g++'], ['clang++']]:
        if shutil.which(command[0]):
            return command
    raise BuildError(f'no C++ compiler: {choice} not found' if choice else 'no C++ compiler: install g++ or set $CXX')


def _folder() -> Path:
    """Create a cache folder that only this user can write to, because its files will be executed."""
    folder = cache_folder('kernels')
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise BuildError(f'{folder} belongs to another user; set $XDG_CACHE_HOME')
    folder.chmod(0o700)
    return folder


def _key(compiler: list[str]) -> str:
    """Hash the sources, the compiler, and the properties of the CPU that -march=native depends on."""
    version = subprocess.run([*compiler, '--version'], capture_output=True, check=False).stdout
    info = Path('/proc/cpuinfo')
    lines = info.read_text().split('\n\n')[0].splitlines() if info.exists() else []
    cpu = [line for line in lines if line.startswith(('model name', 'flags', 'Features', 'CPU part', 'isa'))]
    depends = repr((compiler, FLAGS, NATIVE, jaxlib.__version__, version, platform.machine(), cpu))
    return _digest(b'\0'.join([*(path.read_bytes() for path in SOURCES), depends.encode()]))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


def _compile(compiler: list[str], folder: Path, key: str) -> Path:
    """Compile to a temporary file and rename it, so that other processes see a complete library or none."""
    logging.info('compiling the CPU kernels (once on this machine)')
    source = next(path for path in SOURCES if path.suffix == '.cc')
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        library = Path(scratch, 'library.so')
        for native in NATIVE:
            command = [*compiler, *FLAGS, *native, '-I', jax.ffi.include_dir(), str(source), '-o', str(library)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                return library.rename(folder / f'{key}-{_digest(library.read_bytes())}.so')
    reason = next((line for line in result.stderr.splitlines() if 'error' in line), f'exit code {result.returncode}')
    raise BuildError(f'{shlex.join(compiler)} fails: {reason}')
