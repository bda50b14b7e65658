"""Changes of files: of any bytes, and of the structure of some formats, so that a reader gets beyond checksums.

A mutation is a function of a random.Random and the bytes of a file. An input is {file name: contents}.
"""

import json
import pathlib
import pickle
import random
import re
import struct
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from protojax import files, pretrained

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
WORDS = ('', '9' * 5000, '\0', '\x1b[2J', '\u202e', '0', '-1', '1e309', 'nan', '..', '../x', '/', '"', ',')
VALUES = (None, True, -1, 0, 1, 1.5, 2**63, 1e300, float('nan'), float('inf'), '', 'x' * 9999, [], {}, [[[]]] * 99)
Mutation = Callable[[random.Random, bytes], bytes]
Input = dict[str, bytes]


def mutant(rng: random.Random, seeds: Sequence[Input], special: Sequence[Mutation]) -> Input:
    """Change one of the files of a seed, by a mutation that suits the format or by one that suits all."""
    seed = dict(rng.choice(seeds))
    name = rng.choice(list(seed))
    other = rng.choice(list(rng.choice(seeds).values()))
    splice = lambda rng, data: data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]  # noqa: E731
    seed[name] = rng.choice((any_bytes, any_bytes, splice, *special, *special))(rng, seed[name])
    return seed


def any_bytes(rng: random.Random, data: bytes) -> bytes:
    """Make a few changes: bytes, cuts, insertions, repeats, and numbers that are lengths more often than not."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, size = rng.randrange(len(changed) + 1), rng.choice((1, 2, 4, 8))
        number = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, rng.choice(('little', 'big')))
        repeated = changed[at : at + rng.randint(1, 64)] * rng.choice((1, 1, 1, 300))
        begin, end, new = rng.choice(
            [(at, at + 1, rng.randbytes(1)), (at, len(changed), b''), (at, at, rng.randbytes(size))]
            + [(at, at + 2 * size, b''), (at, at, repeated), (at, at + size, number), (at, at + size, number)]
        )
        changed[begin:end] = new
    return bytes(changed)


def words(rng: random.Random, data: bytes) -> bytes:
    """Replace some words of a text by odd ones, or repeat them."""
    parts = re.split(r'([\s,:(){}\[\]]+)', str(data, 'latin1'))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(parts))
        parts[at] = parts[at] * rng.choice((2, 500)) if rng.random() < 0.2 else rng.choice(WORDS)
    return ''.join(parts).encode()


def opcodes(rng: random.Random, data: bytes) -> bytes:
    """Replace some bytes of a pickle by opcodes, or insert opcodes."""
    codes = [code for name, code in vars(pickle).items() if name.isupper() and isinstance(code, bytes)]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(changed) + 1)
        changed[at : at + rng.randrange(2)] = rng.choice(codes) * rng.choice((1, 1, 1, 200))
    return bytes(changed)


def json_lines(rng: random.Random, data: bytes) -> bytes:
    """Change a value in a file of JSON, or of lines of JSON; other files at any byte."""
    lines = [data] if data[:2] == b'{\n' else data.splitlines(keepends=True)
    at = rng.randrange(len(lines)) if lines else 0
    try:
        lines[at] = json.dumps(json_value(rng, json.loads(lines[at]))).encode() + b'\n'
    except (ValueError, IndexError, TypeError):
        return any_bytes(rng, data)
    return b''.join(lines)


def json_value(rng: random.Random, value: Any) -> Any:
    """Replace, remove or add one of the values in a value of JSON."""
    places = []

    def collect(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                collect(node[key])

    collect(value)
    node, key = rng.choice(places)
    if rng.random() < 0.25:
        del node[key]
    else:
        added = isinstance(node, dict) and rng.random() < 0.3
        node[rng.choice(('', 'x', 'shape', '__metadata__')) if added else key] = rng.choice(VALUES)
    return value


def safetensors(rng: random.Random, data: bytes) -> bytes:
    """Change the description or the values of a safetensors file, with a correct digest; or its header."""
    if rng.random() < 0.3:
        (length,) = struct.unpack('<Q', data[:8])
        header = json.dumps(json_value(rng, json.loads(data[8 : 8 + length]))).encode()
        return struct.pack('<Q', len(header)) + header + data[8 + length :]
    with tempfile.TemporaryDirectory() as place:
        (path := pathlib.Path(place, 'x')).write_bytes(data)
        arrays, description = files.read_arrays(path)
        name = rng.choice(list(arrays))
        odd = np.array(rng.choice((np.nan, np.inf, -1, 3e38))).astype(arrays[name].dtype)
        if rng.random() < 0.5:
            arrays[name] = rng.choice((np.full_like(arrays[name], odd), arrays[name][:0], arrays[name][None]))
        else:
            description = json_value(rng, description)
        if 'digest' in description:
            description['digest'] = pretrained.digest(description, arrays)
        files.write_arrays(path, arrays, description)
        return path.read_bytes()
