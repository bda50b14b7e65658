"""The paper's figures, and when they stand beside ours."""

import pytest

from experiments.reporting.paper import TABLES, paper_figures
from experiments.running.results import results_as_flags, results_table


def results(split='test', synthetic=False, weights=None, **config):
    score = {'accuracy': 50.0, 'ci95': 0.5, 'loss': 1.0, 'episodes': 600}
    columns = [f'{way}-way {shot}-shot' for way in (5, 20) for shot in (1, 5)] + ['50-way per image']
    origin = {} if weights is None else {'weights': {'config': weights}}
    made = {'dataset': 'Things', 'synthetic': synthetic, 'evaluated_on': split, 'config': config, **origin}
    return {**made, split: dict.fromkeys(columns, score)}


FIVE_WAY = {'way': 5, 'shot': 1, 'query': 15, 'model': 'prototypical', 'distance': 'cosine'}
MAIN = {'way': 60, 'shot': 5, 'query': 5}
COSINE = {'model': 'matching', 'distance': 'cosine'}
BIRDS = {'way': 50, 'query': 10}


# The tables once more, row by row as the paper prints them, without the intervals.
PAPERS = {
    'omniglot': """
        98.1 98.9 93.8 98.5
        97.9 98.7 93.5 98.7
        98.1 99.5 93.2 98.1
        98.8 99.7 96.0 98.9""",
    'omniglot-way': """
        97.4 99.3 92.0 97.8
        98.7 99.6 95.4 98.8
        98.8 99.7 96.0 99.0
        96.9 99.3 90.7 97.8
        98.1 99.6 94.1 98.7
        98.5 99.7 94.7 98.9""",
    'miniimagenet': """
        28.86 49.79
        43.40 51.09
        43.56 55.31
        43.44 60.60
        49.42 68.20""",
    'distance': """
        38.82 44.54
        46.61 59.84
        43.63 51.34
        49.17 62.66
        46.43 54.60
        46.43 60.97
        46.46 55.77
        47.99 63.66
        42.48 51.23
        44.53 65.77
        42.45 51.48
        43.57 68.20""",
    'way': """
        46.14 61.36
        48.27 64.18
        48.60 64.62
        48.57 65.04
        48.51 64.63
        49.42 65.38
        44.53 65.77
        45.09 67.49
        44.07 68.03
        43.57 68.20
        43.32 67.66
        41.38 66.79""",
    'cub': """
        26.9 -
        40.3 -
        44.3 -
        50.1 -
        50.4 -
        50.9 -
        54.6 -""",
}
# Half widths of the intervals in hundredths, of those tables that have them.
INTERVALS = {
    'miniimagenet': '54 79  78 71  84 73  77 71  78 66',
    'distance': '69 56  78 64  76 64  83 71  74 62  78 67  79 69  79 68  74 63  76 70  73 70  82 66',
    'way': '77 68  79 68  76 66  79 69  83 69  78 68  76 70  79 70  80 66  82 66  79 68  81 66',
}


@pytest.mark.parametrize('name', TABLES)
def test_figures_are_the_papers(name):
    figures = [[figure.partition(' ± ') for figure in row.paper] for row in TABLES[name].rows]
    assert [[figure[0] for figure in row] for row in figures] == [line.split() for line in PAPERS[name].split('\n')[1:]]
    widths = [figure[2] for row in figures for figure in row if figure[2]]
    assert widths == [f'0.{width}' for width in INTERVALS.get(name, '').split()]


def test_figures_stand_in_the_rows_that_they_belong_to():
    """Names and order of the rows, which are the paper's, by one row of each table."""
    papers = {name: {row.name: row.paper for row in table.rows} for name, table in TABLES.items()}
    assert papers['omniglot']['Neural statistician'] == ('98.1', '99.5', '93.2', '98.1')
    assert papers['omniglot-way']['5-shot, 15 queries, 20-way'] == ('98.1', '99.6', '94.1', '98.7')
    assert papers['miniimagenet']['Meta-learner LSTM'] == ('43.44 ± 0.77', '60.60 ± 0.71')
    assert papers['distance']['matching, cosine, 5-shot, 20-way'] == ('46.46 ± 0.79', '55.77 ± 0.69')
    assert papers['way']['5-shot, 15 queries, 30-way'] == ('41.38 ± 0.81', '66.79 ± 0.66')
    systems = [(row.name, row.features) for row in TABLES['cub'].rows]
    assert systems == [
        ('ALE', 'Fisher'), ('SJE', 'AlexNet'), ('Sample clustering', 'AlexNet'), ('SJE', 'GoogLeNet'),
        ('DS-SJE', 'GoogLeNet'), ('DA-SJE', 'GoogLeNet'), ('Prototypical networks', 'GoogLeNet'),
    ]  # fmt: skip


def test_every_row_is_a_command():
    assert all(row.runs for table in TABLES.values() for row in table.rows)


