"""The tables: rows are runnable commands, figures are the paper's, and what is finished is not run again."""

import json
import shlex
from pathlib import Path

import pytest
import quick_compiler

from experiments.reporting.paper import TABLES
from experiments.running.config import ConfigError
from experiments.running.identity import config_to_json
from experiments.tables import (
    TableOptions,
    _result_for_table,
    _trials_of_table,
    _trials_of_table_row,
    make_table,
    write_table,
)

OURS = [(name, row) for name, table in TABLES.items() for row in table.rows]


@pytest.fixture
def options(tmp_path):
    return TableOptions(str(tmp_path / 'runs'), (0, 1), {})


def finish(trial, accuracies, *, synthetic=False, episodes=None, split='test', **about):
    """What a run of these accuracies leaves behind."""
    episodes = episodes or (trial.config.test_episodes if hasattr(trial.config, 'shot') else 1)
    scores = {c: {'accuracy': a, 'ci95': 0.5, 'loss': 1.0, 'episodes': episodes} for c, a in accuracies.items()}
    trial.workdir.mkdir(parents=True)
    (trial.workdir / 'config.json').write_text(json.dumps(config_to_json(trial.config)))
    about = {**about, 'dataset': 'a data set', 'config': config_to_json(trial.config), 'synthetic': synthetic}
    found = {**about, 'seed': trial.config.seed, 'evaluated_on': split, split: scores}
    (trial.workdir / 'results.json').write_text(json.dumps(found))


@pytest.mark.parametrize(('name', 'row'), OURS, ids=[f'{name}: {row.name}' for name, row in OURS])
def test_flags_of_a_row_are_those_of_its_binary(name, row, options):
    given = {'data': 'synthetic', 'episodes': 20, 'retrain': False, 'learning_rate': 0.01}
    for flags in row.runs:
        for trial in _trials_of_table(TABLES[name], flags, options._replace(extra=given)):
            assert trial.command[2] == f'experiments.{TABLES[name].experiment}'
            assert {**vars(trial.config), **given, **flags} == vars(trial.config)


def test_each_cell_comes_from_the_model_of_its_shot(options):
    row = TABLES['omniglot'].rows[-1]
    for trial in _trials_of_table_row(TABLES['omniglot'], row, options):
        base = 10 * trial.config.shot + trial.config.seed
        finish(trial, {column: base + i for i, column in enumerate(TABLES['omniglot'].columns)})
    write_table('omniglot', options)
    cells = json.loads(Path(options.runs, 'omniglot.json').read_text())['rows'][-1]['cells']
    assert [cell['ours']['accuracy'] for cell in cells.values()] == [10.5, 51.5, 12.5, 53.5]
    assert cells['5-way 5-shot']['ours']['seeds'] == {'0': 51, '1': 52}
    assert cells['5-way 5-shot']['paper'] == {'accuracy': 99.7, 'ci95': None}


def test_markdown_shows_missing_and_synthetic(options):
    def rows(text):
        lines = [line.strip('|').split('|') for line in text.splitlines() if line.startswith('|')]
        return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}

    first, second = _trials_of_table_row(TABLES['cub'], TABLES['cub'].rows[-1], options)
    found = rows(write_table('cub', options))
    assert found['Prototypical networks, GoogLeNet features'] == ['not run', '54.6', 'not run', '-']
    assert found['SJE, GoogLeNet features'] == ['not run', '50.1', 'not run', '-']
    assert found['SJE, AlexNet features'] == ['not run', '40.3', 'not run', '-']
    finish(first, {'50-way per image': 55.0, '50-way per class': 50.0}, synthetic=True)
    finish(second, {'50-way per image': 56.0, '50-way per class': 53.0}, synthetic=True)
    text = write_table('cub', options)
    ours = ['55.50 ± 0.50 [55.00, 56.00]', '-', '51.50 ± 0.50 [50.00, 53.00]', '-']
    assert rows(text)['Prototypical networks, synthetic data'] == ours
    assert rows(text)['Prototypical networks, GoogLeNet features'] == ['-', '54.6', '-', '-']
    assert shlex.join(first.command) in text and shlex.join(second.command) in text


def test_tables_share_their_runs(options):
    def runs(name, row):
        return {t.workdir for t in _trials_of_table_row(TABLES[name], TABLES[name].rows[row], options)}

    assert runs('omniglot', -1) == runs('omniglot-way', 2) | runs('omniglot-way', 5)
    assert runs('miniimagenet', -1) == runs('way', 5) | runs('way', 9)
    assert runs('distance', 11) == runs('way', 9)
    assert runs('cub', 1) == runs('cub', 3)  # SJE, on the features that are given


def test_a_run_of_two_rows_is_listed_once_and_shown_beside_the_features_that_it_used(options):
    for trial in _trials_of_table_row(TABLES['cub'], TABLES['cub'].rows[1], options):
        finish(trial, {'50-way per image': 41.0, '50-way per class': 40.0}, features='AlexNet')
    text = write_table('cub', options)
    assert text.count('--model=sje --seed=0') == 1
    rows = [line for line in text.splitlines() if line.startswith('| SJE,')]
    assert [[cell.strip() for cell in row.split('|')[2:4]] for row in rows] == [
        ['41.00 ± 0.50 [41.00, 41.00]', '40.3'],
        ['-', '50.1'],
    ]


