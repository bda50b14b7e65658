"""The tables command: rows are runnable commands, and finished runs are not repeated."""

import json
import shlex
from pathlib import Path

import pytest

from experiments import tables
from experiments.paper.tables import TABLES
from experiments.running.config import ConfigError
from experiments.running.workdir import WorkdirError


@pytest.fixture
def options(tmp_path):
    return tables.Options(str(tmp_path / 'runs'), (0, 1), {})


def trials(name, row, options):
    return tables.planned(TABLES[name], TABLES[name].rows[row].runs, options)


def finish(trial, accuracies, *, synthetic=False, episodes=None):
    """Write the files of a finished run with these accuracies."""
    episodes = episodes or trial.config.flat.get('test_episodes', 1)
    scores = {c: {'accuracy': a, 'ci95': 0.5, 'loss': 1.0, 'episodes': episodes} for c, a in accuracies.items()}
    trial.workdir.mkdir(parents=True)
    (trial.workdir / 'config.json').write_text(json.dumps(trial.config.flat))
    about = {'dataset': 'a data set', 'config': trial.config.flat, 'synthetic': synthetic}
    found = {**about, 'seed': trial.config.run.seed, 'evaluated_on': 'test', 'test': scores}
    (trial.workdir / 'results.json').write_text(json.dumps(found))


@pytest.mark.parametrize('table', TABLES.values())
def test_the_flags_of_a_row_are_valid(table, options):
    given = {'data': 'synthetic', 'episodes': 20, 'retrain': False, 'learning_rate': 0.01}
    for flags in (flags for row in table.rows for flags in row.runs):
        (trial,) = tables.planned(table, [flags], options._replace(extra=given, seeds=(0,)))
        assert trial.command[2] == f'experiments.{table.experiment}'
        assert {**trial.config.flat, **given, **flags} == trial.config.flat


def test_each_cell_comes_from_the_model_of_its_shot(options):
    for trial in trials('omniglot', -1, options):
        base = 10 * trial.config.episodes.shot + trial.config.run.seed
        finish(trial, {column: base + i for i, column in enumerate(TABLES['omniglot'].columns)}, synthetic=True)
    text = tables.write('omniglot', options)
    cells = json.loads(Path(options.runs, 'omniglot.json').read_text())['rows'][-1]['cells']
    assert [cell['ours']['accuracy'] for cell in cells.values()] == [10.5, 51.5, 12.5, 53.5]
    assert cells['5-way 5-shot']['ours']['seeds'] == {'0': 51, '1': 52}
    assert cells['5-way 5-shot']['paper'] == {'accuracy': 99.7, 'ci95': None}
    assert '| 51.50 ± 0.50 [51.00, 52.00] | 99.7 ' in text and '| not run ' in text
    assert '| Prototypical networks (ours: synthetic data) ' in text


def test_other_configs_and_fewer_test_episodes_do_not_count(options):
    trial = trials('miniimagenet', -1, options)[0]
    finish(trial, {'5-way 1-shot': 50.0}, episodes=10)
    assert tables.result(trial) is None
    quick = trials('miniimagenet', -1, options._replace(extra={'test_episodes': '10'}))[0]
    assert tables.result(quick)['test']['5-way 1-shot']['accuracy'] == 50.0
    other = trials('miniimagenet', -1, options._replace(extra={'episodes': '7'}))[0]
    with pytest.raises(ConfigError, match=r'episodes \(saved 0, now 7\); choose another --runs'):
        tables.result(other)
    (trial.workdir / 'config.json').write_text('{')
    with pytest.raises(WorkdirError, match=r'config.json is corrupted \(.*\); restore it'):
        tables.result(trial)


def test_only_missing_runs_are_executed_until_one_fails(options, monkeypatch, capsys):
    monkeypatch.setitem(TABLES, 'cub', TABLES['cub']._replace(rows=TABLES['cub'].rows[-1:]))
    first, second = trials('cub', 0, options)
    finish(first, {'50-way per image': 99.0, '50-way per class': 99.0})
    execute = 'experiments.paper.trials.execute'
    monkeypatch.setattr(execute, lambda trial: 3)
    assert tables.make('cub', options) == 3 and 'exit code 3' in capsys.readouterr().err
    monkeypatch.setattr(execute, lambda trial: finish(trial, {'50-way per image': 60.0}) or 0)
    assert tables.make('cub', options) == 0 and f'[1/1] {shlex.join(second.command)}' in capsys.readouterr().out
    ours = json.loads(Path(options.runs, 'cub.json').read_text())['rows'][-1]['cells']['50-way per image']['ours']
    assert ours['seeds'] == {'0': 99.0, '1': 60.0}
    monkeypatch.setattr(execute, None)  # nothing is left to run
    assert tables.make('cub', options) == 0


def test_arguments_are_checked():
    with pytest.raises(ConfigError, match="expected --flag=value, got 'x'"):
        tables.parse(tables.TablesConfig(), ['x'])
    with pytest.raises(ConfigError, match='no_such'):
        trials('way', 0, tables.parse(tables.TablesConfig(episodes=5), ['--no_such=1']))


def test_a_table_is_chosen_by_its_number_in_the_paper(capsys):
    for table in ('5', 'distance'):
        tables.run(tables.TablesConfig(table=table, list=True, seeds=(0,)), [])
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :] and '--table=distance' in printed[0]
