"""Charts of published figures."""

import pytest

from experiments.reporting import charts
from experiments.reporting.drawing import encoded_drawing

COLUMNS = ('5-way 1-shot', '5-way 5-shot')
OURS, PAPER = {'accuracy': 50.0, 'ci95': 0.5, 'labels': []}, {'accuracy': 60.0, 'ci95': None}


def found(*runs, ours=OURS):
    cells = {column: {'ours': ours, 'paper': PAPER} for column in COLUMNS}
    return {
        'title': 'a table',
        'columns': COLUMNS,
        'rows': [{'name': str(run), 'runs': (run,), 'cells': cells} for run in runs],
    }


def run(shot, way, model='prototypical', distance='euclidean'):
    return {'shot': shot, 'way': way, 'model': model, 'distance': distance}


def heights(axes):
    return [bar.get_height() for bar in axes.patches]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def notes(figure):
    return figure.get_supxlabel()


def test_bars_begin_at_zero_and_stand_in_the_panel_of_their_shot():
    one, five = (
        run(1, 5),
        [
            run(5, 5, model, distance)
            for model in charts.MODELS
            if model != 'both'
            for distance in ('cosine', 'euclidean')
        ],
    )
    figure = charts.distance_chart(found(one, *five))
    left, right = figure.axes
    assert heights(left) == [50, 60] and heights(right) == [50, 60] * 4
    assert all(bar.get_y() == 0 for axes in figure.axes for bar in axes.patches) and left.get_ylim()[0] == 0
    assert [label.get_text() for label in right.get_xticklabels()] == ['5-way\ncosine', '5-way\nEuclid.']
    assert encoded_drawing(figure)


def test_lines_by_way_with_intervals():
    figure = charts.way_chart(found(*(run(shot, way) for shot in (1, 5) for way in (5, 10))))
    left, _ = figure.axes
    assert len(left.containers) == 4  # two training shots, ours and the paper's
    assert left.containers[0].lines[0].get_xydata().tolist() == [[5, 50], [10, 50]]
    assert encoded_drawing(figure)


@pytest.mark.parametrize('chart', [charts.way_chart, charts.distance_chart])
def test_a_chart_says_what_ours_are(chart):
    assert 'protojax not measured yet' in notes(chart(found(run(1, 5), run(5, 5), ours=None)))
    stand_in = {**OURS, 'labels': ['synthetic data']}
    assert 'protojax on synthetic data' in legend(chart(found(run(1, 5), run(5, 5), ours=stand_in)))
    assert 'protojax' in legend(chart(found(run(1, 5), run(5, 5))))
    assert not [label for label in legend(chart(found(run(1, 5), run(5, 5), ours=None))) if 'protojax' in label]


def test_learning_curves():
    figure = charts.learning_curves(
        {'a run': [(1000, 90.0, 0.3), (2000, 95.0, 0.2)], 'b': [(1000, 80.0, 0.4)]}, 'remark'
    )
    accuracy, loss = figure.axes
    assert [line.get_ydata().tolist() for line in accuracy.lines] == [[90, 95], [80]]
    assert [line.get_ydata().tolist() for line in loss.lines] == [[0.3, 0.2], [0.4]]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['a run', 'b']


def row(name, seconds, first=0.1):
    return {'contender': name, 'seconds': seconds, 'ratio_to_first': seconds / first, 'turns': [seconds, 1.5 * seconds]}


def test_speed_is_shown_as_ratios():
    rows = [row('protojax', 0.1), row('protojax, baseline', 0.2), row('PyTorch NCHW', 0.4)]
    scaled = [row('protojax', 2, 2), row('PyTorch NCHW, each episode embedded (scaled)', 250, 2)]
    sections = [
        {'section': 'omniglot', 'unit': 'step', 'rows': rows},
        {'section': 'evaluation', 'unit': '1,000 episodes', 'rows': scaled},
        {'section': 'way', 'unit': 'step', 'rows': rows},
    ]
    machine = {'processor': 'a processor', 'versions': {'jax': '1', 'torch': None}}
    figure = charts.speed_chart({'machine': machine, 'rounds': 3, 'sections': sections})
    training, evaluation = figure.axes
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in training.patches]
    assert bars == [pytest.approx((1, ratio)) for ratio in (1, 4)]  # from the time of protojax to that of a contender
    assert [text.get_text() for text in evaluation.texts] == ['1×, 2 s', '125×, 250 s']
    assert [label.get_text() for label in training.get_yticklabels()] == ['protojax', 'PyTorch NCHW']
    assert 'a processor; jax 1.' in notes(figure)
