"""Files that are written whole or not at all, and arrays in them."""

import json
import os
import pathlib
import struct
from collections.abc import Mapping

import numpy as np
import safetensors.numpy

KEY = 'protojax'  # of the description, among a safetensors file's metadata


def write_whole(path: str | os.PathLike, content: str | bytes) -> None:
    """Write a file so that it is seen either as it was or complete, also after a crash."""
    path = pathlib.Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    with open(temporary, 'wb') as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_arrays(path: str | os.PathLike, arrays: Mapping[str, np.ndarray], description: dict) -> None:
    """Write arrays and a description of them in the safetensors format."""
    write_whole(path, safetensors.numpy.save(dict(arrays), {KEY: json.dumps(description)}))


def read_arrays(path: str | os.PathLike, *, largest: int) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays and the description in a file of at most so many bytes. Raises all kinds of errors on damage."""
    path = pathlib.Path(path)
    if path.stat().st_size > largest:
        raise ValueError(f'it has more than {largest} bytes')
    content = path.read_bytes()
    arrays = safetensors.numpy.load(content)  # checks the header and every length in it
    (length,) = struct.unpack('<Q', content[:8])
    metadata = json.loads(content[8 : 8 + length]).get('__metadata__', {})
    if KEY not in metadata:
        raise ValueError('it does not describe any')
    return arrays, json.loads(metadata[KEY])
