"""Records: as workdirs leave them, as they are published, and which of them a question is about."""

import json

import pytest

from experiments import miniimagenet, omniglot
from experiments.publishing import records
from experiments.publishing.records import (
    append_record,
    published_records,
    read_record,
    record_cell,
    record_command,
    score_of_records,
    select_records,
    training_record,
)
from experiments.running.config import ConfigError
from experiments.running.flags import parse_flags
from experiments.running.identity import config_identity, config_to_json, configured

MODEL = {'way': 60, 'shot': 1}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty place for published records."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path / 'results')
    return tmp_path


def record(program=omniglot, *, accuracy=90.0, test_episodes=1000, **given):
    """A record of a run, with its command."""
    made = configured(program.RECIPE, {'data': 'real', **given})
    scores = {'20-way 1-shot': {'accuracy': accuracy, 'ci95': 0.5, 'loss': 0.1, 'episodes': test_episodes}}
    values = config_identity(made)
    run = {'seed': values['seed'], 'evaluated_on': values['evaluate_on'], values['evaluate_on']: scores}
    run = json.loads(json.dumps({**run, 'config': values}))
    return {'command': record_command(program.EXPERIMENT, run), **run}


def test_a_command_leads_back_to_the_config():
    runs = [
        (omniglot, record(recipe='modern', shot=5, seed=2)),
        (omniglot, record(way=5, query=15, test_way=(5,), retrain=False, mirror=True, test_episodes=70)),
        (miniimagenet, record(miniimagenet, shot=5, episodes=70)),
    ]
    for program, run in runs:
        made = parse_flags(program.RECIPE, [*run['command'].split()[3:], '--data=real'])
        assert config_to_json(made) == {**config_to_json(made), **run['config']}
        assert made.test_episodes == run['test']['20-way 1-shot']['episodes']
    assert runs[0][1]['command'] == 'python -m experiments.omniglot --way=60 --shot=5 --recipe=modern --seed=2'


def test_records_are_appended_once_and_old_lines_stay(folder):
    append_record('omniglot', record())
    before = (folder / 'results/omniglot.jsonl').read_bytes()
    append_record('omniglot', record(seed=1))
    append_record('omniglot', record())
    after = (folder / 'results/omniglot.jsonl').read_bytes()
    assert after.startswith(before) and len(after.splitlines()) == 2
    assert [run['seed'] for run in published_records('omniglot')] == [0, 1]
    assert published_records('cub') == []


def test_a_question_finds_runs_with_nothing_else_changed():
    runs = [
        record(seed=1),
        record(),
        record(scale_init='ones'),
        record(recipe='modern'),
        record(evaluate_on='validation'),
        record(way=20, query=15),
    ]
    assert select_records(runs, MODEL) == [runs[1], runs[0]]
    assert select_records(runs, {**MODEL, 'query': 5, 'evaluate_on': 'test'}) == [runs[1], runs[0]]
    assert select_records(runs, {**MODEL, 'scale_init': 'ones'}) == [runs[2]]
    assert select_records(runs, {**MODEL, 'recipe': 'modern'}) == [runs[3]]
    assert select_records(runs, {**MODEL, 'evaluate_on': 'validation'}) == [runs[4]]
    assert select_records(runs, {**MODEL, 'way': 20}) == []  # the number of queries is changed too
    assert select_records(runs, {**MODEL, 'way': 20, 'query': '15'}) == [runs[5]]
    whole, part = record(), record(test_shot=(1,))  # the same model, tested in fewer columns
    assert select_records([part], MODEL) == [part]
    whole['test'] |= {'20-way 5-shot': whole['test']['20-way 1-shot']}
    assert select_records([whole, part], MODEL) == select_records([part, whole], MODEL) == [whole]


def test_the_longest_training_counts_and_of_equal_ones_the_last():
    runs = [record(episodes=80, seed=1), record(episodes=80), record(episodes=70), record(episodes=80, accuracy=91.0)]
    assert select_records(runs, MODEL) == [runs[3], runs[0]]
    assert select_records(runs, {**MODEL, 'episodes': '70'}) == [runs[2]]
    chosen = record()  # by the validation loss
    assert select_records([*runs, chosen, record(test_episodes=10)], MODEL) == [chosen]


