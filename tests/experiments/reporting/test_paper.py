"""The paper's figures, and when they stand beside ours."""

import pytest

from experiments.reporting.paper import TABLES, paper_figures
from experiments.running.results import results_table


def results(split='test', synthetic=False, weights=None, **config):
    score = {'accuracy': 50.0, 'ci95': 0.5, 'loss': 1.0, 'episodes': 600}
    columns = [f'{way}-way {shot}-shot' for way in (5, 20) for shot in (1, 5)] + ['50-way per image']
    origin = {} if weights is None else {'weights': {'config': weights}}
    made = {'dataset': 'Things', 'synthetic': synthetic, 'evaluated_on': split, 'config': config, **origin}
    return {**made, split: dict.fromkeys(columns, score)}


FIVE_WAY = {'way': 5, 'shot': 1, 'query': 15, 'model': 'prototypical', 'distance': 'cosine'}
MAIN = {'way': 60, 'shot': 5, 'query': 5}


def test_figures_are_the_papers():
    """One figure from each table, and the number of rows, against a second copy."""
    papers = {name: {row.name: row.paper for row in table.rows} for name, table in TABLES.items()}
    assert {name: len(rows) for name, rows in papers.items()} == {
        'omniglot': 4, 'omniglot-way': 6, 'miniimagenet': 5, 'distance': 12, 'way': 12, 'cub': 7,
    }  # fmt: skip
    assert papers['omniglot']['Neural statistician'] == ('98.1', '99.5', '93.2', '98.1')
    assert papers['omniglot-way']['5-shot, 15 queries, 20-way'] == ('98.1', '99.6', '94.1', '98.7')
    assert papers['miniimagenet']['Meta-learner LSTM'] == ('43.44 ± 0.77', '60.60 ± 0.71')
    assert papers['distance']['matching, cosine, 5-shot, 20-way'] == ('46.46 ± 0.79', '55.77 ± 0.69')
    assert papers['way']['5-shot, 15 queries, 30-way'] == ('41.38 ± 0.81', '66.79 ± 0.66')
    assert papers['cub']['SJE'] == ('50.1', '-')
    assert papers['cub']['Prototypical networks'] == ('54.6', '-')


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
        ('cub', {**results(way=50, query=10), 'features': 'GoogLeNet'}, {'50-way per image': '54.6'}),
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
        ('cub', results(way=50, query=10), 'other features'),
        ('cub', {**results(way=50, query=10), 'features': 'ResNet-50'}, 'ResNet-50 features'),
        ('cub', {**results(way=50, query=10), 'features': 'GoogLeNet', 'classes': [150, 0, 50]}, 'another division'),
        ('cub', {**results(model='ale'), 'features': 'GoogLeNet'}, 'no figures of a model'),  # but on Fisher vectors
        ('miniimagenet', results(**{**FIVE_WAY, 'context': 'fce'}), 'no figures of a model'),
        ('omniglot', results(**MAIN, finetune=5), 'no figures of a model'),
        ('folder', results(**FIVE_WAY), 'another data set'),
    ],
)
def test_else_there_is_a_dash_and_a_note(experiment, run, note):
    assert paper_figures(experiment, run) == {}
    lines = results_table(run, experiment).splitlines()
    assert note in lines[-1]
    assert [line.split('|')[3].strip() for line in lines if ' 50.00 ± 0.50 ' in line] == ['-'] * 5
