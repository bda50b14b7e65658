"""Tables in Markdown, which the terminal shows as well as a page does."""


def markdown_table(header, rows):
    """Lines of a table with aligned columns."""
    cells = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(header))]
    cells.insert(1, ['-' * width for width in widths])
    return ['| ' + ' | '.join(map(str.ljust, row, widths)) + ' |' for row in cells]