def test_another_configuration_is_refused_and_fewer_test_episodes_do_not_count(options):
    table, row = TABLES['miniimagenet'], TABLES['miniimagenet'].rows[-1]
    trial = _trials_of_table_row(table, row, options)[0]
    finish(trial, {'5-way 1-shot': 50.0}, episodes=10)
    assert _result_for_table(trial) is None
    quick = _trials_of_table_row(table, row, options._replace(extra={'test_episodes': '10'}))[0]
    assert _result_for_table(quick)['test']['5-way 1-shot']['accuracy'] == 50.0
    other = _trials_of_table_row(table, row, options._replace(extra={'episodes': '7'}))[0]
    with pytest.raises(ConfigError, match=r'episodes \(0 there, 7 now\); choose another --runs'):
        _result_for_table(other)


@pytest.mark.parametrize('content', ['', '[]', '{'])
def test_a_damaged_configuration_is_told_in_one_line(options, content):
    trial = _trials_of_table_row(TABLES['miniimagenet'], TABLES['miniimagenet'].rows[-1], options)[0]
    finish(trial, {'5-way 1-shot': 50.0}, episodes=10)
    (trial.workdir / 'config.json').write_text(content)
    with pytest.raises(ConfigError, match=r'config.json is damaged \(.*\); restore it'):
        _result_for_table(trial)


@pytest.mark.parametrize('about', [{'features': '\x1b[2JGoogLeNet'}, {'features': 5}, {'split': '\x1b[2J'}], ids=ascii)
def test_labels_that_are_no_plain_text_are_refused(options, about):
    trial = _trials_of_table_row(TABLES['cub'], TABLES['cub'].rows[-1], options)[0]
    finish(trial, {'50-way per image': 50.0}, **about)
    with pytest.raises(ConfigError, match=r'is damaged \(.*\); restore it') as caught:
        write_table('cub', options)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize('extra', [{'no_such': '1'}, {'way': 'many'}, {'retrain': 'perhaps'}])
def test_bad_extra_flags_are_named(options, extra):
    with pytest.raises(ConfigError, match=next(iter(extra))):
        _trials_of_table_row(TABLES['way'], TABLES['way'].rows[0], options._replace(extra=extra))


@pytest.mark.parametrize('name', ['way', 'distance'])
def test_charts_are_drawn_from_what_is_there(name, options):
    def picture():
        write_table(name, options)
        return Path(options.runs, f'{name}.png').read_bytes()

    before = picture()
    for row in TABLES[name].rows[:2]:
        for trial in _trials_of_table_row(TABLES[name], row, options):
            finish(trial, {'5-way 1-shot': 45.0, '5-way 5-shot': 62.0}, synthetic=True)
    assert before.startswith(b'\x89PNG') and picture() != before


def test_only_what_is_missing_is_run(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv('XLA_FLAGS', quick_compiler.flags())
    extra = {
        'data': 'synthetic',
        'episodes': '2',
        'way': '20',
        'dimensions': '8',
        'compilation_cache': 'off',
        'pictures': 'off',
    }
    options = TableOptions(str(tmp_path), (0, 1), extra)
    monkeypatch.setitem(TABLES, 'cub', TABLES['cub']._replace(rows=TABLES['cub'].rows[-1:]))
    first, second = _trials_of_table_row(TABLES['cub'], TABLES['cub'].rows[-1], options)
    finish(first, {'50-way per image': 99.0, '50-way per class': 99.0}, synthetic=True)

    def run():
        """The seeds that were run, and when the results were written."""
        assert make_table('cub', options) == 0
        started = [text for text in capfd.readouterr().out.splitlines() if text.startswith('[1/1] python')]
        times = [(trial.workdir / 'results.json').stat().st_mtime_ns for trial in (first, second)]
        return [text.split()[6] for text in started], times

    seeds, written = run()
    assert seeds == ['--seed=1']
    ours = json.loads((tmp_path / 'cub.json').read_text())['rows'][-1]['cells']['50-way per image']['ours']
    accuracy = json.loads((second.workdir / 'results.json').read_text())['test']['50-way per image']['accuracy']
    assert ours['seeds'] == {'0': 99.0, '1': accuracy} and ours['labels'] == ['synthetic data']
    assert run() == ([], written)


def test_a_failing_row_ends_the_table_with_its_code(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv('XLA_FLAGS', quick_compiler.flags())
    extra = {'data': 'synthetic', 'way': '1000', 'compilation_cache': 'off', 'pictures': 'off'}
    assert make_table('cub', TableOptions(str(tmp_path), (0,), extra)) == 1
    errors = capfd.readouterr().err
    assert '--way=1000, but there are 100 training classes' in errors and 'ended with code 1' in errors
    assert (
        '| Prototypical networks, GoogLeNet features | not run          | 54.6  |' in (tmp_path / 'cub.md').read_text()
    )
