"""The paper's tables as data: its figures and, where protojax has the model, the flags of the runs beside them.

Snell, Swersky and Zemel (2017), arXiv:1703.05175v2. Accuracies in percent, as the paper prints them.
"""

from typing import NamedTuple


class PaperRow(NamedTuple):
    """One line of a table."""

    name: str
    paper: tuple[str, ...]  # one figure per column
    runs: tuple[dict, ...] = ()  # flags of one run for all columns, or of one run per column; none: of others
    features: str = ''  # where the inputs are not images: the network that the paper's features come from


class PaperTable(NamedTuple):
    """A table of the paper, in columns that are settings of results.json. The last row is the paper's main result."""

    title: str
    experiment: str  # name of the program that makes our rows
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    note: str
    others: tuple[PaperRow, ...] = ()  # what others have measured, with a link to where they say so

    def by_column(self, row):
        """The flags behind each column of a row."""
        return row.runs if len(row.runs) > 1 else row.runs * len(self.columns)


NOT_TOLD = 'not told'  # features whose network a run on CUB does not know
CUB_CLASSES = [100, 50, 50]  # of train, validation and test
COLUMNS = ('5-way 1-shot', '5-way 5-shot', '20-way 1-shot', '20-way 5-shot')
OFFICIAL_CODE = 'https://github.com/jakesnell/prototypical-networks/issues'
CLOSEST = '[the closest public re-implementation](https://github.com/Michedev/Prototypical-Networks-Few-Zero-Shot)'
# What makes a model one of the paper's, where a row does not say otherwise; a config without the field has this value.
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


def _omniglot(shot, way):
    return {'way': way, 'shot': shot, 'query': 5 if way == 60 else 15}


def _miniimagenet(shot, way, model='prototypical', distance='euclidean'):
    return {'model': model, 'distance': distance, 'shot': shot, 'way': way, 'query': 15}


COSINE = {'model': 'matching', 'distance': 'cosine'}
NEAREST = {'model': 'nearest', 'distance': 'cosine', 'way': 8, 'shot': 1}
STATISTICIAN = {'model': 'statistician', 'way': 16, 'shot': 1}


def _both_shots(run, way, **changes):
    """Runs of the 1-shot and of the 5-shot model."""
    return tuple({**run(shot, way), **changes} for shot in (1, 5))


def _paper_way_row(run, *paper):
    return PaperRow(f'{run["shot"]}-shot, {run["query"]} queries, {run["way"]}-way', paper, (run,))


def _paper_distance_row(model, distance, shot, way, *paper):
    run = _miniimagenet(shot, way, 'prototypical' if model == 'both' else model, distance)
    return PaperRow(f'{model}, {distance}, {shot}-shot, {way}-way', paper, (run,))


