"""Pages: tables made from published records."""

import pytest

from experiments import cub, miniimagenet, omniglot
from experiments.paper import pages, records
from tests.helpers.records import record

MINI = ('5-way 1-shot', '5-way 5-shot')


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Return a function that publishes a made-up finished run in an empty directory."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path)

    def add(program=omniglot, *, looks=(), about=(), **given):
        given.setdefault('columns', MINI)
        about = {'seconds': 120.0, 'curve': {str(n): {'accuracy': 50, 'loss': 2} for n in looks}, **dict(about)}
        records.append(program.EXPERIMENT.name, record(program, about=about, **given))

    return add


def cells(lines):
    """The cells of a Markdown table without its header."""
    rows = [line for line in lines if line.startswith('|')]
    return [[cell.strip() for cell in row.strip('|').split('|')] for row in rows[2:]]


def test_each_column_is_of_the_model_of_its_shot(add):
    add(accuracy=10.0, scale_init='ones')
    add(accuracy=90.0)
    add(accuracy=92.0, seed=1)
    add(accuracy=99.0, shot=5)
    add(accuracy=95.0, recipe='modern')
    ours, modern, paper, _ = cells(pages.main())
    assert ours == ["protojax, paper's recipe", '91.00 ± 0.50', '99.00 ± 0.50', *[''] * 5]
    assert modern[1:3] == ['95.00 ± 0.50', ''] and paper[1:5] == ['98.8', '99.7', '96.0', '98.9']
    lines = pages.KINDS['paper']('omniglot')
    assert cells(lines)[-1][1:5] == ['91.00 ± 0.50 [90.00, 92.00]', '98.8', '99.00 ± 0.50', '99.7']
    assert 'python -m experiments.omniglot --way=60 --shot=5' in lines
    assert '# Prototypical networks: 2 min each (seeds 0, 1)' in lines
    assert '# Prototypical networks: 2 min (seed 0)' in lines
    add(accuracy=80.0, episodes=70)
    assert pages.KINDS['paper']('omniglot') == lines  # shorter training is only shown on request
    assert cells(pages.KINDS['paper']('omniglot --episodes=70'))[-1][1:3] == ['80.00 ± 0.50', 'not run']


def test_the_overview_has_a_status_for_each_row(add):
    def statuses():
        lines = pages.KINDS['overview']('')
        return lines[0], {(row[0], row[1]): row[2:] for row in cells(lines)}

    count, rows = statuses()
    assert count == '0 of 46 rows are comparable.' and len(rows) == 46
    assert rows['1', 'Prototypical networks'][1:] == ['- / - / - / -', '-', '-', '-', 'not run']
    rule = {'episodes': 6000, 'patience': 6, 'validate_every': 250}
    ten_way, paper = ('6', '1-shot, 15 queries, 10-way'), '48.27 / 64.18'
    add(miniimagenet, way=10, evaluate_on='validation', episodes=1000, accuracy=40.0)
    reason = 'validation classes, 1,000 training episodes'
    assert statuses()[1][ten_way] == [paper, '40.00 / 40.00', 'validation', '1,000', '1', reason]
    add(miniimagenet, way=10, **{**rule, 'patience': 5})
    assert statuses()[1][ten_way][-1] == 'stopped after 1,250 episodes without improvement'
    add(miniimagenet, way=10, **rule, accuracy=48.0)
    count, rows = statuses()
    assert rows[ten_way] == [paper, '48.00 / 48.00', 'test', '6,000', '1', 'comparable']
    assert count == '1 of 46 rows are comparable.'
    add(cub, columns=('50-way per image',), accuracy=60.0, about={'features': 'ResNet-50'})
    assert cells(pages.main())[0][-1] == '60.00 ± 0.50 (ResNet-50)'
    name = 'Prototypical networks, GoogLeNet features (ours: ResNet-50 features)'
    assert cells(pages.KINDS['paper']('cub'))[-1][:3] == [name, '60.00 ± 0.50', '54.6']


CHOICES = """\
python -m experiments.omniglot --way=60 --shot=1
the recipe:
nearest: --resize=nearest
not run: --resize=nearest --scale_init=ones"""


def test_ablations_are_compared_with_the_first_row_at_its_length(add):
    add(episodes=70, columns=['20-way 1-shot'], looks=(500, 1000))
    add(episodes=60, resize='nearest', accuracy=50.0)
    add(episodes=70, resize='nearest', accuracy=89.25, columns=['20-way 1-shot'], looks=(1000,))
    assert cells(pages.KINDS['choices'](CHOICES)) == [
        ['the recipe', '', '90.00 ± 0.50', '0'],
        ['nearest', '`--resize=nearest`', '89.25 ± 0.50 (-0.75)', '0'],
    ]
    curves = [['the recipe', '50.00 (2.000)', '50.00 (2.000)'], ['nearest', '', '50.00 (2.000)']]
    assert cells(pages.KINDS['curves'](CHOICES)) == curves


def test_one_shot_matching_and_prototypical_networks_are_the_same_model(add):
    matching = lambda: cells(pages.KINDS['paper']('miniimagenet'))[1][1:4:2]  # noqa: E731
    for shot, accuracy in ((5, 46.0), (1, 37.0)):
        add(miniimagenet, way=5, shot=shot, distance='cosine', accuracy=accuracy)
    assert matching() == ['37.00 ± 0.50', 'not run']
    add(miniimagenet, way=5, model='matching', distance='cosine', accuracy=38.0)
    assert matching() == ['38.00 ± 0.50', 'not run']


def test_gains_are_between_runs_of_the_same_kind(add):
    five_way = lambda: cells(pages.KINDS['gains']('distance'))[0]  # noqa: E731
    add(miniimagenet, way=5, accuracy=43.0)
    add(miniimagenet, way=5, distance='cosine', episodes=70, accuracy=30.0)
    assert five_way() == ['both, 1-shot, 5-way', '', '+7.79', '', '+15.30', '']
    add(miniimagenet, way=5, distance='cosine', accuracy=37.5)
    assert five_way()[1:4] == ['+5.50', '+7.79', '+5.50']
