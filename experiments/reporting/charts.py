"""Charts of published figures: by distance, by training way, learning curves, and the benchmark.

The first two draw what a table has collected: rows with the flags of their runs and, by column, an accuracy with half
the width of its 95 % interval, ours and the paper's.
"""

import textwrap

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from experiments.reporting.drawing import (
    BLUE,
    COLOURS,
    DASHES,
    MARKERS,
    ORANGE,
    draw_note,
    new_drawing,
    short_label,
    styled,
)

WIDTH = 7.2
DISTANCES = {'cosine': 'cosine', 'euclidean': 'Euclid.'}
MODELS = {
    'both': ('both (they agree)', '0.6'),
    'matching': ('matching', ORANGE),
    'prototypical': ('prototypical', BLUE),
}
SHOTS = {1: (ORANGE, 's'), 5: (BLUE, 'o')}  # of training
LINES = {'ours': {'linestyle': '-'}, 'paper': {'linestyle': '--', 'markerfacecolor': 'white'}}
OWNERS = {'ours': 'protojax', 'paper': 'the paper'}
EARLIER = ', baseline'  # an earlier commit of protojax itself
LIBRARIES = ('jax', 'flax', 'torch')
SECTIONS = {
    'omniglot': 'Omniglot,\none training {unit}',
    'miniimagenet': 'miniImageNet,\none training {unit}',
    'evaluation': 'evaluation,\n{unit}',
}


@styled
def distance_chart(found):
    """Bars by distance and training way, for both models, tested with the shot of training -> Figure."""
    drawn = new_drawing(3.3, WIDTH)
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, column, shot in zip(panels, found['columns'], SHOTS, strict=True):
        rows = [row for row in found['rows'] if row['runs'][0]['shot'] == shot]
        groups = {}
        for row in rows:
            groups.setdefault((row['runs'][0]['way'], row['runs'][0]['distance']), []).append(row)
        for place, members in enumerate(groups.values()):
            _grouped_bars(axes, place, members, column)
        axes.set_xticks(range(len(groups)), [f'{way}-way\n{DISTANCES[distance]}' for way, distance in groups])
        axes.set(title=f'{column} test', xlabel=f'way and distance of {shot}-shot training')
        axes.grid(axis='y')
    panels[0].set_ylabel('accuracy (%)')
    models = [Patch(facecolor=colour, label=label) for label, colour in MODELS.values()]
    whose = [Patch(label=label, **_bar_look('0.3', owner)) for owner, label in _whose(found).items()]
    drawn.legend(handles=models + whose, loc='outside upper center', ncols=5, columnspacing=1.2)
    draw_note(drawn, _chart_footnote(found))
    return drawn


def _grouped_bars(axes, place, rows, column):
    """The bars of one way and distance side by side, with their intervals."""
    bars = [(row, owner, row['cells'][column][owner]) for row in rows for owner in OWNERS]
    bars = [bar for bar in bars if bar[-1]]
    width = 0.84 / max(len(bars), 2)
    for number, (row, owner, score) in enumerate(bars):
        model = 'both' if row['runs'][0]['shot'] == 1 else row['runs'][0]['model']
        x = place + (number - (len(bars) - 1) / 2) * width
        axes.bar(x, score['accuracy'], 0.9 * width, **_bar_look(MODELS[model][1], owner))
        axes.errorbar(x, score['accuracy'], score['ci95'] or 0, color='black', linewidth=1, capsize=2)


def _bar_look(colour, owner):
    """Filled for ours, hatched on white for the paper's."""
    if owner == 'ours':
        return {'facecolor': colour, 'edgecolor': colour}
    return {'facecolor': 'white', 'edgecolor': colour, 'hatch': '//////'}


@styled
def way_chart(found):
    """Accuracy against the training way, a line for each training shot -> Figure."""
    rows = len(found['columns']) // 2
    drawn = new_drawing(0.7 + 2.4 * rows, WIDTH)
    panels = drawn.subplots(rows, 2, squeeze=False)
    for axes, column in zip(panels.flat, found['columns'], strict=True):
        for shot, (colour, marker) in SHOTS.items():
            rows = [row for row in found['rows'] if row['runs'][0]['shot'] == shot]
            for owner, look in LINES.items():
                points = [(row['runs'][0]['way'], row['cells'][column][owner]) for row in rows]
                points = [(way, score['accuracy'], score['ci95'] or 0) for way, score in points if score]
                if points:
                    axes.errorbar(*zip(*points, strict=True), color=colour, marker=marker, capsize=2, **look)
        axes.set(title=f'{column} test', xlabel='training way (classes per episode)')
        axes.set_xticks(sorted({row['runs'][0]['way'] for row in found['rows']}))
        axes.grid(axis='y')
    for axes in panels[:, 0]:
        axes.set_ylabel('accuracy (%)')
    shots = [Line2D([], [], color=c, marker=m, label=f'{shot}-shot training') for shot, (c, m) in SHOTS.items()]
    whose = [Line2D([], [], color='0.3', marker='o', label=s, **LINES[owner]) for owner, s in _whose(found).items()]
    drawn.legend(handles=shots + whose, loc='outside upper center', ncols=4)
    draw_note(drawn, _chart_footnote(found))
    return drawn