TABLES = {
    'omniglot': PaperTable(
        'Omniglot (table 1)',
        'omniglot',
        COLUMNS,
        (
            PaperRow(
                'Matching networks, cosine',
                ('98.1', '98.9', '93.8', '98.5'),
                _both_shots(_omniglot, 60, **COSINE) * 2,
            ),
            PaperRow(
                'Matching networks, cosine, fine-tuned',
                ('97.9', '98.7', '93.5', '98.7'),
                _both_shots(_omniglot, 60, **COSINE, finetune=5) * 2,
            ),
            PaperRow('Neural statistician', ('98.1', '99.5', '93.2', '98.1'), (STATISTICIAN,)),
            PaperRow('Prototypical networks', ('98.8', '99.7', '96.0', '98.9'), _both_shots(_omniglot, 60) * 2),
        ),
        'Each column of prototypical and matching networks uses the 60-way model trained with the same shot; the '
        'statistician has one model for all columns.',
        (
            PaperRow(f'[users of the official code]({OFFICIAL_CODE}/2)', ('98.4', '99.6', '94.9', '98.6')),
            PaperRow(CLOSEST, ('98.73', '99.65', '95.74', '98.84')),
        ),
    ),
    'omniglot-way': PaperTable(
        'Omniglot, training shot, queries and way (table 4)',
        'omniglot',
        COLUMNS,
        (
            _paper_way_row(_omniglot(1, 5), '97.4', '99.3', '92.0', '97.8'),
            _paper_way_row(_omniglot(1, 20), '98.7', '99.6', '95.4', '98.8'),
            _paper_way_row(_omniglot(1, 60), '98.8', '99.7', '96.0', '99.0'),
            _paper_way_row(_omniglot(5, 5), '96.9', '99.3', '90.7', '97.8'),
            _paper_way_row(_omniglot(5, 20), '98.1', '99.6', '94.1', '98.7'),
            _paper_way_row(_omniglot(5, 60), '98.5', '99.7', '94.7', '98.9'),
        ),
        'Rows are settings of training, columns of the test.',
    ),
    'miniimagenet': PaperTable(
        'miniImageNet (table 2)',
        'miniimagenet',
        COLUMNS[:2],
        (
            PaperRow('Nearest neighbours on classifier features, cosine', ('28.86 ± 0.54', '49.79 ± 0.79'), (NEAREST,)),
            PaperRow(
                'Matching networks, cosine', ('43.40 ± 0.78', '51.09 ± 0.71'), _both_shots(_miniimagenet, 5, **COSINE)
            ),
            PaperRow(
                'Matching networks FCE, cosine',
                ('43.56 ± 0.84', '55.31 ± 0.73'),
                _both_shots(_miniimagenet, 5, **COSINE, context='fce'),
            ),
            PaperRow(
                'Meta-learner LSTM',
                ('43.44 ± 0.77', '60.60 ± 0.71'),
                tuple({'model': 'metalstm', 'way': 5, 'shot': shot} for shot in (1, 5)),
            ),
            PaperRow(
                'Prototypical networks', ('49.42 ± 0.78', '68.20 ± 0.66'), (_miniimagenet(1, 30), _miniimagenet(5, 20))
            ),
        ),
        'Each column uses the model trained with the same shot (prototypical networks 30-way for one, 20-way for '
        'five), except for nearest neighbours, which have one model for both.',
        (
            PaperRow(f'[a user of the official code]({OFFICIAL_CODE}/5)', ('47.21', '62.63')),
            PaperRow(CLOSEST, ('49.75', '66.60')),
        ),
    ),
    'distance': PaperTable(
        'miniImageNet, distance, training shot and way (table 5)',
        'miniimagenet',
        COLUMNS[:2],
        (
            _paper_distance_row('both', 'cosine', 1, 5, '38.82 ± 0.69', '44.54 ± 0.56'),
            _paper_distance_row('both', 'euclidean', 1, 5, '46.61 ± 0.78', '59.84 ± 0.64'),
            _paper_distance_row('both', 'cosine', 1, 20, '43.63 ± 0.76', '51.34 ± 0.64'),
            _paper_distance_row('both', 'euclidean', 1, 20, '49.17 ± 0.83', '62.66 ± 0.71'),
            _paper_distance_row('matching', 'cosine', 5, 5, '46.43 ± 0.74', '54.60 ± 0.62'),
            _paper_distance_row('matching', 'euclidean', 5, 5, '46.43 ± 0.78', '60.97 ± 0.67'),
            _paper_distance_row('matching', 'cosine', 5, 20, '46.46 ± 0.79', '55.77 ± 0.69'),
            _paper_distance_row('matching', 'euclidean', 5, 20, '47.99 ± 0.79', '63.66 ± 0.68'),
            _paper_distance_row('prototypical', 'cosine', 5, 5, '42.48 ± 0.74', '51.23 ± 0.63'),
            _paper_distance_row('prototypical', 'euclidean', 5, 5, '44.53 ± 0.76', '65.77 ± 0.70'),
            _paper_distance_row('prototypical', 'cosine', 5, 20, '42.45 ± 0.73', '51.48 ± 0.70'),
            _paper_distance_row('prototypical', 'euclidean', 5, 20, '43.57 ± 0.82', '68.20 ± 0.66'),
        ),
        'Prototypical and matching networks agree in one-shot training, so "both" is run with the prototypical model, '
        'which also makes its 5-shot test.',
    ),
    'way': PaperTable(
        'miniImageNet, training way (table 6)',
        'miniimagenet',
        COLUMNS[:2],
        (
            _paper_way_row(_miniimagenet(1, 5), '46.14 ± 0.77', '61.36 ± 0.68'),
            _paper_way_row(_miniimagenet(1, 10), '48.27 ± 0.79', '64.18 ± 0.68'),
            _paper_way_row(_miniimagenet(1, 15), '48.60 ± 0.76', '64.62 ± 0.66'),
            _paper_way_row(_miniimagenet(1, 20), '48.57 ± 0.79', '65.04 ± 0.69'),
            _paper_way_row(_miniimagenet(1, 25), '48.51 ± 0.83', '64.63 ± 0.69'),
            _paper_way_row(_miniimagenet(1, 30), '49.42 ± 0.78', '65.38 ± 0.68'),
            _paper_way_row(_miniimagenet(5, 5), '44.53 ± 0.76', '65.77 ± 0.70'),
            _paper_way_row(_miniimagenet(5, 10), '45.09 ± 0.79', '67.49 ± 0.70'),
            _paper_way_row(_miniimagenet(5, 15), '44.07 ± 0.80', '68.03 ± 0.66'),
            _paper_way_row(_miniimagenet(5, 20), '43.57 ± 0.82', '68.20 ± 0.66'),
            _paper_way_row(_miniimagenet(5, 25), '43.32 ± 0.79', '67.66 ± 0.68'),
            _paper_way_row(_miniimagenet(5, 30), '41.38 ± 0.81', '66.79 ± 0.66'),
        ),
        'Prototypical networks with squared Euclidean distance. Rows are settings of training, columns of the test.',
    ),
    'cub': PaperTable(
        'CUB zero-shot (table 3)',
        'cub',
        ('50-way per image', '50-way per class'),
        (
            PaperRow('ALE', ('26.9', '-'), ({'model': 'ale'},), 'Fisher'),
            PaperRow('SJE', ('40.3', '-'), ({'model': 'sje'},), 'AlexNet'),
            PaperRow('Sample clustering', ('44.3', '-'), ({'model': 'clustering'},), 'AlexNet'),
            PaperRow('SJE', ('50.1', '-'), ({'model': 'sje'},), 'GoogLeNet'),
            PaperRow('DS-SJE', ('50.4', '-'), ({'model': 'ds-sje'},), 'GoogLeNet'),
            PaperRow('DA-SJE', ('50.9', '-'), ({'model': 'da-sje'},), 'GoogLeNet'),
            PaperRow('Prototypical networks', ('54.6', '-'), ({'way': 50, 'query': 10},), 'GoogLeNet'),
        ),
        'Each row names the network that its image features come from. Figures on other features cannot be compared.',
        (PaperRow(f'{CLOSEST}, GoogLeNet features', ('53.87', '-')),),
    ),
}