def test_settings_that_stand_in_two_tables_have_one_interval():
    way = {(r.runs[0]['shot'], r.runs[0]['way']): r.paper for r in TABLES['way'].rows}
    distance = {r.name: r.paper for r in TABLES['distance'].rows}
    main = TABLES['miniimagenet'].rows[-1].paper
    assert way[5, 5] == distance['prototypical, euclidean, 5-shot, 5-way']
    assert way[5, 20] == distance['prototypical, euclidean, 5-shot, 20-way']
    assert (way[1, 30][0], way[5, 20][1]) == main
    assert all(' ± 0.' in figure for row in TABLES['way'].rows for figure in row.paper)


@pytest.mark.parametrize(
    ('experiment', 'run', 'expected'),
    [
        ('omniglot', results(**MAIN), {'5-way 1-shot': '98.5', '20-way 5-shot': '98.9'}),
        ('omniglot', results(**MAIN, encoder='conv4', temperature=64.0), {'20-way 1-shot': '94.7'}),
        ('miniimagenet', results(**FIVE_WAY), {'5-way 1-shot': '38.82 ± 0.69', '5-way 5-shot': '44.54 ± 0.56'}),
        ('omniglot', results(way=7, shot=1, query=1, weights=MAIN), {'5-way 1-shot': '98.5'}),
        ('omniglot', results(finetune=5, weights={**MAIN, **COSINE}), {'5-way 5-shot': '98.7'}),
        ('cub', {**results(**BIRDS), 'features': 'GoogLeNet'}, {'50-way per image': '54.6'}),
        ('cub', {**results(model='sje'), 'features': 'GoogLeNet'}, {'50-way per image': '50.1'}),
        ('cub', {**results(model='sje'), 'features': 'AlexNet'}, {'50-way per image': '40.3'}),
    ],
)
def test_a_figure_stands_beside_the_same_setting(experiment, run, expected):
    found = paper_figures(experiment, run)
    assert {**found, **expected} == found
    for column, figure in expected.items():
        assert f'| {column} ' in results_table(run, experiment) and f'| {figure} ' in results_table(run, experiment)


@pytest.mark.parametrize(
    ('experiment', 'run', 'note'),
    [
        ('miniimagenet', results('validation', **FIVE_WAY), 'validation classes'),
        ('miniimagenet', results(synthetic=True, **FIVE_WAY), 'synthetic data'),
        ('miniimagenet', results(**{**FIVE_WAY, 'way': 7}), 'no figures of a model'),
        ('miniimagenet', results(**{**FIVE_WAY, 'shot': 2}), 'no figures of a model'),
        ('miniimagenet', results(**{**FIVE_WAY, 'query': 5}), 'no figures of a model'),
        ('miniimagenet', results(**{**FIVE_WAY, 'distance': 'mahalanobis'}), 'no figures of a model'),
        ('miniimagenet', results(**FIVE_WAY, encoder='resnet12'), 'no figures of a model'),
        ('omniglot', results(**MAIN, distance='cosine'), 'no figures of a model'),
        ('omniglot', results(**MAIN, weights={'way': [60], 'shot': {}}), 'no figures of a model'),  # a foreign file's
        ('cub', results(**BIRDS), 'other features'),
        ('cub', {**results(**BIRDS), 'features': 'ResNet-50'}, 'ResNet-50 features'),
        ('cub', {**results(**BIRDS), 'features': 'GoogLeNet', 'classes': [150, 0, 50]}, 'another division'),
        ('cub', {**results(model='ale'), 'features': 'GoogLeNet'}, 'no figures of a model'),  # but on Fisher vectors
        ('miniimagenet', results(**{**FIVE_WAY, 'context': 'fce'}), 'no figures of a model'),
        ('omniglot', results(**MAIN, finetune=5), 'no figures of a model'),
        ('omniglot', results(finetune=2, weights=MAIN), 'no figures of a model'),
        ('omniglot', results(finetune=2, weights={**MAIN, **COSINE, 'finetune': 0}), 'no figures of a model'),
        ('omniglot', results(**MAIN, sphere=True), 'no figures of a model'),
        ('cub', {**results(**BIRDS, unit_length=False), 'features': 'GoogLeNet'}, 'no figures of a model'),
        ('cub', {**results(**BIRDS, dimensions=64), 'features': 'GoogLeNet'}, 'no figures of a model'),
        ('cub', {**results(**BIRDS), 'features': 'not told'}, 'other features'),
        ('cub', {**results(**BIRDS), 'features': 'AlexNet'}, 'AlexNet features'),
        ('folder', results(**FIVE_WAY), 'another data set'),
    ],
)
def test_else_there_is_a_dash_and_a_note(experiment, run, note):
    assert paper_figures(experiment, run) == {}
    lines = results_table(run, experiment).splitlines()
    assert note in lines[-1]
    assert [line.split('|')[3].strip() for line in lines if ' 50.00 ± 0.50 ' in line] == ['-'] * 5


def test_flags_that_are_unusual_are_named():
    assert results_as_flags(MAIN | {'model': 'prototypical', 'seed': 3}) == '--way=60 --shot=5 --query=5 --seed=3'
    text = results_as_flags({**MAIN, **COSINE, 'context': 'fce'})
    assert text == '--way=60 --shot=5 --query=5 --model="matching" --distance="cosine" --context="fce"'
    assert results_as_flags({'shot': 5, 'init': 'first.safetensors'}) == '--shot=5 --init="first.safetensors"'