def _whose(found):
    """Whose figures a table has, and how the legend calls them: {owner: label}.

    Ours are called by what they were measured on where that is not the paper's test, and by how long they were trained.
    """
    cells = [cell for row in found['rows'] for cell in row['cells'].values()]
    ours = [cell['ours'] for cell in cells if cell['ours']]
    labels = sorted({label for one in ours for label in one['labels']})
    lengths = [f'{episodes:,}' for episodes in sorted({length for one in ours for length in one.get('episodes', ())})]
    trained = f',\n{" to ".join(dict.fromkeys([lengths[0], lengths[-1]]))} training episodes' if lengths else ''
    called = OWNERS | {'ours': OWNERS['ours'] + (f' on {", ".join(labels)}' if labels else '') + trained}
    return {owner: label for owner, label in called.items() if any(cell[owner] for cell in cells)}


def _chart_footnote(found):
    """What the marks mean, and what is missing."""
    measured = [bool(cell['ours']) for row in found['rows'] for cell in row['cells'].values()]
    parts = [found['title'], '95 % intervals where known']
    if not all(measured):
        parts.append(f'{"what is missing of protojax was" if any(measured) else "protojax"} not measured yet')
    return '; '.join(parts)


@styled
def learning_curves(curves, remark):
    """Validation accuracy and loss by training episode: {name: [(episode, accuracy in %, loss)]} -> Figure."""
    drawn = new_drawing(3.0 + 0.17 * len(curves), WIDTH)
    panels = drawn.subplots(1, 2)
    for number, (name, points) in enumerate(curves.items()):
        look = {'color': COLOURS[number % len(COLOURS)], 'marker': MARKERS[number % len(MARKERS)]}
        episodes, *values = zip(*points, strict=True)
        for axes, heights in zip(panels, values, strict=True):
            axes.plot(episodes, heights, linestyle=DASHES[number % len(DASHES)], label=short_label(name, 90), **look)
    for axes, label in zip(panels, ('validation accuracy (%)', 'validation loss (nats per query)'), strict=True):
        axes.set(xlabel='training episodes', ylabel=label)
        axes.grid(axis='y')
    drawn.legend(handles=panels[0].get_lines(), loc='outside upper center', ncols=1)
    draw_note(drawn, remark)
    return drawn


@styled
def speed_chart(benchmark):
    """How many times the time of protojax the others take, on a logarithmic scale: benchmark.json -> Figure."""
    sections = {section['section']: section for section in benchmark['sections']}
    sections = {name: sections[name] for name in SECTIONS if name in sections}
    rows = {
        name: [row for row in own['rows'] if not row['contender'].endswith(EARLIER)] for name, own in sections.items()
    }
    if any(row['ratio_to_first'] is None for own in rows.values() for row in own):
        raise ValueError('the machine was too uneven for ratios')
    names = list(dict.fromkeys(_chart_label(row['contender']) for own in rows.values() for row in own))
    drawn = new_drawing(1.4 + 0.33 * len(names), WIDTH)
    panels = drawn.subplots(1, len(sections), sharey=True, squeeze=False)[0]
    for axes, (name, section) in zip(panels, sections.items(), strict=True):
        _ratios_chart(axes, rows[name], names)
        axes.set_title(SECTIONS[name].format(unit=section['unit']))
    panels[len(panels) // 2].set_xlabel('time as a multiple of that of protojax (logarithmic)')
    panels[0].set_yticks(range(len(names)), [textwrap.fill(name, 30) for name in names])
    panels[0].invert_yaxis()
    machine = benchmark['machine']
    versions = ', '.join(f'{name} {machine["versions"][name]}' for name in LIBRARIES if machine['versions'].get(name))
    remark = 'For evaluation, protojax embeds all images once; others embed those of each episode where nothing is said'
    draw_note(drawn, f'{machine["processor"]}; {versions}. Bars: the best round; whiskers: up to the worst.\n{remark}')
    return drawn


def _ratios_chart(axes, rows, names):
    """A bar for each contender, from that of protojax to its own time."""
    for row in rows:
        ratio, place = row['ratio_to_first'], names.index(_chart_label(row['contender']))
        slowest = ratio * max(row['turns']) / row['seconds']
        ours = _chart_label(row['contender']).startswith('protojax')
        look = {'color': BLUE} if ours else {'facecolor': 'white', 'edgecolor': ORANGE, 'hatch': '////'}
        axes.barh(place, ratio - 1, 0.7, left=1, **look)
        axes.errorbar(ratio, place, xerr=[[0], [slowest - ratio]], color='black', linewidth=1, capsize=2)
        text = f'{_chart_number(ratio)}×, {_chart_number(row["seconds"])} s'
        axes.annotate(text, (slowest, place), (4, 0), textcoords='offset points', va='center', fontsize=8)
    most = max(row['ratio_to_first'] for row in rows)
    axes.set_xscale('log')
    axes.set_xlim(0.85, 2 * most**1.7)  # with room for the text
    ticks = (1, 10, 100) if most > 30 else (1, 3, 10)
    axes.set_xticks(ticks, [f'{ratio}×' for ratio in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color='black', linewidth=0.8)


def _chart_number(number):
    """A number as text, to two digits at least."""
    return f'{number:,.0f}' if number >= 10 else f'{number:.2g}'


def _chart_label(contender):
    """A contender's name without how it was timed."""
    return contender.partition(', each')[0]


CHARTS = {'omniglot-way': way_chart, 'way': way_chart, 'distance': distance_chart}  # by table
