"""Charts of published results: tables of the paper, learning curves, and the benchmark."""

import textwrap
from functools import partial
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import style
from experiments.drawing.style import BLUE, ORANGE, styled

WIDTH = 7.2  # inches
# Colour and marker of a series: the model, or the training shot.
LOOKS = {
    'both models': ('0.6', 'o'),
    'matching': (ORANGE, 's'),
    'prototypical': (BLUE, 'o'),
    '1-shot training': (ORANGE, 's'),
    '5-shot training': (BLUE, 'o'),
}
# Sections of the benchmark, with their titles.
SECTIONS = {
    'omniglot': 'Omniglot,\none training step',
    'miniimagenet': 'miniImageNet,\none training step',
    'evaluation': 'evaluation,\n1,000 episodes',
}


@styled
def table_chart(found: dict, *, bars: bool) -> Figure:
    """Draw accuracies of a table, ours beside the paper's, with a panel per column.

    If any run of ours is comparable with the paper, only comparable runs are drawn.

    Args:
        found: The dictionary of `experiments.paper.comparison.collect`.
        bars: Draw bars by way and distance of training with the shot of the test; otherwise lines by training way.
    """
    height = len(found['columns']) // 2
    drawn = style.new_drawing(1 + 2.3 * height, WIDTH)
    panels = drawn.subplots(height, 2, squeeze=False, sharey=bars)
    every = [cell['ours'] for row in found['rows'] for cell in row['cells'].values()]
    comparable = [score for score in every if score and not score['labels']]
    ours, handles = comparable or [score for score in every if score], {}
    for axes, column in zip(panels.flat, found['columns'], strict=True):
        series: dict[tuple[str, str], list] = {}
        for row in found['rows']:
            run, cell = row['runs'][0], row['cells'][column]
            for owner, score in cell.items() if not bars or column.endswith(f' {run["shot"]}-shot') else ():
                if score and (owner == 'paper' or score in ours):
                    series.setdefault((_series(run, bars), owner), []).append((_tick(run, bars), score))
        ticks = list(dict.fromkeys(tick for points in series.values() for tick, _ in points))
        for number, ((name, owner), points) in enumerate(sorted(series.items())):
            step = 0.84 / len(series)  # between bars
            x = [ticks.index(tick) + step * (number - (len(series) - 1) / 2) if bars else tick for tick, _ in points]
            y, errors = zip(*((score['accuracy'], score['ci95'] or 0) for _, score in points), strict=True)
            draw = partial(axes.bar, width=0.9 * step) if bars else axes.errorbar
            handle = draw(x, y, yerr=errors, capsize=2, **_look(name, owner, bars))
            handles.setdefault(f'{name}, {"protojax" if owner == "ours" else owner}', handle)
        axes.set_xticks(range(len(ticks)) if bars else ticks, ticks)
        axes.set(title=f'{column} test', xlabel='training way and distance' if bars else 'training way')
        axes.grid(axis='y')
    for axes in panels[:, 0]:
        axes.set_ylabel('accuracy (%)')
    drawn.legend(handles.values(), handles.keys(), loc='outside upper center', ncols=len(handles) // 2 or 1)
    style.draw_note(drawn, f'{found["title"]}; 95 % intervals if known. {_about(ours, missing=len(ours) < len(every))}')
    return drawn


def _tick(run: dict, bars: bool):
    return f'{run["way"]}-way\n{run["distance"]}' if bars else run['way']


def _series(run: dict, bars: bool) -> str:
    if not bars:
        return f'{run["shot"]}-shot training'
    return 'both models' if run['shot'] == 1 else run['model']


def _look(name: str, owner: str, bars: bool) -> dict:
    """Return the style of a series: filled for ours; hatched, or dashed with empty markers, for the paper."""
    colour, marker = LOOKS[name]
    if bars:
        face = {'facecolor': colour} if owner == 'ours' else {'facecolor': 'white', 'hatch': '//////'}
        return {**face, 'edgecolor': colour}
    face = {} if owner == 'ours' else {'linestyle': '--', 'markerfacecolor': 'white'}
    return {**face, 'color': colour, 'marker': marker}


def _about(ours: list[dict], missing: bool) -> str:
    """Describe the runs of protojax in a chart."""
    if not ours:
        return 'protojax: not measured yet'
    labels = sorted({label for score in ours for label in score['labels']})
    lengths = [f'{n:,}' for n in sorted({n for score in ours for n in score.get('episodes', ()) if n})]
    trained = [f'up to {lengths[-1]} training episodes'] if lengths else []
    return f'protojax: {"; ".join((labels or trained) + ["comparable runs only"] * missing)}'


@styled
def learning_curves(curves: dict[str, list[tuple]], remark: str) -> Figure:
    """Draw accuracy and loss by training episode: {name: [(episode, accuracy in %, loss)]}."""
    drawn = style.new_drawing(3.0 + 0.17 * len(curves), WIDTH)
    panels = drawn.subplots(1, 2)
    looks = zip(cycle(style.COLOURS), cycle(style.MARKERS), cycle(style.DASHES), strict=False)
    for (name, points), (colour, marker, dash) in zip(curves.items(), looks, strict=False):
        episodes, *values = zip(*points, strict=True)
        look = {'color': colour, 'marker': marker if len(points) <= 40 else None, 'linestyle': dash}
        for axes, heights in zip(panels, values, strict=True):
            axes.plot(episodes, heights, label=style.short_label(name, 90), **look)
    losses = [loss for points in curves.values() for *_, loss in points]
    if max(losses) > 4 * min(losses) > 0:
        panels[1].set_yscale('log')
        panels[1].yaxis.set_major_formatter('{x:g}')
        panels[1].yaxis.set_minor_formatter('{x:g}')
    for axes, label in zip(panels, ('accuracy (%)', 'loss (nats per query)'), strict=True):
        axes.set(xlabel='training episodes', ylabel=label)
        axes.grid(axis='y')
    drawn.legend(handles=panels[0].get_lines(), loc='outside upper center', ncols=1)
    style.draw_note(drawn, remark)
    return drawn


@styled
def speed(benchmark: dict) -> Figure:
    """Draw times as multiples of protojax's time on a logarithmic scale, from benchmark.json."""
    rows = {section['section']: section['rows'] for section in benchmark['sections']}
    rows = {key: [row for row in rows[key] if 'baseline' not in row['contender']] for key in SECTIONS if key in rows}
    names = list(dict.fromkeys(row['contender'] for own in rows.values() for row in own))
    drawn = style.new_drawing(1.4 + 0.33 * len(names), WIDTH)
    panels = drawn.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    for axes, (name, own) in zip(panels, rows.items(), strict=True):
        _ratios(axes, own, names)
        axes.set(title=SECTIONS[name], xlabel='time relative to protojax')
    panels[0].set_yticks(range(len(names)), [textwrap.fill(name, 30) for name in names])
    panels[0].invert_yaxis()
    machine = benchmark['machine']
    versions = ', '.join(f'{name} {version}' for name, version in machine['versions'].items() if version)
    style.draw_note(drawn, f'{machine["processor"]}; {versions}. Bars: best round; whiskers: up to the worst')
    return drawn


def _ratios(axes: Axes, rows: list[dict], names: list[str]) -> None:
    """Draw a bar for each implementation, from protojax's time to its time."""
    number = lambda value: f'{value:,.0f}' if value >= 10 else f'{value:.2g}'  # noqa: E731
    for row in rows:
        ratio, position = row['ratio_to_first'], names.index(row['contender'])
        slowest = ratio * max(row['turns']) / row['seconds']
        ours = row['contender'].startswith('protojax')
        look = {'color': BLUE} if ours else {'facecolor': 'white', 'edgecolor': ORANGE, 'hatch': '////'}
        axes.barh(position, ratio - 1, 0.7, left=1, xerr=[[0], [slowest - ratio]], capsize=2, **look)
        text = f'{number(ratio)}×, {number(row["seconds"])} s'
        axes.annotate(text, (slowest, position), (4, 0), textcoords='offset points', va='center')
    most = max(row['ratio_to_first'] for row in rows)
    axes.set(xscale='log', xlim=(0.85, 2 * most**1.7))  # room for the text
    axes.xaxis.set_major_formatter('{x:g}×')
    axes.xaxis.set_minor_formatter('')
    axes.axvline(1, color='black', linewidth=0.8)


# By table.
CHARTS = {
    'omniglot-way': partial(table_chart, bars=False),
    'way': partial(table_chart, bars=False),
    'distance': partial(table_chart, bars=True),
}
