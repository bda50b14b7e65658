"""The published figures: files that are what the command writes, and commands that give the runs behind them."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from experiments import cub, miniimagenet, omniglot, publish
from experiments.publish import publish_run
from experiments.publishing import records
from experiments.publishing.records import check_record, published_records, record_without_seed
from experiments.publishing.results_page import KINDS, published_page, published_readme
from experiments.running.config import ConfigError
from experiments.running.flags import parse_flags
from experiments.running.identity import config_identity, config_to_json, configured

PROGRAMS = {'omniglot': omniglot, 'miniimagenet': miniimagenet, 'cub': cub}
PUBLISHED = [(name, record) for name in PROGRAMS for record in published_records(name)]


def parsed(command):
    """The config that a command of today makes."""
    program, *given = command.split()[2:]
    return parse_flags(PROGRAMS[program.removeprefix('experiments.')].RECIPE, [*given, '--data=real'])


def leave(workdir, program=omniglot, *, accuracy=90.0, columns=('20-way 1-shot',), looks=(), **given):
    """A workdir with what a finished run on real data leaves, that looked at the validation loss at these episodes."""
    made = configured(program.RECIPE, {'data': 'real', **given})
    titles = {name: title for title, name in publish.TITLES.items()}
    episodes = getattr(made, 'test_episodes', 1)
    scores = dict.fromkeys(columns, {'accuracy': accuracy, 'ci95': 0.5, 'loss': 0.1, 'episodes': episodes})
    results = {'dataset': titles[program.EXPERIMENT.name], 'synthetic': False, 'seed': made.seed}
    results |= {'evaluated_on': made.evaluate_on, 'config': config_identity(made), made.evaluate_on: scores}
    report = {'stage': 'search', 'split': 'validation', 'accuracy': 0.5, 'loss': 2}
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / 'metrics.jsonl').write_text(''.join(json.dumps({**report, 'episode': look}) + '\n' for look in looks))
    (workdir / 'results.json').write_text(json.dumps(results))
    (workdir / 'timing.json').write_text(json.dumps({'seconds': 120.0, 'processor': 'abacus', 'commit': 'abc'}))
    return workdir


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Publishes runs in an empty place."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path / 'results')
    return lambda *program, **values: publish_run(leave(tmp_path / 'run', *program, **values))


def cells(lines):
    """The cells of a Markdown table, without its header."""
    rows = [line for line in lines if line.startswith('|')]
    return [[cell.strip() for cell in row.strip('|').split('|')] for row in rows[2:]]


def test_pages_are_what_the_command_writes():
    assert publish.PAGE.read_text() == published_page(publish.TEMPLATE.read_text())
    assert publish.README.read_text() == published_readme(publish.README.read_text())


def test_figures_are_of_real_data_and_name_no_place():
    for _, record in PUBLISHED:
        assert not record['synthetic']
        assert not {'workdir', 'data_dir', 'source'} & set(record['config'])


@pytest.mark.parametrize(('name', 'record'), PUBLISHED, ids=[record['command'] for _, record in PUBLISHED])
def test_commands_lead_to_the_configs_of_their_runs(name, record):
    try:
        made = config_to_json(parsed(record['command']))
    except ConfigError:
        assert record_without_seed(record) not in publish.PAGE.read_text()  # a flag that has been deleted since
        return
    config = {name: value for name, value in record['config'].items() if name in made}
    # Where training has a given length and the patience cannot end it before that, it may have had another default.
    validates = not config['retrain'] or not config['episodes']
    if config['episodes'] and not (validates and made['patience'] * made['validate_every'] < config['episodes']):
        config['patience'] = made['patience']
    assert {name: made[name] for name in config} == config


def test_published_records_are_such_as_are_read_today():
    for _, record in PUBLISHED:
        check_record(record)
        assert shlex.join(record['command'].split()) == record['command']


def test_every_command_on_the_page_is_understood():
    command, understood = None, 0
    for line in publish.PAGE.read_text().splitlines():
        if found := re.search(r'python -m experiments\.(omniglot|miniimagenet|cub)[^`]*', line):
            command = found[0]
            parsed(command)
        elif found := re.match(r'\| .*? \| `(--.*?)`', line):
            parsed(f'{command} {found[1]}')
        understood += bool(found)
    assert understood > 30


def test_a_column_is_of_the_model_of_its_shot(add):
    both = ('5-way 1-shot', '5-way 5-shot')
    for values in (
        {'accuracy': 10.0, 'scale_init': 'ones'},
        {'accuracy': 90.0},
        {'accuracy': 92.0, 'seed': 1},
        {'accuracy': 99.0, 'shot': 5},
        {'accuracy': 95.0, 'recipe': 'modern'},
    ):
        add(columns=both, **values)
    rows = cells(KINDS['summary']('omniglot'))
    assert rows[0] == [
        "protojax, the paper's recipe",
        '91.00 ± 0.50 [90.00, 92.00]',
        '99.00 ± 0.50',
        'not run',
        'not run',
    ]
    assert rows[1] == ['protojax, `--recipe=modern`', '95.00 ± 0.50', 'not run', 'not run', 'not run']
    assert rows[2] == ['the paper', '98.8', '99.7', '96.0', '98.9']
    assert 'prototypical-networks/issues/2' in rows[3][0] and rows[3][1:] == ['98.4', '99.6', '94.9', '98.6']
    lines = KINDS['paper']('omniglot')
    assert cells(lines)[-1][1:5] == ['91.00 ± 0.50 [90.00, 92.00]', '98.8', '99.00 ± 0.50', '99.7']
    assert 'python -m experiments.omniglot --way=60 --shot=5' in lines
    assert '# Prototypical networks: 2 min for each seed (0, 1) on abacus' in lines
    add(columns=both, accuracy=80.0, episodes=70)
    assert KINDS['paper']('omniglot') == lines  # a shorter training is not shown, unless it is asked for
    assert cells(KINDS['paper']('omniglot --episodes=70'))[-1][1:5] == ['80.00 ± 0.50', '98.8', 'not run', '99.7']


def test_what_cannot_be_compared_has_a_row_of_its_own(add):
    add(cub, columns=('50-way per image',), accuracy=60.0)
    rows = {row[0]: row[1:3] for row in cells(KINDS['paper']('cub'))}
    assert rows['Prototypical networks, GoogLeNet features'] == ['-', '54.6']
    assert rows['Prototypical networks, other features'] == ['60.00 ± 0.50', '-']
    rows = [row[:2] for row in cells(KINDS['summary']('cub'))]
    assert rows[:2] == [
        ["protojax, the paper's recipe, other features", '60.00 ± 0.50'],
        ['the paper, GoogLeNet features', '54.6'],
    ]
    add(miniimagenet, columns=('5-way 5-shot',), shot=5, evaluate_on='validation', accuracy=70.0)
    last = cells(KINDS['paper']('miniimagenet'))[-2:]
    assert last[0] == ['Prototypical networks', '-', '49.42 ± 0.78', '-', '68.20 ± 0.66']
    assert last[1] == ['Prototypical networks, validation classes', 'not run', '-', '70.00 ± 0.50', '-']
    add(miniimagenet, columns=('5-way 5-shot',), shot=5, accuracy=68.0)  # the test classes go before
    last = cells(KINDS['paper']('miniimagenet'))[-1]
    assert last == ['Prototypical networks', 'not run', '49.42 ± 0.78', '68.00 ± 0.50', '68.20 ± 0.66']


CHOICES = """\
python -m experiments.omniglot --way=60 --shot=1
the recipe:
nearest: --resize=nearest
not run: --resize=nearest --scale_init=ones
longer: a run of 80: --episodes=80"""


def test_choices_are_compared_with_the_first_at_its_length(add):
    assert KINDS['choices'](CHOICES) == []
    add(episodes=70, accuracy=90.0, looks=(500, 1000, 2000))
    assert KINDS['choices'](CHOICES) == []  # nothing to compare with
    add(episodes=60, resize='nearest', accuracy=50.0)
    add(episodes=70, resize='nearest', accuracy=89.25, looks=(1000,))
    add(episodes=65, resize='nearest', accuracy=51.0)
    rows = cells(KINDS['choices'](CHOICES))
    assert rows == [
        ['the recipe', '', '90.00 ± 0.50', '0', '2 min'],
        ['nearest', '`--resize=nearest`', '89.25 ± 0.50 (-0.75)', '0', '2 min'],
    ]
    assert cells(KINDS['curves'](CHOICES)) == [
        ['the recipe', '50.00 (2.000)', '50.00 (2.000)'],
        ['nearest', '50.00 (2.000)', ''],
    ]
    assert KINDS['curves'](CHOICES)[-2].endswith('--episodes=70 --resize=nearest')
    add(episodes=70, resize='nearest', test_way=(5,), columns=('5-way 1-shot', '5-way 5-shot'))
    assert cells(KINDS['choices'](CHOICES))[1][2] == 'not run'
    add(episodes=80, accuracy=90.001)
    pinned = CHOICES.replace('recipe:', 'recipe: --episodes=70')
    last = cells(KINDS['choices'](pinned))[-1]
    assert last[:3] == ['longer: a run of 80', '`--episodes=80`', '90.00 ± 0.50 (+0.00)']


def test_a_section_appears_with_its_first_record(add):
    template = '# Title\n\nWords.\n\n## Full\n\n<!-- paper: way -->\n\n## Empty\n\nOh.\n\n<!-- summary: cub -->\n'
    assert published_page(template) == '# Title\n\nWords.\n\n'
    add(miniimagenet, columns=('5-way 1-shot',), way=10)
    text = published_page(template)
    assert '48.27 ± 0.79' in text and '(results/figures/way.png)' in text and 'Empty' not in text and '<!--' not in text


def test_only_finished_runs_on_real_data_are_published(add, tmp_path):
    with pytest.raises(ConfigError, match='--add wants the workdir of a finished run'):
        publish_run(tmp_path / 'nothing')
    results = json.loads((leave(tmp_path / 'stand-in') / 'results.json').read_text())
    stand_in = {**results, 'synthetic': True, 'dataset': 'synthetic handwriting'}
    (tmp_path / 'stand-in/results.json').write_text(json.dumps(stand_in))
    with pytest.raises(ConfigError, match="synthetic handwriting; only runs on the paper's data sets"):
        publish_run(tmp_path / 'stand-in')
    assert published_records('omniglot') == []


@pytest.mark.parametrize(
    'change',
    [
        {'config': {'episodes': 70}},
        {'config': {'episodes': 70, 'data': 'real', 'shot': 1}},
        {'config': {'episodes': 70, 'data': 'real', 'model': ['prototypical']}},
        {'features': 'x --way'},
        {'weights': {'config': {}}},
        {'weights': {'config': {'seed': '0', 'retrain': False}}},
        {'weights': {'config': {'seed': 0, 'retrain': False, 'episodes': 'many'}}},
    ],
    ids=str,
)
def test_what_has_no_command_is_not_published(add, tmp_path, change):
    results = json.loads((leave(tmp_path / 'odd') / 'results.json').read_text())
    (tmp_path / 'odd/results.json').write_text(json.dumps({**results, **change}))
    with pytest.raises(ConfigError, match='odd cannot be published') as caught:
        publish_run(tmp_path / 'odd')
    assert '\n' not in str(caught.value) and published_records('omniglot') == []


def test_a_command_in_results_is_not_taken_over(add, tmp_path):
    results = json.loads((leave(tmp_path / 'odd') / 'results.json').read_text())
    (tmp_path / 'odd/results.json').write_text(json.dumps({**results, 'command': 5}))
    publish_run(tmp_path / 'odd')
    (record,) = published_records('omniglot')
    assert record['command'] == 'python -m experiments.omniglot --way=60 --shot=1 --seed=0'


def test_records_that_pages_cannot_be_made_of_are_not_kept(add, tmp_path, monkeypatch):
    add()
    before = (tmp_path / 'results/omniglot.jsonl').read_bytes()
    monkeypatch.setattr(publish, 'published_page', lambda _: {}['a column'])
    runs = (leave(tmp_path / 'one', seed=1), leave(tmp_path / 'two', cub, columns=('50-way per image',)))
    with pytest.raises(ConfigError, match='no pages can be made with .*one, .*two'):
        publish.run_publish(publish.PublishConfig(add=tuple(map(str, runs))))
    assert [path.read_bytes() for path in (tmp_path / 'results').iterdir()] == [before]


def start(folder, *arguments):
    command = [sys.executable, '-m', 'experiments.publish', *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_an_error_is_one_line_and_pages_stay():
    before = publish.PAGE.read_text()
    done = start(publish.ROOT, '--add=/nowhere')
    assert done.returncode == 1 and done.stdout == ''
    assert '--add wants the workdir of a finished run' in done.stderr and len(done.stderr.splitlines()) == 1
    assert publish.PAGE.read_text() == before


def test_a_run_becomes_a_line_and_a_figure_of_both_pages_in_a_checkout_alone(tmp_path):
    """In a copy of the code, first as an installed package, without README and results, then as a checkout."""
    for package in ('protojax', 'experiments'):
        ignored = shutil.ignore_patterns('__pycache__', 'results', 'RESULTS.md')
        shutil.copytree(publish.ROOT / package, tmp_path / package, ignore=ignored)
    run = leave(tmp_path / 'run', miniimagenet, columns=('5-way 1-shot',), way=15, episodes=1000, accuracy=47.77)
    done = start(tmp_path, f'--add={run}')
    assert done.returncode == 1 and 'is no checkout of protojax' in done.stderr and len(done.stderr.splitlines()) == 1
    shutil.copytree(records.PUBLISHED, tmp_path / 'experiments/results')
    shutil.copy(publish.README, tmp_path)
    done = start(tmp_path, f'--add={run}')
    assert done.returncode == 0, done.stderr
    *before, line = (tmp_path / 'experiments/results/miniimagenet.jsonl').read_text().splitlines()
    assert before == (records.PUBLISHED / 'miniimagenet.jsonl').read_text().splitlines()
    assert json.loads(line)['commit'] == 'abc'
    assert '47.77 ± 0.50' in (tmp_path / 'experiments/RESULTS.md').read_text()
    assert (tmp_path / 'experiments/results/figures/way.png').read_bytes().startswith(b'\x89PNG')


def test_the_readme_must_have_a_place_for_the_tables():
    with pytest.raises(ConfigError, match='no place for the tables'):
        published_readme('# protojax\n')
