"""A table of the paper with our figures beside the paper's, as data, as Markdown and as a chart."""

from experiments.reporting import charts, markdown
from experiments.reporting.paper import difference
from experiments.reporting.records import cell, score
from protojax.files import write_whole

CHARTS = {name: f'{name}.svg' for name in charts.FIGURES}  # table -> file of its chart
LEGEND = (
    'Accuracy in %. Ours: mean over the seeds ± the half width of the 95 % confidence interval of one run, and in '
    'square brackets the lowest and highest seed where there are several. "Quoted" rows are other systems, with the '
    'figures that the paper gives for them.'
)


def compare(table, runs_of):
    """Our figures and the paper's: a dictionary of plain values. `runs_of(flags)` are the records behind a cell."""
    rows = []
    for row in table.rows:
        cells = {}
        for column, figure, flags in zip(table.columns, row.paper, table.by_column(row), strict=True):
            runs = runs_of(flags) if flags else []
            if ours := score(runs, column):
                options = {'features': row.features} if row.features else {}
                ours['labels'] = sorted({difference(table.experiment, run, **options) for run in runs} - {''})
            cells[column] = {'ours': ours, 'paper': quoted(figure)}
        rows.append({'name': row.name, 'runs': row.runs, 'cells': cells})
    return {'title': table.title, 'note': table.note, 'columns': table.columns, 'rows': rows}


def quoted(text):
    """A figure of the paper: '43.40 ± 0.78' -> accuracy, ci95."""
    accuracy, _, ci95 = text.partition(' ± ')
    return None if text == '-' else {'accuracy': float(accuracy), 'ci95': float(ci95) if ci95 else None}


def has_ours(found):
    return any(cell['ours'] for row in found['rows'] for cell in row['cells'].values())


def lines(table, found):
    """The table in Markdown. Runs that differ from the paper's in more than a recipe get a row without its figures."""
    rows = []
    for row, collected in zip(table.rows, found['rows'], strict=True):
        ours = [collected['cells'][column]['ours'] for column in table.columns]
        labels = ', '.join(dict.fromkeys(label for one in ours if one for label in one['labels']))
        shown = ['-' if labels else cell(one) for one in ours] if row.runs else [''] * len(ours)
        kind = f', {row.features} features' if row.features else ''
        rows.append([row.name + kind if row.runs else f'{row.name} (quoted)', *interleaved(shown, row.paper)])
        if labels:
            rows.append([f'{row.name}, {labels}', *interleaved(map(cell, ours), ['-'] * len(ours))])
    return markdown.table(['', *interleaved(table.columns, ['paper'] * len(table.columns))], rows)


def interleaved(ours, papers):
    return [text for pair in zip(ours, papers, strict=True) for text in pair]


def draw(name, found, folder):
    """Write the chart of a table that has one."""
    write_whole(folder / CHARTS[name], charts.FIGURES[name](found))
