"""Records: read from workdirs, published, and selected."""

import json

import pytest

from experiments import miniimagenet, omniglot
from experiments.paper import records
from experiments.running.config import ConfigError
from experiments.running.workdir import WorkdirError
from tests.helpers.records import record

MODEL = {'way': 60, 'shot': 1}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty directory, also for published records."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path)
    return tmp_path


def test_a_command_leads_back_to_the_config():
    runs = [
        (omniglot, record(recipe='modern', shot=5, seed=2)),
        (omniglot, record(way=5, query=15, test_way=(5,), retrain=False, mirror=True, test_episodes=70)),
        (miniimagenet, record(miniimagenet, shot=5, episodes=70)),
    ]
    for program, run in runs:
        made = program.EXPERIMENT.parse([*run['command'].split()[3:], '--data=real'])
        assert made.flat == {**made.flat, **run['config']}
        assert made.episodes.test_episodes == run['test']['20-way 1-shot']['episodes']
    assert runs[0][1]['command'] == 'python -m experiments.omniglot --way=60 --shot=5 --recipe=modern --seed=2'


def test_records_are_appended_once_and_old_lines_stay(folder):
    records.append('omniglot', record())
    before = (folder / 'omniglot.jsonl').read_bytes()
    records.append('omniglot', record(seed=1))
    records.append('omniglot', record())
    assert (folder / 'omniglot.jsonl').read_bytes().startswith(before)
    assert [run['seed'] for run in records.published('omniglot')] == [0, 1] and records.published('cub') == []


def test_a_selection_has_nothing_else_changed():
    runs = [record(seed=1), record(), record(scale_init='ones'), record(recipe='modern'), record(way=20, query=15)]
    assert records.select(runs, MODEL) == [runs[1], runs[0]]
    assert records.select(runs, {**MODEL, 'scale_init': 'ones'}) == [runs[2]]
    assert records.select(runs, {**MODEL, 'recipe': 'modern'}) == [runs[3]]
    assert records.select(runs, {**MODEL, 'way': 20}) == []  # the number of queries is changed too
    assert records.select(runs, {**MODEL, 'way': 20, 'query': '15'}) == [runs[4]]
    assert records.select([run := record(temperature=4)], {**MODEL, 'temperature': '4'}) == [run]  # saved as 4.0


def test_the_longest_run_counts_and_of_equal_ones_the_last():
    runs = [record(episodes=80, seed=1), record(episodes=80), record(episodes=70), record(episodes=80, accuracy=91.0)]
    assert records.select(runs, MODEL) == [runs[3], runs[0]]
    assert records.select(runs, {**MODEL, 'episodes': '70'}) == [runs[2]]
    stopped = record()  # by the validation loss
    assert records.select([*runs, stopped, record(test_episodes=10)], MODEL) == [stopped]
    more, fewer = record(columns=('20-way 1-shot', '20-way 5-shot')), record(test_shot=(1,))
    assert records.select([more, fewer], MODEL) == records.select([fewer, more], MODEL) == [more]


def test_a_flag_that_a_record_lacks_has_its_old_value():
    old, new = record(), record(mirror=True, seed=1)
    del old['config']['mirror']
    assert records.select([old, new], MODEL) == [old]
    assert records.select([old, new], {**MODEL, 'mirror': 'True'}) == [new]
    removed = {**record(seed=2), 'command': f'{record()["command"]} --removed=yes --seed=2'}
    assert records.select([old, removed], MODEL) == [old]


def test_a_workdir_has_results_timing_and_a_learning_curve(folder):
    assert records.read(folder) is None
    looks = [(split, episode) for episode in (500, 1000) for split in ('train', 'validation')]
    looks = [{'stage': 'search', 'split': split, 'episode': at, 'accuracy': at / 1e5, 'loss': 2} for split, at in looks]
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(look) + '\n' for look in looks))
    (folder / 'results.json').write_text(json.dumps(record()))
    assert records.read(folder) == {**record(), 'curve': {'1000': {'accuracy': 1.0, 'loss': 2}}}
    (folder / 'metrics.jsonl').write_text(json.dumps(looks[1]) + '\n')
    (folder / 'timing.json').write_text('{"seconds": 6.0, "commit": null, "seed": "text"}')
    read = records.read(folder)
    assert read['curve'] == {'500': {'accuracy': 0.5, 'loss': 2}} and read['seconds'] == 6.0 and read['seed'] == 0


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('results.json', '{"seed": 0}'),
        ('results.json', json.dumps({**record(), 'test': {}})),
        ('results.json', json.dumps(record()).replace('90.0', 'NaN')),
        ('timing.json', '7'),
        ('metrics.jsonl', '{"split": "validation"}\n'),
    ],
)
def test_a_corrupted_workdir_is_reported_in_one_line(folder, name, content):
    (folder / 'results.json').write_text(json.dumps(record()))
    (folder / name).write_text(content)
    with pytest.raises(WorkdirError, match=r'^.*json.? is corrupted \(.*\).*$'):
        records.read(folder)


def test_weights_that_are_evaluated_later_count_as_their_training():
    trained = record(miniimagenet, shot=5, seed=3, evaluate_on='validation')['config']
    later = {**record(miniimagenet, seed=8, test_episodes=1000), 'weights': {'digest': 'abc', 'config': trained}}
    made = records.of_training(later)
    assert made['config'] == {**trained, 'evaluate_on': 'test'} and made['seed'] == 3
    command = 'python -m experiments.miniimagenet --way=20 --shot=5 --test_episodes=1000 --seed=3'
    assert records.command(miniimagenet.EXPERIMENT, made) == command
    with pytest.raises(ConfigError, match='trained on different classes'):
        records.of_training({**later, 'weights': {'config': {**trained, 'retrain': True}}})