def test_a_flag_that_old_lines_lack_is_as_it_was_then():
    old = record()
    del old['config']['mirror']
    new = record(mirror=True, seed=1)
    assert select_records([old, new], MODEL) == [old]
    assert select_records([old, new], {**MODEL, 'mirror': 'True'}) == [new]
    deleted = {**record(seed=2), 'command': f'{record()["command"]} --deleted=yes --seed=2'}
    assert select_records([old, deleted], MODEL) == [old]


def test_a_cell_is_mean_interval_and_range_of_the_seeds():
    runs = [record(accuracy=90.0), record(seed=1, accuracy=92.0)]
    assert record_cell(score_of_records(runs, '20-way 1-shot')) == '91.00 ± 0.50 [90.00, 92.00]'
    assert record_cell(score_of_records(runs[:1], '20-way 1-shot')) == '90.00 ± 0.50'
    assert record_cell(score_of_records(runs, '5-way 1-shot')) == 'not run'


def test_a_workdir_gives_results_timing_and_the_learning_curve(folder):
    assert read_record(folder) is None
    looks = [(split, episode) for episode in (500, 1000) for split in ('train', 'validation')]
    looks = [{'stage': 'search', 'split': split, 'episode': at, 'accuracy': at / 1e5, 'loss': 2} for split, at in looks]
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(look) + '\n' for look in looks))
    finished = {'synthetic': False, 'dataset': 'Omniglot', **record(omniglot)}
    (folder / 'results.json').write_text(json.dumps(finished))
    assert read_record(folder) == {**finished, 'curve': {'1000': {'accuracy': 1.0, 'loss': 2}}}
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(look) + '\n' for look in looks[:2]))
    assert read_record(folder)['curve'] == {'500': {'accuracy': 0.5, 'loss': 2}}
    (folder / 'timing.json').write_text('{"seconds": 5.0}')
    assert read_record(folder)['seconds'] == 5.0
    (folder / 'timing.json').write_text('{"seconds": 6.0, "commit": null, "seed": "text"}')
    assert read_record(folder)['seed'] == finished['seed']


@pytest.mark.parametrize('name', ['results.json', 'timing.json', 'metrics.jsonl'])
@pytest.mark.parametrize('content', [b'', b'{', b'[7]', b'7', b'{"seed": 0}', b'\xff', b'[' * 100_000])
def test_a_damaged_workdir_is_told_in_one_line(folder, name, content):
    (folder / 'results.json').write_text(json.dumps({'synthetic': False, 'dataset': 'Omniglot', **record(omniglot)}))
    read_record(folder)
    (folder / name).write_bytes(content + b'\n')
    if (name, content) != ('timing.json', b'{"seed": 0}'):
        with pytest.raises(ConfigError, match=r'is damaged \(.*\); restore it') as caught:
            read_record(folder)
        assert '\n' not in str(caught.value)


