"""Changes of files: of any bytes, and of the structure of some formats, so that a reader gets beyond their checksums.

A mutation is a function of a random.Random and the bytes of a file.
"""

import gzip
import io
import json
import pickle
import random
import re
import struct
import zipfile
import zlib

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
WORDS = ('', '0', '-1', '1.5', '1e309', 'nan', 'inf', '9' * 5000, '..', '/', '"', ',')
WORDS += ('\0', '\x1b[2J', '\t', '\u202e', '\ud800')
VALUES = (None, True, -1, 0, 1, 1.5, 2**63, 10**30, 1e300, float('nan'), float('inf'))
VALUES += ('', 'x' * 9999, [], {}, [[[]]] * 99)
BLOCK = 512


def mutant(format, seeds, job):
    """The bytes of a mutated file."""
    rng = random.Random(str(job))
    # Bundled files have their name in the first line, which only their own mutations respect.
    bundled = any(hasattr(mutation, 'bundled') for mutation in format.mutations)
    general = () if bundled else (mutate_bytes, _splice(seeds))
    return rng.choice((*general, *format.mutations))(rng, rng.choice(seeds))


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """A few changes: bytes, cuts, insertions, repeats, numbers that are lengths more often than not."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                del data[at : at + rng.randint(1, 16)]
            case 4:
                data[at:at] = data[at : at + rng.randint(1, 64)] * rng.choice((1, 1, 1, 300))
            case 5 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case _:
                size = rng.choice((1, 2, 4, 8))
                value = rng.choice(NUMBERS) % (1 << 8 * size)
                data[at : at + size] = value.to_bytes(size, rng.choice(('little', 'big')))
    return bytes(data)


def _splice(seeds: list[bytes]):
    """The beginning of a file and the end of another."""

    def mutation(rng, data):
        other = rng.choice(seeds)
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]

    return mutation


def mutate_words(rng: random.Random, data: bytes) -> bytes:
    """A text with odd words in place of some of its own, or lines many times."""
    parts = re.split(r'([\s,:(){}\[\]]+)', str(data, 'latin1'))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(parts))
        parts[at] = parts[at] * rng.choice((2, 500)) if rng.random() < 0.2 else rng.choice(WORDS)
    return ''.join(parts).encode('utf-8', 'surrogatepass' if rng.random() < 0.1 else 'replace')


def mutate_opcodes(rng: random.Random, data: bytes) -> bytes:
    """A pickle with some of its bytes replaced by opcodes, or opcodes put between."""
    codes = [getattr(pickle, name) for name in pickle.__all__ if re.fullmatch('[A-Z][A-Z0-9_]+', name)]
    codes = [code for code in codes if isinstance(code, bytes) and len(code) == 1]
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(2)] = rng.choice(codes) * rng.choice((1, 1, 1, 200))
    return bytes(data)


def mutate_matlab(rng: random.Random, data: bytes) -> bytes:
    """A .mat file, damaged and then compressed."""
    changed = zlib.compress(mutate_bytes(rng, data[128:]), 1)
    return data[:128] + struct.pack('<II', 15, len(changed)) + changed


def mutate_png(rng: random.Random, data: bytes) -> bytes:
    """A PNG whose parts are changed, left out or doubled, all with right checksums."""
    parts, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from('>I', data, at)
        parts.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    at = rng.randrange(len(parts))
    kind, contents = parts[at]
    match rng.randrange(4):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts)), (kind, contents))
        case 2:
            kind = rng.choice(
                (b'PLTE', b'tRNS', b'acTL', b'fcTL', b'iCCP', b'zTXt', b'iTXt', b'eXIf', b'gAMA', b'sRGB')
            )
            parts.insert(at, (kind, rng.randbytes(rng.choice((0, 1, 26, 300)))))
        case _:
            pixels = zlib.decompress(contents) if kind == b'IDAT' else contents
            changed = mutate_bytes(rng, pixels)
            parts[at] = (kind, zlib.compress(changed) if kind == b'IDAT' else changed)
    chunks = (struct.pack('>I', len(c)) + k + c + struct.pack('>I', zlib.crc32(k + c)) for k, c in parts)
    return data[:8] + b''.join(chunks)


def mutate_tar(rng: random.Random, data: bytes) -> bytes:
    """A tar with a header that is changed and has a right checksum, or a member with one put before another."""
    data = bytearray(data)
    headers = [at for at in range(0, len(data), BLOCK) if data[at + 257 : at + 262] == b'ustar']
    at = rng.choice(headers)
    field = rng.choice(((0, 100), (124, 136), (156, 157), (156, 157), (257, 265), (345, 500), (386, 500)))
    old = bytes(data[at + field[0] : at + field[1]])
    kinds = (b'S', b'x', b'g', b'L', b'K', b'1', b'2', b'5', b'7', b'\0', b'X', b'V')
    new = rng.choice(kinds) if field == (156, 157) else mutate_bytes(rng, old)[: len(old)].ljust(len(old), b'\0')
    data[at + field[0] : at + field[1]] = new
    checksum = sum(data[at : at + 148]) + sum(data[at + 156 : at + BLOCK]) + 8 * 32
    data[at + 148 : at + 156] = b'%06o\0 ' % checksum
    if rng.random() < 0.3:
        data[at:at] = data[at : at + BLOCK] * rng.choice((1, 2000))
    return bytes(data)


def mutate_tar_gz(rng: random.Random, data: bytes) -> bytes:
    """A .tar.gz whose tar is changed."""
    change = rng.choice((mutate_bytes, mutate_tar))
    return gzip.compress(change(rng, gzip.decompress(data)), 1)


def mutate_zip(rng: random.Random, data: bytes) -> bytes:
    """A zip archive with a member that is changed, and with right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {entry: archive.read(entry) for entry in archive.infolist()}
    chosen, file = rng.choice(list(members)), io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        for entry, contents in members.items():
            if entry is chosen and rng.random() < 0.3:
                entry.filename = rng.choice((*WORDS[:-1], 'a/' * 20_000, '../x', 'val.csv', 'test.csv', 'x/../../y'))
            changed = rng.choice((mutate_bytes, mutate_words))(rng, contents) if entry is chosen else contents
            archive.writestr(entry, bytes(rng.choice((10**7, 10**8))) if rng.random() < 0.01 else changed)
    return file.getvalue()


def mutate_json_value(rng: random.Random, value):
    """A value of JSON with one of the values in it replaced, taken away or doubled."""
    places = []

    def collect(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                collect(node[key])

    value = json.loads(json.dumps(value))
    collect(value)
    node, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[rng.choice(('', 'x', 'shape', '__metadata__'))] = rng.choice(VALUES)
        case _:
            node[key] = rng.choice(VALUES)
    return value


def mutate_json_lines(rng: random.Random, data: bytes) -> bytes:
    """A file of JSON, or of lines of it, with a value replaced."""
    lines = data.splitlines(keepends=True)
    whole = [data] if data[:2] == b'{\n' else lines
    at = rng.randrange(len(whole))
    whole[at] = json.dumps(mutate_json_value(rng, json.loads(whole[at]))).encode() + b'\n'
    return b''.join(whole)
