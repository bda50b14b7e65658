"""A table of the paper with our figures beside the paper's, as data, as Markdown and as a chart."""

import re

from experiments.publishing.records import (
    PUBLISHED,
    record_cell,
    record_flags,
    score_of_records,
    select_published_records,
)
from experiments.reporting.charts import CHARTS
from experiments.reporting.drawing import save_drawing
from experiments.reporting.markdown import markdown_table
from experiments.reporting.paper import TABLES, difference_from_paper

TEMPLATE = PUBLISHED / 'page.md'  # of RESULTS.md
PLACE = re.compile(r'<!-- (\w+): (.*?)\s*-->', re.DOTALL)  # of a table in it: kind, and what that kind takes
DPI = 120  # of charts: sharp on a page, and small files
LEGEND = (
    'Accuracy in %. Ours: mean over the seeds ± the half width of the 95 % confidence interval of one run, and in '
    'square brackets the lowest and highest seed where there are several. Rows that name what is different in '
    'them, like synthetic data or the features of another network, cannot be compared with the paper.'
)


def comparison_with_paper(table, runs_of):
    """Our figures and the paper's: a dictionary of plain values. `runs_of(flags)` are the records behind a cell."""
    rows = []
    for row in table.rows:
        cells = {}
        for column, figure, flags in zip(table.columns, row.paper, table.by_column(row), strict=True):
            runs = runs_of(flags)
            if ours := score_of_records(runs, column):
                labels = {difference_from_paper(table.experiment, run, row.features) for run in runs}
                ours['labels'] = sorted(labels - {''})
                ours['episodes'] = sorted({run['config']['episodes'] for run in runs if run['config']['episodes']})
            cells[column] = {'ours': ours, 'paper': _quoted_figure(figure)}
        rows.append({'name': row.name, 'runs': row.runs, 'cells': cells})
    return {'title': table.title, 'note': table.note, 'columns': table.columns, 'rows': rows}


def _quoted_figure(text):
    """A figure of the paper: '43.40 ± 0.78' -> accuracy, ci95."""
    accuracy, _, ci95 = text.partition(' ± ')
    return None if text == '-' else {'accuracy': float(accuracy), 'ci95': float(ci95) if ci95 else None}


def published_comparison(text):
    """The name of a table, and flags that all its runs must have -> the name, its comparison, and the flags."""
    name, given = text.split()[0], record_flags(text)
    table = TABLES[name]
    found = comparison_with_paper(table, lambda wanted: select_published_records(table.experiment, wanted | given))
    return name, found, given


def comparison_of_page(name):
    """The comparison as RESULTS.md shows it, of runs with the flags that are given there."""
    template = TEMPLATE.read_text() if TEMPLATE.exists() else f'<!-- paper: {name} -->'  # installed, without results
    return next(found for known, found, _ in comparisons_of_page(template) if known == name)


def comparisons_of_page(template):
    """Those that a page has places for, as `published_comparison` gives them."""
    return [published_comparison(place[2]) for place in PLACE.finditer(template) if place[1] == 'paper']


def comparison_has_ours(found):
    return any(cell['ours'] for row in found['rows'] for cell in row['cells'].values())


def comparison_lines(table, found):
    """The table in Markdown. Runs that differ from the paper's in more than a recipe get a row without its figures."""
    rows = []
    for row, collected in zip(table.rows, found['rows'], strict=True):
        ours = [collected['cells'][column]['ours'] for column in table.columns]
        labels = ', '.join(dict.fromkeys(label for one in ours if one for label in one['labels']))
        shown = ['-' if labels else record_cell(one) for one in ours]
        kind = f', {row.features} features' if row.features else ''
        rows.append([row.name + kind, *_interleaved_columns(shown, row.paper)])
        if labels and f'{row.name}, {labels}' not in [known for known, *_ in rows]:  # one system may have two rows
            rows.append([f'{row.name}, {labels}', *_interleaved_columns(map(record_cell, ours), ['-'] * len(ours))])
    return markdown_table(['', *_interleaved_columns(table.columns, ['paper'] * len(table.columns))], rows)


def _interleaved_columns(ours, papers):
    return [text for pair in zip(ours, papers, strict=True) for text in pair]


def draw_comparison(name, found, folder):
    """Write the chart of a table, where it has one."""
    if name in CHARTS:
        drawn = CHARTS[name](found)
        drawn.set_dpi(DPI)
        save_drawing(drawn, folder / f'{name}.png')