DAMAGE = [
    {'seed': True},
    {'seed': '0'},
    {'seed': [0]},
    {'dataset': 5},
    {'dataset': 'Omni\nglot'},
    {'dataset': 'Omni\ud800glot'},
    {'note': 'a line\u2028another'},
    {'note': {'\x1b[2J': 0}},
    {'features': '\x1b[2JGoogLeNet'},
    {'features': ['GoogLeNet']},
    {'evaluated_on': 'config'},
    {'evaluated_on': ['test']},
    {'evaluated_on': '\x1b[2J', '\x1b[2J': {}},
    {'synthetic': 'no'},
    {'config': []},
    {'config': {}},
    {'config': {'episodes': '70'}},
    {'config': {'episodes': True}},
    {'config': {'episodes': 70, 'way': 5.5}},
    {'config': {'episodes': 70, 'shot': None}},
    {'config': {'episodes': 70, 'model': {}}},
    {'config': {'episodes': 70, 'test_way': [[5]]}},
    {'config': {'episodes': 70, 'model': 'a\nb'}},
    {'config': {'episodes': 70, 'temperature': float('nan')}},
    {'weights': 5},
    {'weights': {}},
    {'weights': {'config': []}},
    {'seconds': 'long'},
    {'seconds': float('inf')},
    {'processor': 5},
    {'commit': 5},
    {'test': {}},
    {'test': [5]},
    {'test': {'5-way 1-shot': 5}},
    {'test': {'5-way 1-shot': {}}},
    {'test': {'5-way 1-shot': {'accuracy': '90', 'ci95': 0.5, 'episodes': 10}}},
    {'test': {'5-way 1-shot': {'accuracy': 90.0, 'ci95': float('nan'), 'episodes': 10}}},
    {'test': {'5-way 1-shot': {'accuracy': 1e300, 'ci95': 0.5, 'episodes': 10}}},
    {'test': {'5-way 1-shot': {'accuracy': 10**400, 'ci95': 0.5, 'episodes': 10}}},
    {'test': {'5-way 1-shot': {'accuracy': 90.0, 'ci95': 0.5, 'episodes': '10'}}},
    {'test': {'5-way\n1-shot': {'accuracy': 90.0, 'ci95': 0.5, 'episodes': 10}}},
]


@pytest.mark.parametrize('change', DAMAGE, ids=ascii)
def test_results_that_no_run_writes_are_told_in_one_line(folder, change):
    results = {'synthetic': False, 'dataset': 'Omniglot', **record(omniglot), **change}
    (folder / 'results.json').write_text(json.dumps(results))
    with pytest.raises(ConfigError, match=r'is damaged \(.*\); restore it') as caught:
        read_record(folder)
    assert '\n' not in str(caught.value)


REPORT = {'stage': 'search', 'split': 'validation', 'episode': 1000, 'accuracy': 0.5, 'loss': 2}


@pytest.mark.parametrize(
    'change',
    [{'accuracy': 'text'}, {'accuracy': 1e308}, {'loss': float('nan')}, {'episode': 1000.0}, {'episode': False}],
    ids=str,
)
def test_a_learning_curve_is_of_finite_numbers(folder, change):
    (folder / 'results.json').write_text(json.dumps({'synthetic': False, 'dataset': 'Omniglot', **record(omniglot)}))
    (folder / 'metrics.jsonl').write_text(json.dumps({**REPORT, **change}) + '\n')
    with pytest.raises(ConfigError, match=r'is damaged \(.*\); restore it'):
        read_record(folder)


def test_a_device_in_a_workdir_is_not_read(folder):
    (folder / 'results.json').write_text(json.dumps({'synthetic': False, 'dataset': 'Omniglot', **record(omniglot)}))
    (folder / 'metrics.jsonl').symlink_to('/dev/null')
    with pytest.raises(ConfigError, match='it is no ordinary file'):
        read_record(folder)


def test_weights_that_are_evaluated_later_count_as_their_training():
    trained = record(miniimagenet, shot=5, seed=3, evaluate_on='validation')['config']
    later = {**record(miniimagenet, seed=8), 'weights': {'digest': 'abc', 'config': trained}}
    made = training_record(later)
    assert made['config'] == {**trained, 'evaluate_on': 'test'} and made['seed'] == 3
    command = 'python -m experiments.miniimagenet --way=20 --shot=5 --test_episodes=1000 --seed=3'
    assert record_command(miniimagenet.EXPERIMENT, made) == command
    retrained = {**later, 'weights': {'config': {**trained, 'retrain': True}}}
    with pytest.raises(ConfigError, match='trained on other classes'):
        training_record(retrained)
    with pytest.raises(ConfigError, match='does not say how they were trained'):
        training_record({**later, 'weights': {'config': {}}})


@pytest.mark.parametrize('features', ['two words', 'x --way', '$(reboot)', 'a|b', '`x`'])
def test_a_command_has_nothing_that_a_shell_would_not_take_as_it_stands(features):
    with pytest.raises(ConfigError, match='cannot stand in a published command'):
        record_command(omniglot.EXPERIMENT, {**record(), 'features': features})
