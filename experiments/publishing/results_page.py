"""The pages that show published runs: RESULTS.md, made of a template, and the tables of the README.

In the template a comment `<!-- kind: ... -->` is the place of a table (KINDS names the function of each kind), and a
section whose tables are all empty is left out.
"""

import re
import statistics

from experiments.publishing.comparison import CHARTS, PLACE, comparison_has_ours, comparison_lines, published_comparison
from experiments.publishing.records import (
    LENGTHS,
    published_records,
    record_cell,
    record_flags,
    record_without_seed,
    score_of_records,
    select_published_records,
    select_records,
)
from experiments.reporting.markdown import markdown_table
from experiments.reporting.paper import TABLES, difference_from_paper
from experiments.running.config import ConfigError
from experiments.running.identity import config_text

RECIPES = {"protojax, the paper's recipe": {}} | {
    f'protojax, `--recipe={name}`': {'recipe': name} for name in ('official', 'modern')
}
# A second run on the weights of the modern recipe's, which have its encoder and temperature.
RECIPES['protojax, its 5-shot model, trained further'] = {
    'way': 20,
    'shot': 5,
    'init': 'modern.safetensors',
    'schedule': 'cosine',
    'flip': True,
    'shift': 8,
}
TABLES_OF_README = re.compile(r'(?<=<!-- written by experiments.publish -->\n).*?(?=<!-- up to here -->)', re.DOTALL)


def _published_paper_table(text):
    """A table of the paper with ours beside, its chart, and the commands of our rows."""
    name, found, given = published_comparison(text)
    table, commands = TABLES[name], {}
    if not comparison_has_ours(found):
        return []
    chart = ['', f'![{table.title}](results/figures/{name}.png)'] if name in CHARTS else []
    for row in table.rows:
        for runs in filter(None, (select_published_records(table.experiment, wanted | given) for wanted in row.runs)):
            comment = f'# {row.name}: {_published_time(runs)}'
            commands[record_without_seed(runs[0])] = [comment, record_without_seed(runs[0])]
    return [*comparison_lines(table, found), *chart, '', table.note, '', '```sh', *sum(commands.values(), []), '```']


def _published_seeds(runs):
    return ', '.join(str(run['seed']) for run in runs)


def _published_time(runs):
    if not any('seconds' in run for run in runs):
        return 'time not recorded'
    return f'{_published_minutes(runs)} for each seed ({_published_seeds(runs)}) on {_published_hardware(runs)}'


def _published_minutes(runs):
    times = [run['seconds'] for run in runs if 'seconds' in run]
    return f'{statistics.mean(times) / 60:.0f} min' if times else '-'


def _published_hardware(runs):
    return ' and '.join(sorted({run['processor'] for run in runs if 'processor' in run})) or '-'


def _published_summary(name):
    """The main result of a table: ours by both recipes, the paper's, and what others have measured.

    Where a row of ours is not on the test classes, and so says on which it is, the others say it too.
    """
    table, rows, splits = TABLES[name], [], set()
    for recipe, given in RECIPES.items():
        found = [
            select_published_records(table.experiment, {**run, **given}) for run in table.by_column(table.rows[-1])
        ]
        labels = dict.fromkeys(difference_from_paper(table.experiment, run) for runs in found for run in runs)
        splits |= {run['evaluated_on'] for runs in found for run in runs}
        cells = [record_cell(score_of_records(*cell)) for cell in zip(found, table.columns, strict=True)]
        rows += [[', '.join(filter(None, [recipe, *labels])), *cells]] if any(found) else []
    if not rows:
        return []
    main = table.rows[-1]
    others = [[f'the paper, {main.features} features' if main.features else 'the paper', *main.paper]]
    others += [[other.name, *other.paper] for other in table.others]
    rows += others if splits == {'test'} else [[f'{name}, test classes', *figures] for name, *figures in others]
    return markdown_table([table.title.split(' (')[0], *table.columns], rows)


