"""Safe reading and atomic writing of files, and of arrays in the safetensors format."""

import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import BinaryIO

import jax
import numpy as np
import safetensors.numpy

KEY = 'protojax'  # key of our metadata in the header of a safetensors file


def cache_folder(name: str) -> pathlib.Path:
    """Return the folder `name` in the user's cache."""
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'protojax' / name


def cache_programs(folder: str | os.PathLike | None = None) -> None:
    """Keep programs that JAX compiles in a folder, by default in the user's cache."""
    path = pathlib.Path(folder).expanduser() if folder else cache_folder('xla')
    jax.config.update('jax_compilation_cache_dir', str(path))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.2)


def open_file(path: str | os.PathLike) -> BinaryIO:
    """Open a regular file for reading. Pipes and devices, which may have no end, raise ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its other end
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError('not a regular file')
    return open(descriptor, 'rb')


def read_whole(path: str | os.PathLike) -> bytes:
    """Read a regular file."""
    with open_file(path) as file:
        return file.read()


def sha256(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a regular file in hexadecimal digits."""
    return hashlib.sha256(read_whole(path)).hexdigest()


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
    """Write a file atomically: even after a crash it has either its old or its new contents."""
    path = pathlib.Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    temporary.unlink(missing_ok=True)  # left by an interrupted write, or a link of another user
    with open(temporary, 'xb') as file:
        # Names of files may contain bytes that are not text; they become escapes.
        file.write(content.encode(errors='backslashreplace') if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_arrays(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], description: dict) -> None:
    """Write arrays and metadata in the safetensors format."""
    write_whole(path, safetensors.numpy.save(dict(arrays), {KEY: json.dumps(description)}))


def read_arrays(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict]:
    """Read arrays and metadata. A corrupted file raises exceptions of many types."""
    content = read_whole(path)
    arrays = safetensors.numpy.load(content)  # checks the header and every length in it
    length = int.from_bytes(content[:8], 'little')
    metadata = json.loads(content[8 : 8 + length]).get('__metadata__', {})
    if KEY not in metadata:
        raise ValueError('it has no metadata of protojax')
    return arrays, json.loads(metadata[KEY])
