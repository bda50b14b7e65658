"""The paper's two charts of miniImageNet as SVG, from what a table has collected: ours in colour, the paper's pale.

Every test shot is a panel, where `y(accuracy)` is a height; colours are the shots of training.
"""

WIDTH, HEIGHT, LEFT, TOP = 490, 240, 70, 40  # of a panel's upper part, and its margins
COLOURS = {1: '#c8501e', 5: '#1f5fa8'}
OPACITY = {'paper': 0.4, 'ours': 1.0}


def way_chart(found):
    """Accuracy against the training way, a line for each training shot."""

    def draw(column, y):
        for row in found['rows']:
            run = row['runs'][0]
            yield text(LEFT + 12 * run['way'], HEIGHT + 16, run['way'], 'middle')
        yield text(LEFT + 12 * 17.5, HEIGHT + 32, 'training way', 'middle')
        for shot, colour in COLOURS.items():
            rows = [row for row in found['rows'] if row['runs'][0]['shot'] == shot]
            for whose, opacity in OPACITY.items():
                points = [(LEFT + 12 * row['runs'][0]['way'], row['cells'][column][whose]) for row in rows]
                points = [(x, score) for x, score in points if score]
                path = ' '.join(f'{x},{y(score["accuracy"]):.1f}' for x, score in points)
                yield f'<g opacity="{opacity}"><polyline points="{path}" fill="none" stroke="{colour}"/>'
                yield from (interval(x, score, y, colour) for x, score in points)
                yield '</g>'

    return page(found, draw, bottom=60)


def distance_chart(found):
    """A bar for each model, distance, training shot and way."""

    def draw(column, y):
        for i, row in enumerate(found['rows']):
            middle, colour = LEFT + 18 + 33 * i, COLOURS[row['runs'][0]['shot']]
            for x, whose in ((middle, 'paper'), (middle - 12, 'ours')):
                if score := row['cells'][column][whose]:
                    size = f'width="12" height="{HEIGHT - y(score["accuracy"]):.1f}" opacity="{OPACITY[whose]}"'
                    yield f'<rect x="{x}" y="{y(score["accuracy"]):.1f}" {size} fill="{colour}"/>'
                    yield interval(x + 6, score, y, '#333')
            name = text(0, 0, row['name'], 'end')
            yield f'<g transform="translate({middle + 4} {HEIGHT + 12}) rotate(-60)">{name}</g>'

    return page(found, draw, bottom=225)


FIGURES = {'way': way_chart, 'distance': distance_chart}


def page(found, draw, *, bottom):
    """The panels side by side; `draw(column, y)` gives the marks of one."""
    columns, height = found['columns'], HEIGHT + bottom
    start = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(columns)}" height="{height}"'
    marks = [f'{start} font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>']
    labels = set()
    for i, column in enumerate(columns):
        scores = [score for row in found['rows'] for score in row['cells'][column].values() if score]
        labels.update(label for score in scores for label in score.get('labels', ()))
        low = 5 * (min(map(lower, scores)) // 5)
        high = 5 * (max(map(upper, scores)) // 5 + 1)
        y = lambda accuracy, a=low, b=high: TOP + (HEIGHT - TOP) * (b - accuracy) / (b - a)  # noqa: E731
        marks += [f'<g transform="translate({i * WIDTH} 0)">', text(LEFT, TOP - 16, f'{column} test, accuracy in %')]
        for shot, colour in COLOURS.items():
            marks.append(text(LEFT + 200 + 22 * shot, TOP - 16, f'{shot}-shot training', colour=colour))
        for tick in range(int(low), int(high) + 1, 5):
            marks.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - 10}" stroke="#ddd"/>')
            marks.append(text(LEFT - 6, y(tick) + 4, tick, 'end'))
        marks += [*draw(column, y), '</g>']
    caption = ['ours in full colour', "the paper's pale", '95 % intervals where known', *sorted(labels)]
    return '\n'.join([*marks, text(LEFT, height - 8, ', '.join(caption)), '</svg>', ''])


def lower(score):
    return score['accuracy'] - (score['ci95'] or 0)


def upper(score):
    return score['accuracy'] + (score['ci95'] or 0)


def interval(x, score, y, colour):
    """A dot with an error bar."""
    bar = f'<path d="M{x} {y(upper(score)):.1f}V{y(lower(score)):.1f}" stroke="{colour}"/>'
    return f'{bar}<circle cx="{x}" cy="{y(score["accuracy"]):.1f}" r="2" fill="{colour}"/>'


def text(x, y, content, anchor='start', colour='#333'):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{content}</text>'
