"""Files that are read carefully, and written whole or not at all, and arrays in them."""

import json
import os
import pathlib
import stat
import struct
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
import safetensors.numpy

KEY = 'protojax'  # of the description, among a safetensors file's metadata
LONGEST_HEADER = 1 << 23  # bytes; to parse them takes many times as much memory


def cache_folder(name: str) -> pathlib.Path:
    """Where protojax keeps things of a kind in the user's cache."""
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'protojax' / name


def open_file(path: str | os.PathLike) -> BinaryIO:
    """An ordinary file to read from. Pipes and devices, which may have no end, raise ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its other end
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError('it is no ordinary file')
    return open(descriptor, 'rb')


def read_whole(path: str | os.PathLike, *, largest: int) -> bytes:
    """Contents of an ordinary file of at most so many bytes, of which never more than it has now are read."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise ValueError(f'it has {size} bytes, far more than {largest}')
        return file.read(size)


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
    """Write a file so that it is seen either as it was or complete, also after a crash."""
    path = pathlib.Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    temporary.unlink(missing_ok=True)  # of a write that was interrupted, or a link that somebody else has put there
    with open(temporary, 'xb') as file:
        # Names of foreign files may have bytes that are no text; they become escapes.
        file.write(content.encode(errors='backslashreplace') if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_arrays(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], description: dict) -> None:
    """Write arrays and a description of them in the safetensors format."""
    write_whole(path, safetensors.numpy.save(dict(arrays), {KEY: json.dumps(description)}))


def read_arrays(path: str | os.PathLike, *, largest: int) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays and the description in a file of at most so many bytes. Raises all kinds of errors on damage."""
    content = read_whole(path, largest=largest)
    (length,) = struct.unpack('<Q', content[:8])
    if length > LONGEST_HEADER:
        raise ValueError(f'its header has {length} bytes, far more than {LONGEST_HEADER}')
    arrays = safetensors.numpy.load(content)  # checks the header and every length in it
    metadata = json.loads(content[8 : 8 + length]).get('__metadata__', {})
    if KEY not in metadata:
        raise ValueError('it does not describe any')
    return arrays, json.loads(metadata[KEY])
