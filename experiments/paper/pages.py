"""The pages that show published runs: docs/results.md, made from a template, and the tables in other documents.

In the template, a comment `<!-- kind: arguments -->` is replaced by a table; KINDS maps each kind to its function.
"""

import re
import statistics

from experiments.drawing.charts import CHARTS
from experiments.paper import comparison, markdown, records, tables
from experiments.running.config import ConfigError, flags_text

PLACEHOLDER = re.compile(r'<!-- (\w+):\s*(.*?)\s*-->', re.DOTALL)
MARKED = re.compile(r'(?<=<!-- written by experiments.publish -->\n).*?(?=<!-- up to here -->)', re.DOTALL)
# Tables with the columns of the main results, and their title there; CUB has the first column only.
MAIN = {'omniglot': 'Omniglot', 'miniimagenet': 'miniImageNet', 'cub': 'CUB'}
# Fine-tuned for 4,000 episodes after --recipe=modern; one model for both columns.
FURTHER = {'way': 20, 'shot': 5, 'init': 'modern.safetensors', 'schedule': 'cosine', 'flip': True, 'shift': 8}
MODERN = {'omniglot': {'recipe': 'modern'}, 'miniimagenet': FURTHER, 'cub': {'recipe': 'modern'}}
CLOSEST = '[closest public re-implementation](https://github.com/Michedev/Prototypical-Networks-Few-Zero-Shot)'
CLOSEST_RESULTS = ('98.73', '99.65', '95.74', '98.84', '49.75', '66.60', '53.87 (GoogLeNet)')


def _overview(_: str) -> list[str]:
    """Return all rows of the paper's tables beside ours, each with its status."""
    rows = []
    for name, table in tables.TABLES.items():
        rows += [[str(table.number), *_overview_row(row)] for row in comparison.published(name)['rows']]
    rows.sort(key=lambda row: row[0])
    comparable = sum(row[-1] == 'comparable' for row in rows)
    header = ['table', 'row', 'paper', 'ours', 'classes', 'episodes, at most', 'seeds', 'status']
    return [f'{comparable} of {len(rows)} rows are comparable.', '', *markdown.table(header, rows)]


def _overview_row(row: dict) -> list[str]:
    cells = [cell for cell in row['cells'].values() if cell['paper']]
    ours = [cell['ours'] for cell in cells]
    every = lambda key: dict.fromkeys(value for one in ours if one for value in one[key])  # noqa: E731
    return [
        row['name'],
        ' / '.join(f'{cell["paper"]["accuracy"]:.{2 if cell["paper"]["ci95"] else 1}f}' for cell in cells),
        ' / '.join(f'{one["accuracy"]:.2f}' if one else '-' for one in ours),
        ', '.join(every('classes')) or '-',
        ', '.join(f'{n:,}' if n else 'early stopping' for n in every('episodes')) or '-',
        ' / '.join(map(str, dict.fromkeys(len(one['seeds']) for one in ours if one))) or '-',
        '; '.join(every('labels')) or ('comparable' if all(ours) else 'not run'),
    ]


def main(_: str = '') -> list[str]:
    """Return the main results on the test classes: both recipes, the paper and the closest re-implementation."""
    columns = [['', "protojax, paper's recipe", 'protojax, `--recipe=modern`', 'paper']]
    for name, title in MAIN.items():
        table = tables.TABLES[name]
        row = next(row for row in table.rows if row.name == 'Prototypical networks')
        for column, accuracy, flags in zip(table.columns, row.paper, table.by_column(row), strict=True):
            if accuracy != '-':
                setting = '50-way zero-shot' if name == 'cub' else column
                header = f'{title} {setting}' if column == table.columns[0] else setting
                paper = f'{accuracy} ({row.features})' if row.features else accuracy
                cells = [_main_cell(name, column, wanted) for wanted in (flags, flags | MODERN[name])]
                columns.append([header, *cells, paper])
    header, *rows = zip(*columns, strict=True)
    return markdown.compact(header, [*rows, (CLOSEST, *CLOSEST_RESULTS)])


def _main_cell(experiment: str, column: str, flags: dict) -> str:
    runs = records.select_published(experiment, flags | {'evaluate_on': 'test'})
    if not (found := records.score(runs, column)):
        return ''
    features = f' ({runs[0]["features"]})' if 'features' in runs[0] else ''
    return f'{found["accuracy"]:.2f} ± {found["ci95"]:.2f}{features}'


def _paper(text: str) -> list[str]:
    """Return a table of the paper with ours beside, its chart and commands; ours alone if flags are given."""
    name, given = text.split()[0], records.flags_of(text)
    table, found, commands = tables.TABLES[name], comparison.published(name, given), {}
    if given:
        ours = [(row['name'], *(records.cell(cell['ours']) for cell in row['cells'].values())) for row in found['rows']]
        return markdown.table(['training', *table.columns], ours)
    for row in table.rows:
        for runs in filter(None, (records.select_published(table.experiment, wanted) for wanted in row.runs)):
            times = [run['seconds'] for run in runs if 'seconds' in run]
            each, seeds = (' each', 'seeds') if len(runs) > 1 else ('', 'seed')
            time = f'{statistics.mean(times) / 60:.0f} min{each}' if times else 'time not recorded'
            command = records.without_seed(runs[0])
            commands[command] = [f'# {row.name}: {time} ({seeds} {_seeds(runs)})', command]
    chart = ['', f'![{table.title}](figures/{name}.png)'] if name in CHARTS else []
    shown = ['<details><summary>Commands</summary>', '', '```sh', *sum(commands.values(), []), '```', '', '</details>']
    return [*comparison.lines(table, found), *chart, '', table.note, '', *shown]


