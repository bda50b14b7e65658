"""Records: as workdirs leave them, as they are published, and which of them a question is about."""

import json

import pytest

from experiments import miniimagenet, omniglot
from experiments.reporting import records
from experiments.running import config
from experiments.running.config import ConfigError
from experiments.running.flags import parse

MODEL = {'way': 60, 'shot': 1}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty place for published records."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path / 'results')
    return tmp_path


def record(program=omniglot, *, accuracy=90.0, test_episodes=1000, **given):
    """A record of a run, with its command."""
    made = config.configured(program.RECIPE, {'data': 'real', **given})
    scores = {'20-way 1-shot': {'accuracy': accuracy, 'ci95': 0.5, 'loss': 0.1, 'episodes': test_episodes}}
    values = config.identity(made)
    run = {'seed': values['seed'], 'evaluated_on': values['evaluate_on'], values['evaluate_on']: scores}
    run = json.loads(json.dumps({**run, 'config': values}))
    return {'command': records.command(program.EXPERIMENT, run), **run}


def test_a_command_leads_back_to_the_config():
    runs = [
        (omniglot, record(recipe='modern', shot=5, seed=2)),
        (omniglot, record(way=5, query=15, test_way=(5,), retrain=False, mirror=True, test_episodes=70)),
        (miniimagenet, record(miniimagenet, shot=5, episodes=70)),
    ]
    for program, run in runs:
        made = parse(program.RECIPE, [*run['command'].split()[3:], '--data=real'])
        assert config.to_json(made) == {**config.to_json(made), **run['config']}
        assert made.test_episodes == run['test']['20-way 1-shot']['episodes']
    assert runs[0][1]['command'] == 'python -m experiments.omniglot --way=60 --shot=5 --recipe=modern --seed=2'


def test_records_are_appended_once_and_old_lines_stay(folder):
    records.append('omniglot', record())
    before = (folder / 'results/omniglot.jsonl').read_bytes()
    records.append('omniglot', record(seed=1))
    records.append('omniglot', record())
    after = (folder / 'results/omniglot.jsonl').read_bytes()
    assert after.startswith(before) and len(after.splitlines()) == 2
    assert [run['seed'] for run in records.published('omniglot')] == [0, 1]
    assert records.published('cub') == []


def test_a_question_finds_runs_with_nothing_else_changed():
    runs = [
        record(seed=1),
        record(),
        record(scale_init='ones'),
        record(recipe='modern'),
        record(evaluate_on='validation'),
        record(way=20, query=15),
    ]
    assert records.select(runs, MODEL) == [runs[1], runs[0]]
    assert records.select(runs, {**MODEL, 'query': 5, 'evaluate_on': 'test'}) == [runs[1], runs[0]]
    assert records.select(runs, {**MODEL, 'scale_init': 'ones'}) == [runs[2]]
    assert records.select(runs, {**MODEL, 'recipe': 'modern'}) == [runs[3]]
    assert records.select(runs, {**MODEL, 'evaluate_on': 'validation'}) == [runs[4]]
    assert records.select(runs, {**MODEL, 'way': 20}) == []  # the number of queries is changed too
    assert records.select(runs, {**MODEL, 'way': 20, 'query': '15'}) == [runs[5]]


def test_the_longest_training_counts_and_of_equal_ones_the_last():
    runs = [record(episodes=80, seed=1), record(episodes=80), record(episodes=70), record(episodes=80, accuracy=91.0)]
    assert records.select(runs, MODEL) == [runs[3], runs[0]]
    assert records.select(runs, {**MODEL, 'episodes': '70'}) == [runs[2]]
    chosen = record()  # by the validation loss
    assert records.select([*runs, chosen, record(test_episodes=10)], MODEL) == [chosen]


def test_a_flag_that_old_lines_lack_is_as_it_was_then():
    old = record()
    del old['config']['mirror']
    new = record(mirror=True, seed=1)
    assert records.select([old, new], MODEL) == [old]
    assert records.select([old, new], {**MODEL, 'mirror': 'True'}) == [new]
    deleted = {**record(seed=2), 'command': f'{record()["command"]} --deleted=yes --seed=2'}
    assert records.select([old, deleted], MODEL) == [old]


def test_a_cell_is_mean_interval_and_range_of_the_seeds():
    runs = [record(accuracy=90.0), record(seed=1, accuracy=92.0)]
    assert records.cell(records.score(runs, '20-way 1-shot')) == '91.00 ± 0.50 [90.00, 92.00]'
    assert records.cell(records.score(runs[:1], '20-way 1-shot')) == '90.00 ± 0.50'
    assert records.cell(records.score(runs, '5-way 1-shot')) == '-'


def test_a_workdir_gives_results_timing_and_the_learning_curve(folder):
    assert records.read(folder) is None
    looks = [(split, episode) for episode in (500, 1000) for split in ('train', 'validation')]
    looks = [{'split': split, 'episode': at, 'accuracy': at / 1e5, 'loss': 2} for split, at in looks]
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(look) + '\n' for look in looks))
    (folder / 'results.json').write_text('{"seed": 0}')
    assert records.read(folder) == {'seed': 0, 'curve': {'1000': {'accuracy': 1.0, 'loss': 2}}}
    (folder / 'timing.json').write_text('{"seconds": 5.0}')
    assert records.read(folder)['seconds'] == 5.0


def test_weights_that_are_evaluated_later_count_as_their_training():
    trained = record(miniimagenet, shot=5, seed=3, evaluate_on='validation')['config']
    later = {**record(miniimagenet, seed=8), 'weights': {'digest': 'abc', 'config': trained}}
    made = records.of_training(later)
    assert made['config'] == {**trained, 'evaluate_on': 'test'} and made['seed'] == 3
    command = 'python -m experiments.miniimagenet --way=20 --shot=5 --test_episodes=1000 --seed=3'
    assert records.command(miniimagenet.EXPERIMENT, made) == command
    retrained = {**later, 'weights': {'config': {**trained, 'retrain': True}}}
    with pytest.raises(ConfigError, match='trained on other classes'):
        records.of_training(retrained)
