"""The paper's tables, with the flags of our runs beside each row, from tables.json.

Snell, Swersky and Zemel (2017), arXiv:1703.05175v2. Accuracies in percent, as printed there.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One row of a table."""

    name: str
    paper: tuple[str, ...]  # one accuracy per column
    runs: tuple[dict, ...]  # flags of one run for all columns, or of two for alternating columns
    features: str = ''  # network behind the paper's image features (CUB)

    @property
    def label(self) -> str:
        return f'{self.name}, {self.features} features' if self.features else self.name


class Table(NamedTuple):
    """A table of the paper. Columns are settings in results.json."""

    number: int  # in the paper
    title: str
    experiment: str  # command that makes our rows
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str

    def by_column(self, row: Row) -> tuple[dict, ...]:
        """Return the flags behind each column of a row."""
        return row.runs * (len(self.columns) // len(row.runs))


UNNAMED = 'unnamed'  # features of unknown origin (CUB)
CUB_CLASSES = [100, 50, 50]  # training, validation and test classes
# Defaults that make a model one of the paper's, also for configs without the field.
USUAL = {
    'model': 'prototypical',
    'distance': 'euclidean',
    'prototypes_per_class': 1,
    'encoder': 'conv4',
    'context': 'none',
    'embedding': 'shared',
    'finetune': 0,
    'init': '',
    'two_sided': False,
    'sphere': False,
    'unit_length': True,
    'dimensions': 1024,
}


def _load(path: Path) -> Iterator[tuple[str, Table]]:
    for name, values in json.loads(path.read_text()).items():
        rows = [Row(**{**row, 'paper': tuple(row['paper']), 'runs': tuple(row['runs'])}) for row in values['rows']]
        yield name, Table(**{**values, 'columns': tuple(values['columns']), 'rows': tuple(rows)})


TABLES = dict(_load(Path(__file__).with_name('tables.json')))


def matching_results(experiment: str, results: dict) -> dict[str, str]:
    """Return the paper's accuracies for a model trained like the evaluated one, by column."""
    trained = results['weights']['config'] if 'weights' in results else results['config']
    finetune = results['config'].get('finetune', 0)  # at test time, so not a property of the weights
    trained, found = {**USUAL, **trained, 'finetune': finetune}, {}
    for table in TABLES.values():
        rows = [row for row in table.rows if not difference(experiment, results, row.features)]
        cells = [cell for row in rows for cell in zip(table.columns, row.paper, table.by_column(row), strict=True)]
        for column, accuracy, run in cells if table.experiment == experiment else ():
            if {**trained, **USUAL, **run} == trained:
                found.setdefault(column, accuracy)
    return found


def difference(experiment: str, results: dict, features: str = 'GoogLeNet') -> str:
    """Return why a run's data cannot be compared with the paper's, or '' if they can.

    Args:
        features: The network behind the paper's image features (CUB).
    """
    if results['synthetic'] or experiment not in {table.experiment for table in TABLES.values()}:
        return 'synthetic data' if results['synthetic'] else 'another data set'
    if results['evaluated_on'] != 'test':
        return f'{results["evaluated_on"]} classes'
    if experiment == 'cub' and results.get('classes', CUB_CLASSES) != CUB_CLASSES:
        return 'another split of the classes'
    used = results.get('features', UNNAMED)
    return f'{"other" if used == UNNAMED else used} features' if experiment == 'cub' and used != features else ''
