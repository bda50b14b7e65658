"""The published figures: files that are what the command writes, and commands that give the runs behind them."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from experiments import omniglot, publish
from experiments.reporting import records as published
from experiments.running import config
from experiments.running.config import ConfigError

FOUND = published.runs()
RUNS = [run for groups in FOUND.values() for runs in groups.values() for run in runs]


def run(*, dataset='Omniglot', recipe='paper', seed=0, accuracy=90.0, **values):
    """A run as it is published."""
    made = config.configured(omniglot.RECIPE, {'recipe': recipe, 'seed': seed, 'data': 'real', **values})
    score = {'accuracy': accuracy, 'ci95': 0.5, 'loss': 0.1, 'episodes': 1000}
    return {
        'dataset': dataset,
        'synthetic': False,
        'seed': seed,
        'evaluated_on': 'test',
        'config': config.identity(made),
        'test': dict.fromkeys(omniglot.COLUMNS, score),
        'seconds': 120.0,
        'processor': 'abacus',
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty place for published runs and pages."""
    monkeypatch.setattr(published, 'RUNS', tmp_path / 'results')
    return tmp_path


def leave(workdir, results, looks=()):
    """A workdir with what a finished run leaves, that looked at the validation loss after these episodes."""
    workdir.mkdir()
    report = lambda episode: {'split': 'validation', 'episode': episode, 'accuracy': episode / 1e5, 'loss': 2}  # noqa: E731
    reports = map(report, looks)
    (workdir / 'metrics.jsonl').write_text(''.join(json.dumps(report) + '\n' for report in reports))
    timing = {name: results.pop(name) for name in ('seconds', 'processor')}
    (workdir / 'results.json').write_text(json.dumps(results))
    (workdir / 'timing.json').write_text(json.dumps(timing))
    return workdir


def test_pages_are_what_the_command_writes():
    assert publish.PAGE.read_text() == publish.page(FOUND)
    assert publish.README.read_text() == publish.readme(publish.README.read_text(), FOUND)


def test_figures_are_of_real_data_and_name_no_place():
    for one in RUNS:
        assert not one['synthetic']
        assert 'workdir' not in one['config'] and 'data_dir' not in one['config']


@pytest.mark.parametrize(
    'one',
    [*RUNS, run(recipe='modern', shot=5, seed=2), run(way=5, query=15, test_way=(5,), retrain=False, episodes=70)],
)
def test_commands_lead_to_the_configs_of_their_runs(one):
    binary = published.BINARIES[one['dataset']]
    made = config.parse(binary.RECIPE, [*published.command_flags(one), '--data=real'])
    assert config.identity(made) == one['config']


def test_folders_are_named_by_what_was_run(folder):
    runs = [run(), run(seed=1), run(recipe='modern', temperature=8.0), run(evaluate_on='validation')]
    for one in runs:
        published.add(leave(folder / 'run', one))
        shutil.rmtree(folder / 'run')
    assert {place.name for place in (folder / 'results').iterdir()} == {
        'omniglot-60way-1shot-seed0',
        'omniglot-60way-1shot-seed1',
        'omniglot-60way-1shot-recipe=modern-temperature=8.0-seed0',
        'omniglot-60way-1shot-evaluate_on=validation-seed0',
    }


def test_a_cell_is_the_mean_over_the_seeds_of_the_model_of_its_shot(folder):
    for number, one in enumerate(
        [
            run(accuracy=10.0, scale_init='ones'),
            run(accuracy=90.0),
            run(seed=1, accuracy=92.0),
            run(shot=5, accuracy=99.0),
            run(recipe='modern', accuracy=95.0),
        ]
    ):
        published.add(leave(folder / f'run{number}', one))
    lines = publish.omniglot_table(published.runs())
    cells = '91.00 ± 0.50 | 99.00 ± 0.50 | 91.00 ± 0.50 | 99.00 ± 0.50'
    assert lines[2] == f"| protojax, the paper's recipe | {cells} | 0, 1 / 0 |"
    assert lines[3] == '| protojax, `--recipe=modern` | 95.00 ± 0.50 | - | 95.00 ± 0.50 | - | 0 / - |'
    assert lines[4] == '| the paper | 98.8 | 99.7 | 96.0 | 98.9 |  |'
    page = publish.page(published.runs())
    cells = '91.00 ± 0.50 | 91.00 ± 0.50 | 91.00 ± 0.50 | 91.00 ± 0.50'
    assert f'| `--shot=1` | {cells} |  | 0, 1 | 2 min |' in page
    assert '`python -m experiments.omniglot --way=60` with these flags besides, on abacus:' in page