def paper_figures(experiment, results):
    """The paper's figures of a model like the one that was evaluated: {column: text}, empty where it has none."""
    trained = results['weights']['config'] if 'weights' in results else results['config']
    finetune = results['config'].get('finetune', 0)  # which is done at test, whoever trained the weights
    trained, found = {**USUAL, **trained, 'finetune': finetune}, {}
    for table in TABLES.values():
        rows = [row for row in table.rows if not difference_from_paper(experiment, results, row.features)]
        cells = [cell for row in rows for cell in zip(table.columns, row.paper, table.by_column(row), strict=True)]
        for column, figure, run in cells if table.experiment == experiment else ():
            if {**trained, **USUAL, **run} == trained:
                found.setdefault(column, figure)
    return found


def difference_from_paper(experiment, results, features='GoogLeNet'):
    """In what a run differs from all of the paper's, so that its figures cannot stand beside them; '' if in nothing.

    features: those of the paper's figures, on CUB.
    """
    if results['synthetic'] or experiment not in {table.experiment for table in TABLES.values()}:
        return 'synthetic data' if results['synthetic'] else 'another data set'
    if results['evaluated_on'] != 'test':
        return f'{results["evaluated_on"]} classes'
    if experiment == 'cub' and results.get('classes', CUB_CLASSES) != CUB_CLASSES:
        return 'another division of classes'
    used = results.get('features', NOT_TOLD)
    return f'{"other" if used == NOT_TOLD else used} features' if experiment == 'cub' and used != features else ''
