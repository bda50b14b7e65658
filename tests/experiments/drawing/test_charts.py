"""Charts of published results."""

from experiments.drawing import charts
from experiments.drawing.style import encoded_drawing

COLUMNS = ('5-way 1-shot', '5-way 5-shot')
OURS, PAPER = {'accuracy': 50.0, 'ci95': 0.5, 'labels': []}, {'accuracy': 60.0, 'ci95': None}


def found(*runs, ours=OURS):
    cells = {column: {'ours': ours, 'paper': PAPER} for column in COLUMNS}
    rows = [{'name': str(run), 'runs': (run,), 'cells': cells} for run in runs]
    return {'title': 'a table', 'columns': COLUMNS, 'rows': rows}


def run(shot, way, model='prototypical', distance='euclidean'):
    return {'shot': shot, 'way': way, 'model': model, 'distance': distance}


def test_bars_start_at_zero_in_the_panel_of_their_shot():
    models, distances = ('matching', 'prototypical'), ('cosine', 'euclidean')
    five = [run(5, 5, model, distance) for model in models for distance in distances]
    figure = charts.CHARTS['distance'](found(run(1, 5), *five))
    left, right = figure.axes
    assert [[bar.get_height() for bar in axes.patches] for axes in (left, right)] == [[50, 60], [50, 50, 60, 60] * 2]
    assert all(bar.get_y() == 0 for axes in figure.axes for bar in axes.patches) and left.get_ylim()[0] == 0
    assert [label.get_text() for label in right.get_xticklabels()] == ['5-way\ncosine', '5-way\neuclidean']
    assert encoded_drawing(figure)


def test_lines_by_way():
    figure = charts.CHARTS['way'](found(*(run(shot, way) for shot in (1, 5) for way in (5, 10))))
    ours, papers = (bars.lines[0].get_xydata().tolist() for bars in figure.axes[0].containers[:2])
    assert ours == [[5, 50], [10, 50]] and papers == [[5, 60], [10, 60]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [f'{shot}-shot training, {who}' for shot in (1, 5) for who in ('protojax', 'paper')]


def test_a_chart_names_our_data():
    cases = {'not measured yet': None, 'protojax: synthetic data': {**OURS, 'labels': ['synthetic data']}}
    for label, ours in cases.items():
        assert label in charts.CHARTS['way'](found(run(1, 5), run(5, 5), ours=ours)).get_supxlabel()
