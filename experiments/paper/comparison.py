"""A table of the paper with our results beside the paper's, as data, as Markdown and as a chart."""

from collections.abc import Callable
from pathlib import Path

from experiments.drawing import charts, style
from experiments.paper import markdown, records, tables
from experiments.paper.tables import TABLES, Table

DPI = 120  # of charts
FULL = {'omniglot': 10_000, 'miniimagenet': 6_000}  # training episodes of a run at full length
PATIENCE = 1500  # minimum number of episodes without a lower validation loss before a full run may stop
LEGEND = (
    'Accuracy in %. Ours: mean over the seeds ± half-width of the 95 % confidence interval of one run [lowest and '
    'highest seed]. Rows with a note, such as "ours: synthetic data", are not comparable with the paper.'
)


def reason(experiment: str, run: dict, features: str = 'GoogLeNet') -> str:
    """Return why a run is not comparable with the paper: other data, classes or features, or too short; '' if it is."""
    config, parts = run['config'], [tables.difference(experiment, run, features)]
    if not run['synthetic'] and 0 < config['episodes'] < FULL.get(experiment, 0):
        parts.append(f'{config["episodes"]:,} training episodes')
    elif experiment in FULL and not config.get('retrain', True):
        waited = config['patience'] * config['validate_every']
        parts.append(f'stopped after {waited:,} episodes without improvement' if waited < PATIENCE else '')
    return ', '.join(filter(None, parts))


def collect(table: Table, runs_of: Callable[[dict], list[dict]]) -> dict:
    """Return our results and the paper's as plain values. `runs_of(flags)` returns the records behind a cell."""
    rows = []
    for row in table.rows:
        cells = {}
        for column, quoted, flags in zip(table.columns, row.paper, table.by_column(row), strict=True):
            runs = runs_of(flags)
            if ours := records.score(runs, column):
                ours['labels'] = sorted({reason(table.experiment, run, row.features) for run in runs} - {''})
                ours['episodes'] = sorted({run['config']['episodes'] for run in runs})  # 0: early stopping
                ours['classes'] = sorted({run['evaluated_on'] for run in runs})
            accuracy, _, ci95 = quoted.partition(' ± ')  # for example 43.40 ± 0.78
            paper = {'accuracy': float(accuracy), 'ci95': float(ci95) if ci95 else None} if quoted != '-' else None
            cells[column] = {'ours': ours, 'paper': paper}
        rows.append({'name': row.label, 'runs': row.runs, 'cells': cells})
    return {'title': table.title, 'note': table.note, 'columns': table.columns, 'rows': rows}


def published(name: str, given: dict | None = None) -> dict:
    """Collect a table from published runs, all with the given flags."""
    table = TABLES[name]
    return collect(table, lambda flags: records.select_published(table.experiment, flags | (given or {})))


def lines(table: Table, found: dict) -> list[str]:
    """Return the table in Markdown, with a note in rows whose runs are not comparable."""
    rows = []
    for row, collected in zip(table.rows, found['rows'], strict=True):
        ours = [cell['ours'] for cell in collected['cells'].values()]
        labels = ', '.join(dict.fromkeys(label for one in ours if one for label in one['labels']))
        name = f'{row.label} (ours: {labels})' if labels else row.label
        rows.append([name, *(text for pair in zip(map(records.cell, ours), row.paper, strict=True) for text in pair)])
    return markdown.table(['', *(text for column in table.columns for text in (column, 'paper'))], rows)


def draw(name: str, found: dict, folder: Path) -> None:
    """Write the chart of a table if it has one."""
    if name in charts.CHARTS:
        drawn = charts.CHARTS[name](found)
        drawn.set_dpi(DPI)
        style.save_drawing(drawn, folder / f'{name}.png')
