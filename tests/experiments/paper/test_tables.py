"""The paper's results, and when they are comparable with ours."""

import pytest

from experiments.paper.tables import TABLES, matching_results


def results(split='test', weights=None, **config):
    origin = {} if weights is None else {'weights': {'config': weights}}
    return {'synthetic': False, 'evaluated_on': split, 'config': config, **origin}


FIVE_WAY = {'way': 5, 'shot': 1, 'query': 15, 'model': 'prototypical', 'distance': 'cosine'}
MAIN = {'way': 60, 'shot': 5, 'query': 5}
COSINE = {'model': 'matching', 'distance': 'cosine'}
BIRDS = {'way': 50, 'query': 10}
# Number of rows and sum of each column, added up from the paper.
SUMS = {
    'omniglot': (4, 392.9, 396.8, 376.5, 394.2),
    'omniglot-way': (6, 588.4, 597.2, 562.9, 591.0),
    'miniimagenet': (5, 208.68, 284.99),
    'distance': (12, 538.57, 690.06),
    'way': (12, 551.47, 789.15),
    'cub': (7, 317.5, 0),
}


@pytest.mark.parametrize('name', TABLES)
def test_numbers_are_the_papers(name):
    rows = [[float(cell.split(' ±')[0].replace('-', '0')) for cell in row.paper] for row in TABLES[name].rows]
    assert [len(rows), *map(sum, zip(*rows, strict=True))] == pytest.approx(SUMS[name])


def test_numbers_are_in_their_rows():
    """One row of each table."""
    papers = {name: {row.name: row.paper for row in table.rows} for name, table in TABLES.items()}
    assert papers['omniglot']['Neural statistician'] == ('98.1', '99.5', '93.2', '98.1')
    assert papers['omniglot-way']['5-shot, 15 queries, 20-way'] == ('98.1', '99.6', '94.1', '98.7')
    assert papers['miniimagenet']['Meta-learner LSTM'] == ('43.44 ± 0.77', '60.60 ± 0.71')
    assert papers['distance']['matching, cosine, 5-shot, 20-way'] == ('46.46 ± 0.79', '55.77 ± 0.69')
    assert papers['way']['5-shot, 15 queries, 30-way'] == ('41.38 ± 0.81', '66.79 ± 0.66')
    assert ' '.join(row.paper[0] for row in TABLES['cub'].rows) == '26.9 40.3 44.3 50.1 50.4 50.9 54.6'


@pytest.mark.parametrize(
    ('experiment', 'run', 'expected'),
    [
        ('omniglot', results(**MAIN), {'5-way 1-shot': '98.5', '20-way 5-shot': '98.9'}),
        ('miniimagenet', results(**FIVE_WAY), {'5-way 1-shot': '38.82 ± 0.69', '5-way 5-shot': '44.54 ± 0.56'}),
        ('omniglot', results(way=7, shot=1, query=1, weights=MAIN), {'5-way 1-shot': '98.5'}),
        ('omniglot', results(finetune=5, weights={**MAIN, **COSINE}), {'5-way 5-shot': '98.7'}),
        ('cub', {**results(model='sje'), 'features': 'GoogLeNet'}, {'50-way per image': '50.1'}),
    ],
)
def test_a_number_belongs_to_models_trained_the_same_way(experiment, run, expected):
    found = matching_results(experiment, run)
    assert {**found, **expected} == found


@pytest.mark.parametrize(
    ('experiment', 'run'),
    [
        ('miniimagenet', results('validation', **FIVE_WAY)),
        ('miniimagenet', {**results(**FIVE_WAY), 'synthetic': True}),
        ('miniimagenet', results(**FIVE_WAY, encoder='resnet12')),
        ('omniglot', results(**MAIN, weights={'way': [60], 'shot': {}})),  # an untrusted file
        ('omniglot', results(finetune=2, weights={**MAIN, **COSINE, 'finetune': 0})),
        ('cub', results(**BIRDS)),
        ('cub', {**results(**BIRDS), 'features': 'GoogLeNet', 'classes': [150, 0, 50]}),
        ('cub', {**results(model='ale'), 'features': 'GoogLeNet'}),  # the paper has it on Fisher vectors
        ('folder', results(**FIVE_WAY)),
    ],
)
def test_other_models_have_no_number(experiment, run):
    assert matching_results(experiment, run) == {}
