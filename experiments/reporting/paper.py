"""The rows of the paper's tables as data: its figures, and for our own rows the flags of the runs behind them."""

from types import ModuleType
from typing import NamedTuple

from experiments import cub, miniimagenet, omniglot


class Row(NamedTuple):
    """One line of a table."""

    name: str
    paper: tuple[str, ...]  # accuracy in percent as the paper gives it, one per column
    runs: tuple[dict, ...] = ()  # flags of one run for all columns, or of one run per column; none: a quoted row


class Table(NamedTuple):
    """A table of the paper, in columns that are settings of results.json."""

    title: str
    binary: ModuleType
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str


MINIIMAGENET_COLUMNS = ('5-way 1-shot', '5-way 5-shot')


def omniglot_run(shot, way):
    return {'way': way, 'shot': shot, 'query': 5 if way == 60 else 15}


def miniimagenet_run(shot, way, model='prototypical', distance='euclidean'):
    return {'model': model, 'distance': distance, 'shot': shot, 'way': way}


def omniglot_way_row(way, shot):
    run, paper = omniglot_run(shot, way), omniglot.PAPER[way, shot]
    return Row(f'{shot}-shot, {run["query"]} queries, {way}-way', paper, (run,))


def distance_row(model, distance, shot, way, *paper):
    run = miniimagenet_run(shot, way, 'prototypical' if model == 'both' else model, distance)
    return Row(f'{model}, {distance}, {shot}-shot, {way}-way', paper, (run,))


def way_row(shot, way, *paper):
    return Row(f'{shot}-shot, {way}-way', paper, (miniimagenet_run(shot, way),))


ONE_SHOT, FIVE_SHOT = omniglot_run(1, 60), omniglot_run(5, 60)

TABLES = {
    'omniglot': Table(
        'Omniglot (table 1)',
        omniglot,
        omniglot.COLUMNS,
        (
            Row('Matching networks, cosine', ('98.1', '98.9', '93.8', '98.5')),
            Row('Matching networks, cosine, fine-tuned', ('97.9', '98.7', '93.5', '98.7')),
            Row('Neural statistician', ('98.1', '99.5', '93.2', '98.1')),
            Row(
                'Prototypical networks',
                ('98.8', '99.7', '96.0', '98.9'),
                (ONE_SHOT, FIVE_SHOT, ONE_SHOT, FIVE_SHOT),
            ),
        ),
        'Each column is of the 60-way model that was trained with the shot of that column.',
    ),
    'omniglot-way': Table(
        'Omniglot, training shot, queries and way',
        omniglot,
        omniglot.COLUMNS,
        tuple(omniglot_way_row(way, shot) for way, shot in omniglot.PAPER),
        'Rows are settings of training, columns of the test.',
    ),
    'miniimagenet': Table(
        'miniImageNet (table 2)',
        miniimagenet,
        MINIIMAGENET_COLUMNS,
        (
            Row('Nearest neighbours on classifier features, cosine', ('28.86 ± 0.54', '49.79 ± 0.79')),
            Row('Matching networks, cosine', ('43.40 ± 0.78', '51.09 ± 0.71')),
            Row('Matching networks FCE, cosine', ('43.56 ± 0.84', '55.31 ± 0.73')),
            Row('Meta-learner LSTM', ('43.44 ± 0.77', '60.60 ± 0.71')),
            Row(
                'Prototypical networks',
                ('49.42 ± 0.78', '68.20 ± 0.66'),
                (miniimagenet_run(1, 30), miniimagenet_run(5, 20)),
            ),
        ),
        'Each column is of the model that was trained with the shot of that column: 30-way for one, 20-way for five.',
    ),
    'distance': Table(
        'miniImageNet, distance, training shot and way',
        miniimagenet,
        MINIIMAGENET_COLUMNS,
        (
            distance_row('both', 'cosine', 1, 5, '38.82 ± 0.69', '44.54 ± 0.56'),
            distance_row('both', 'euclidean', 1, 5, '46.61 ± 0.78', '59.84 ± 0.64'),
            distance_row('both', 'cosine', 1, 20, '43.63 ± 0.76', '51.34 ± 0.64'),
            distance_row('both', 'euclidean', 1, 20, '49.17 ± 0.83', '62.66 ± 0.71'),
            distance_row('matching', 'cosine', 5, 5, '46.43 ± 0.74', '54.60 ± 0.62'),
            distance_row('matching', 'euclidean', 5, 5, '46.43 ± 0.78', '60.97 ± 0.67'),
            distance_row('matching', 'cosine', 5, 20, '46.46 ± 0.79', '55.77 ± 0.69'),
            distance_row('matching', 'euclidean', 5, 20, '47.99 ± 0.79', '63.66 ± 0.68'),
            distance_row('prototypical', 'cosine', 5, 5, '42.48 ± 0.74', '51.23 ± 0.63'),
            distance_row('prototypical', 'euclidean', 5, 5, '44.53 ± 0.76', '65.77 ± 0.70'),
            distance_row('prototypical', 'cosine', 5, 20, '42.45 ± 0.73', '51.48 ± 0.70'),
            distance_row('prototypical', 'euclidean', 5, 20, '43.57 ± 0.82', '68.20 ± 0.66'),
        ),
        'Prototypical and matching networks agree in one-shot training, so "both" is run with the prototypical model, '
        'which also makes its 5-shot test.',
    ),
    'way': Table(
        'miniImageNet, training way',
        miniimagenet,
        MINIIMAGENET_COLUMNS,
        (
            way_row(1, 5, '46.14', '61.36'),
            way_row(1, 10, '48.27', '64.18'),
            way_row(1, 15, '48.60', '64.62'),
            way_row(1, 20, '48.57', '65.04'),
            way_row(1, 25, '48.51', '64.63'),
            way_row(1, 30, '49.42', '65.38'),
            way_row(5, 5, '44.53', '65.77'),
            way_row(5, 10, '45.09', '67.49'),
            way_row(5, 15, '44.07', '68.03'),
            way_row(5, 20, '43.57', '68.20'),
            way_row(5, 25, '43.32', '67.66'),
            way_row(5, 30, '41.38', '66.79'),
        ),
        'Prototypical networks with squared Euclidean distance. Rows are settings of training, columns of the test.',
    ),
    'cub': Table(
        'CUB zero-shot (table 3)',
        cub,
        ('50-way per image', '50-way per class'),
        (
            Row('ALE (Fisher)', ('26.9', '-')),
            Row('SJE (AlexNet)', ('40.3', '-')),
            Row('Sample clustering (AlexNet)', ('44.3', '-')),
            Row('SJE (GoogLeNet)', ('50.1', '-')),
            Row('DS-SJE', ('50.4', '-')),
            Row('DA-SJE', ('50.9', '-')),
            Row('Prototypical networks', ('54.6', '-'), ({},)),
        ),
        "The paper's features are GoogLeNet's; ours are those that --source gave.",
    ),
}