def _runs_of_choices(text):
    """A command, and lines with a name and further flags -> the command, [(name, flags, their runs)].

    Runs are of the length of the first, unless a line gives another: else they do not show what a choice is worth.
    """
    command, *lines = text.splitlines()
    shared, found = record_flags(command), []
    known = published_records(re.search(r'experiments\.(\w+)', command)[1])
    for line in lines:
        name, further = re.fullmatch(r'(.*?): ?(--.*)?', line).groups('')
        if runs := select_records(known, {**shared, **record_flags(further)}):
            found.append((name, further, runs))
            shared['episodes'] = str(found[0][2][0]['config']['episodes'])
    return command, found


def _published_choices(text):
    """What choices are worth: accuracies, and in brackets the change from the first row."""
    command, found = _runs_of_choices(text)
    if len(found) < 2:
        return []
    first, rows = found[0][2], []
    columns = list(first[0][first[0]['evaluated_on']])
    for name, further, runs in found:
        cells = []
        for column in columns:
            ours, before = score_of_records(runs, column), score_of_records(first, column)
            change = round(ours['accuracy'] - before['accuracy'], 2) + 0.0 if ours else 0.0  # never -0.0
            cells.append(record_cell(ours) + (f' ({change:+.2f})' if rows and ours else ''))
        rows.append([name, f'`{further}`' if further else '', *cells, _published_seeds(runs), _published_minutes(runs)])
    hardware = _published_hardware([run for _, _, runs in found for run in runs])
    given, told = record_flags(first[0]['command']), record_flags(command + ' ' + found[0][1])
    lengths = {name: value for name, value in given.items() if name in LENGTHS and name not in told}
    title = f'`{" ".join(filter(None, [command, config_text(lengths)]))}` with the flags of each row, on {hardware}:'
    return [title, '', *markdown_table(['', 'flags', *columns, 'seeds', 'time'], rows)]


def _published_curves(text):
    """Accuracy (and loss) on validation episodes in the course of training, means over seeds, and the commands."""
    found = _runs_of_choices(text)[1]
    curves = {name: [run['curve'] for run in runs] for name, _, runs in found}
    episodes = sorted({episode for known in curves.values() for one in known for episode in one}, key=int)
    rows = []
    for name, known in curves.items():
        looks = [[one[episode] for one in known if episode in one] for episode in episodes]
        means = [[statistics.mean(look[key] for look in at) for key in ('accuracy', 'loss') if at] for at in looks]
        rows.append([name, *('{:.2f} ({:.3f})'.format(*mean) if mean else '' for mean in means)])
    commands = [record_without_seed(runs[0]) for _, _, runs in found]
    return [*markdown_table(['episodes', *episodes], rows), '', '```sh', *commands, '```'] if episodes else []


KINDS = {
    'paper': _published_paper_table,
    'summary': _published_summary,
    'choices': _published_choices,
    'curves': _published_curves,
}


def _published_place(place):
    return '\n'.join(KINDS[place[1]](place[2]))


def published_page(template):
    """RESULTS.md: the template with its tables, without the sections that have none yet."""
    sections = re.split(r'^(?=## )', template, flags=re.MULTILINE)
    tables = [[_published_place(place) for place in PLACE.finditer(section)] for section in sections]
    kept = [section for section, filled in zip(sections, tables, strict=True) if any(filled) or not filled]
    return re.sub(r'\n{4,}', '\n\n', PLACE.sub(_published_place, ''.join(kept)))


def published_readme(text):
    """The README with its tables as they should be."""
    tables = filter(None, map(_published_summary, ('omniglot', 'miniimagenet', 'cub')))
    tables = '\n'.join('\n'.join([*table, '']) for table in tables)
    text, places = TABLES_OF_README.subn(lambda _: tables, text)
    if not places:
        raise ConfigError('README.md has no place for the tables, between "<!-- written by ... -->" and "up to here"')
    return text
