"""Reads tar archives, in all formats that are in use, into memory.

A member is a header of 512 bytes and its contents, filled up to a multiple of that. Long names, and much that does not
matter here, come in members of their own before the one that they describe: GNU's 'L', and the 'x' and 'g' of POSIX.
"""

from protojax.datasets.formats import OBJECT, Budget, Contents, Damaged

BLOCK = 512
LONG_EXTENSION = 1 << 16  # bytes of a member that only describes the next
FILES = b'\0', b'0', b'7'
NOTHING = b'5', b'g'  # folders, and what holds for all members


def read_tar(data: Contents, budget: Budget) -> dict[str, memoryview]:
    """The contents of all files by name, as views of the archive's bytes."""
    data, at, found, name = memoryview(data), 0, {}, ''
    while any(header := bytes(data[at : at + BLOCK])):
        budget.spend(OBJECT + BLOCK)
        size, kind = _check_tar_header(header, len(data) - at - BLOCK), header[156:157]
        contents = data[at + BLOCK : at + BLOCK + size]
        at += BLOCK + -(-size // BLOCK) * BLOCK
        if kind in (b'L', b'x') and size > LONG_EXTENSION:
            raise Damaged(f'a name takes {size} bytes')
        if kind == b'L':
            name = _tar_text(bytes(contents))
        elif kind == b'x':
            name = _pax_path(bytes(contents), budget) or name
        elif kind in FILES:
            found[name or _tar_header_name(header)] = contents
        elif kind not in NOTHING:
            raise Damaged(f'{name or _tar_header_name(header):.100} is a link, device or sparse file')
        if kind not in (b'L', b'x'):
            name = ''
    if len(header) < BLOCK:
        raise Damaged('it ends early')
    return found


def _check_tar_header(header: bytes, left: int) -> int:
    """The size of a member that has a right checksum and is there whole."""
    if len(header) < BLOCK or sum(header[:148]) + sum(header[156:]) + 8 * 32 != _tar_number(header[148:156]):
        raise Damaged('a header is damaged')
    size = _tar_number(header[124:136])  # of eight gigabytes and more it would be written otherwise
    if not 0 <= size <= left:
        raise Damaged(f'a member of {size} bytes is announced, {left} are left')
    return size


def _tar_number(field: bytes) -> int:
    digits = field.strip(b' \0') or b'0'
    if not digits.isdigit():
        raise Damaged('a number in a header is damaged')
    return int(digits, 8)


def _tar_header_name(header: bytes) -> str:
    prefix = _tar_text(header[345:500]) if header[257:263] == b'ustar\0' else ''
    return f'{prefix}/{_tar_text(header[:100])}' if prefix else _tar_text(header[:100])


def _tar_text(field: bytes) -> str:
    return str(field.split(b'\0', 1)[0], 'utf-8', 'replace')


def _pax_path(contents: bytes, budget: Budget) -> str:
    """The path among lines '<length> <key>=<value>', where the length is that of the whole line."""
    path, at = '', 0
    while at < len(contents):
        budget.spend(OBJECT)
        number = contents[at : at + 8].split(b' ', 1)[0]
        end = at + (int(number) if number.isdigit() else 0)
        key, equals, value = contents[at + len(number) + 1 : end - 1].partition(b'=')
        if end <= at or contents[end - 1 : end] != b'\n' or not (key and equals):
            raise Damaged('a description of a member is damaged')
        if key.startswith(b'GNU.sparse') or key == b'size':
            raise Damaged('it holds a sparse file, or one of more than eight gigabytes')
        path, at = _tar_text(value) if key == b'path' else path, end
    return path