def _seeds(runs: list[dict]) -> str:
    return ', '.join(str(run['seed']) for run in runs)


def _gains(name: str) -> list[str]:
    """Return the gain of Euclidean over cosine distance, from a table whose rows alternate between them."""
    found, rows = comparison.published(name), []
    for cosine, euclidean in zip(found['rows'][::2], found['rows'][1::2], strict=True):
        cells, notes = [], {}
        for column in found['columns']:
            before, after = cosine['cells'][column], euclidean['cells'][column]
            notes |= dict.fromkeys(after['ours']['labels'] if after['ours'] else ())
            same = before['ours'] and after['ours'] and before['ours']['labels'] == after['ours']['labels']
            for who in ('ours', 'paper'):
                known = who == 'paper' or same
                cells.append(f'{after[who]["accuracy"] - before[who]["accuracy"]:+.2f}' if known else '')
        rows.append([cosine['name'].replace(', cosine', ''), *cells, ', '.join(notes)])
    return markdown.table(['', *(text for c in found['columns'] for text in (c, 'paper')), 'note'], rows)


def _variants(text: str) -> tuple[str, list[tuple[str, str, list[dict]]]]:
    """Parse a command and lines with a name and further flags -> the command, [(name, flags, their runs)].

    All runs have the length of the first unless a line gives another length. Lines without a run are left out.
    """
    command, *lines = text.splitlines()
    shared, found = records.flags_of(command), []
    known = records.published(re.search(r'experiments\.(\w+)', command)[1])
    for line in lines:
        name, further = re.fullmatch(r'(.*?): ?(--.*)?', line).groups('')
        if runs := records.select(known, {**shared, **records.flags_of(further)}):
            found.append((name, further, runs))
            shared['episodes'] = str(found[0][2][0]['config']['episodes'])
    if not found:
        raise ConfigError(f'no published run matches {command!r} and the flags of its rows')
    return command, found


def _choices(text: str) -> list[str]:
    """Return an ablation: accuracies and, in brackets, the change from the first row."""
    command, found = _variants(text)
    first, rows = found[0][2], []
    columns = list(first[0][first[0]['evaluated_on']])
    for name, further, runs in found:
        cells = []
        for column in columns:
            ours, before = records.score(runs, column), records.score(first, column)
            change = round(ours['accuracy'] - before['accuracy'], 2) + 0.0 if ours else 0.0  # never -0.0
            cells.append(records.cell(ours) + (f' ({change:+.2f})' if rows and ours else ''))
        rows.append([name, f'`{further}`' if further else '', *cells, _seeds(runs)])
    given, shown = records.flags_of(first[0]['command']), records.flags_of(command + ' ' + found[0][1])
    lengths = {name: value for name, value in given.items() if name in records.LENGTHS and name not in shown}
    title = f'`{" ".join(filter(None, [command, flags_text(lengths)]))}` with the flags of each row:'
    return [title, '', *markdown.table(['', 'flags', *columns, 'seeds'], rows)]


def _curves(text: str) -> list[str]:
    """Return accuracy (and loss) on validation episodes by training episodes, means over seeds."""
    curves = {name: [run['curve'] for run in runs] for name, _, runs in _variants(text)[1]}
    episodes = sorted({episode for known in curves.values() for one in known for episode in one}, key=int)
    rows = []
    for name, known in curves.items():
        scores = [[one[episode] for one in known if episode in one] for episode in episodes]
        means = [[statistics.mean(one[key] for one in at) for key in ('accuracy', 'loss') if at] for at in scores]
        rows.append([name, *('{:.2f} ({:.3f})'.format(*mean) if mean else '' for mean in means)])
    return markdown.table(['episodes', *episodes], rows)


def rows_with(record: dict, template: str) -> list[str]:
    """Return the names of the rows that show a published run, in the paper's tables and in those of the template."""
    variants = [_variants(text)[1] for kind, text in PLACEHOLDER.findall(template) if kind in ('choices', 'curves')]
    found = [name for rows in variants for name, _, runs in rows if record in runs]
    for table in tables.TABLES.values():
        for row in table.rows:
            if any(record in records.select_published(table.experiment, flags) for flags in row.runs):
                found.append(f'{row.label} (table {table.number})')
    return list(dict.fromkeys(found))


KINDS = {'overview': _overview, 'main': main, 'paper': _paper, 'gains': _gains, 'choices': _choices, 'curves': _curves}


def results(template: str) -> str:
    """Return docs/results.md: the template with its tables."""
    return PLACEHOLDER.sub(lambda found: '\n'.join(KINDS[found[1]](found[2])), template)


def marked(text: str, table: list[str]) -> str:
    """Return a document with the table between its markers replaced."""
    text, count = MARKED.subn(lambda _: '\n'.join([*table, '']), text)
    if not count:
        raise ConfigError('no marker for a table; add <!-- written by experiments.publish --> and <!-- up to here -->')
    return text
