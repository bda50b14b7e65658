"""Markdown tables, readable in the terminal too."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(header))]
    cells.insert(1, ['-' * width for width in widths])
    return ['| ' + ' | '.join(map(str.ljust, row, widths)) + ' |' for row in cells]


def compact(header: Sequence[str], rows: Iterable[Sequence]) -> list[str]:
    """Return the lines of a table without padding."""
    lines = (header, ['---'] * len(header), *rows)
    return ['|' + '|'.join(f' {cell} ' if cell else ' ' for cell in row) + '|' for row in lines]