def test_a_gain_is_over_the_setting_with_the_most_of_its_flags(folder):
    ones = {'episodes': 70, 'scale_init': 'ones'}
    settings = [
        run(accuracy=80.0, resize='nearest', **ones),
        run(accuracy=89.25, **ones),
        run(accuracy=90.0, episodes=70),
        run(accuracy=95.0, episodes=80),
    ]
    for number, one in enumerate(settings):
        published.add(leave(folder / f'run{number}', one))
    lines = publish.settings_table(published.runs()['Omniglot', 'test'])
    gains = {line.split('|')[1].strip(): line.split('|')[6].strip() for line in lines[2:]}
    assert gains == {
        '`--episodes=70`': '',
        '`--episodes=70 --scale_init=ones`': '-0.75',
        '`--episodes=70 --scale_init=ones --resize=nearest`': '-9.25',
        '`--episodes=80`': '',
    }


def test_settings_without_the_hardest_column_have_no_gain(folder):
    for number, way in enumerate([(5,), (5, 10)]):
        one = run(test_way=way)
        published.add(leave(folder / f'run{number}', {**one, 'test': {'5-way 1-shot': one['test']['5-way 1-shot']}}))
    assert [line.split('|')[3] for line in publish.page(published.runs()).splitlines() if '2 min' in line] == [
        '  ',
        '  ',
    ]


def test_a_recipe_stands_in_the_tables_with_one_length(folder):
    for number, episodes in enumerate([70, 80]):
        published.add(leave(folder / f'run{number}', run(episodes=episodes)))
    with pytest.raises(ConfigError, match='different --episodes'):
        publish.omniglot_table(published.runs())


def test_a_learning_curve_is_the_mean_over_seeds_at_each_thousand_episodes(folder):
    published.add(leave(folder / 'run0', run(shot=5), looks=(500, 1000, 2000, 3000)))
    published.add(leave(folder / 'run1', run(shot=5, seed=1), looks=(1000, 2000)))
    published.add(leave(folder / 'run2', run(), looks=(1000, 2000)))
    published.add(leave(folder / 'run3', run(way=20)))
    lines = publish.page(published.runs()).splitlines()
    start = lines.index(publish.CURVES) + 2
    assert lines[start] == '| flags | 1000 | 2000 | 3000 |'
    assert lines[start + 2] == '| `--way=60 --shot=1` | 1.00 (2.000) | 2.00 (2.000) |  |'
    assert lines[start + 3] == '| `--way=60 --shot=5` | 1.00 (2.000) | 2.00 (2.000) | 3.00 (2.000) |'
    assert lines[start + 4] == ''


def test_training_way_and_shot_stand_beside_the_paper(folder):
    published.add(leave(folder / 'run0', run(way=20, query=15, episodes=70, accuracy=91.0)))
    published.add(leave(folder / 'run1', run(way=5, episodes=70)))  # 5 queries instead of the 15 of that row
    lines = publish.way_table(published.runs())
    cells = '91.00 ± 0.50 | 98.7 | 91.00 ± 0.50 | 99.6 | 91.00 ± 0.50 | 95.4 | 91.00 ± 0.50 | 98.8'
    assert lines[2:] == [f'| 1-shot, 15 queries, 20-way | {cells} |']


def test_only_finished_runs_on_real_data_are_published(folder):
    with pytest.raises(ConfigError, match='--add wants the workdir of a finished run'):
        published.add(folder / 'nothing')
    with pytest.raises(ConfigError, match='synthetic'):
        published.add(leave(folder / 'stand-in', {**run(), 'synthetic': True}))
    assert published.runs() == {}


def test_an_error_is_one_line_and_pages_stay():
    before = publish.PAGE.read_text()
    command = [sys.executable, '-m', 'experiments.publish', '--add=/nowhere']
    done = subprocess.run(command, cwd=publish.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ''
    assert '--add wants the workdir of a finished run' in done.stderr and len(done.stderr.splitlines()) == 1
    assert publish.PAGE.read_text() == before


def test_the_readme_must_have_a_place_for_the_tables():
    with pytest.raises(ConfigError, match='no place for the tables'):
        publish.readme('# protojax\n', FOUND)


def test_modern_values_give_way_to_flags():
    made = config.parse(omniglot.RECIPE, ['--recipe=modern', '--episodes=70'])
    expected = {**omniglot.MODERN, 'episodes': 70}
    assert made == dataclasses.replace(omniglot.RECIPE, recipe='modern', **expected)
    assert config.parse(omniglot.RECIPE, []) == omniglot.RECIPE
