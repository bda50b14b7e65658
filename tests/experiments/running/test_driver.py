"""Whole experiments on tiny data: what they write, how they go on, and what they refuse."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from experiments import cub, miniimagenet, omniglot
from experiments.running import building, driver
from experiments.running.config import ConfigError
from experiments.running.driver import run_experiment
from experiments.running.evaluating import evaluators
from experiments.running.flags import parse_flags
from experiments.running.workdir import WorkdirError, default_workdir
from protojax.checkpoints import Checkpoints
from protojax.classifiers import by_prototypes
from protojax.datasets.omniglot import SPLITS, rotated_characters
from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.datasets.synthetic.shapes import shapes
from protojax.encoders import Conv4
from protojax.evaluation import Score
from protojax.pretrained import load_pretrained
from protojax.tasks import few_shot_task

TINY = {
    'way': 5,
    'shot': 1,
    'query': 3,
    'test_way': (5,),
    'test_query': 3,
    'validation_way': 4,
    'validation_episodes': 10,
    'test_episodes': 50,
    'log_every': 2,
    'validate_every': 2,
    'checkpoint_every': 4,
    'kernels': 'off',
    'pictures': 'off',
}


def characters(config, synthetic=True):
    data = handwriting(0, alphabets=(2, 1, 1), characters=4, drawings=10)
    data = data._replace(**{name: rotated_characters(getattr(data, name)) for name in SPLITS})
    smaller = {name: (split := getattr(data, name))._replace(items=split.items[:, :, 6:22, 6:22]) for name in SPLITS}
    data = data._replace(**smaller)
    return data if synthetic else data._replace(title='Omniglot', synthetic=False)


EXPERIMENT = omniglot.EXPERIMENT._replace(load=characters, stand_in_episodes=6)
REAL = EXPERIMENT._replace(load=lambda config: characters(config, synthetic=False))


def config(workdir, **values):
    return dataclasses.replace(omniglot.RECIPE, workdir=str(workdir), **{**TINY, **values})


def final_params(workdir, stage='train'):
    checkpoints = Checkpoints(workdir / stage)
    step = checkpoints.steps()[-1]
    tree = checkpoints._manager.restore(step, args=None)
    return jax.tree.leaves(tree.tree)


def lines(workdir):
    return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


@pytest.fixture(scope='module', autouse=True)
def quick():
    """A small network on two of the eight devices that tests see."""
    conv4 = building.ENCODERS['conv4']
    filters = {'off': 8, 'auto': 64}  # which kernels need
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, 'devices_for', lambda config, task: jax.devices()[:2])
        patch.setitem(building.ENCODERS, 'conv4', lambda config: conv4(config).clone(filters=filters[config.kernels]))
        yield


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A run on the stand-in that went through without interruption."""
    workdir = tmp_path_factory.mktemp('run')
    return workdir, run_experiment(config(workdir, pictures='on'), EXPERIMENT)


@pytest.fixture
def one_device(monkeypatch):
    """Quicker where it makes no difference."""
    monkeypatch.setattr(driver, 'devices_for', lambda config, task: jax.devices()[:1])


def test_a_run_writes_what_it_promises(finished):
    workdir, results = finished
    saved = json.loads((workdir / 'results.json').read_text())
    assert saved == json.loads(json.dumps(results))
    assert saved['dataset'] == 'synthetic handwriting, not Omniglot' and saved['synthetic'] is True
    assert set(saved['test']) == {'5-way 1-shot', '5-way 5-shot'}
    for cell in saved['test'].values():
        assert 0 < cell['accuracy'] <= 100 and 0 < cell['ci95'] < 50 and cell['episodes'] == 50
    assert json.loads((workdir / 'config.json').read_text())['way'] == 5
    assert [(line['episode'], line['split']) for line in lines(workdir)] == [(2, 'train'), (4, 'train'), (6, 'train')]
    assert list((workdir / 'tensorboard' / 'train').glob('events.*'))
    assert [line['learning_rate'] for line in lines(workdir)] == pytest.approx([1e-3] * 3)
    timing = json.loads((workdir / 'timing.json').read_text())
    assert timing['seconds'] > 0 and 'core' in timing['processor'] and 'commit' in timing


def test_a_run_leaves_pictures_and_its_last_lines_name_the_files(finished, tmp_path, capsys):
    workdir, _ = finished
    names = ['curves.png', 'episode.png', 'mistakes.png']
    assert sorted(path.name for path in workdir.glob('*.png')) == names
    (events,) = (workdir / 'tensorboard' / 'pictures').glob('events.*')
    assert all((workdir / name).read_bytes() in events.read_bytes() for name in names)
    run_experiment(config(tmp_path, episodes=2), EXPERIMENT)
    last = [f'written to {tmp_path}:', '  results.json, weights.safetensors']
    assert capsys.readouterr().out.splitlines()[-2:] == last
    assert not list(tmp_path.glob('*.png'))


def test_a_run_that_has_not_learned_says_so(one_device, tmp_path, capsys):
    def blank(config):
        data = characters(config)
        return data._replace(
            **{name: (split := getattr(data, name))._replace(items=0 * split.items) for name in SPLITS}
        )

    run_experiment(config(tmp_path, episodes=2), EXPERIMENT._replace(load=blank))
    said = 'the model has not learned: 20.00 ± 0.00 % is chance in 5-way 1-shot; lower --learning_rate'
    assert said in capsys.readouterr().out.splitlines()


def test_every_place_says_that_a_stand_in_is_one(finished, capsys, monkeypatch, tmp_path):
    workdir, results = finished
    monkeypatch.chdir(tmp_path)
    run_experiment(dataclasses.replace(config(''), episodes=2), EXPERIMENT)
    printed = capsys.readouterr().out.splitlines()
    assert 'not Omniglot' in printed[0]
    assert any('not Omniglot' in line for line in printed[2:])  # the table's title
    (workdir,) = (tmp_path / 'runs').iterdir()
    assert workdir.name.startswith('synthetic-not-omniglot-5way-1shot-episodes=2-query=3-')


def test_starting_again_evaluates_the_same(finished):
    workdir, results = finished
    assert run_experiment(config(workdir), EXPERIMENT) == results
    assert run_experiment(config(workdir, evaluate_only=True), EXPERIMENT) == results
    assert len(lines(workdir)) == 3


def test_data_on_the_host_give_the_same_run(finished, tmp_path):
    workdir, results = finished
    assert run_experiment(config(tmp_path, placement='host'), EXPERIMENT) == results
    for ours, theirs in zip(final_params(tmp_path), final_params(workdir), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_another_configuration_is_refused(finished):
    workdir, _ = finished
    with pytest.raises(WorkdirError, match=r'shot \(1 there, 2 now\)'):
        run_experiment(config(workdir, shot=2), EXPERIMENT)
    with pytest.raises(WorkdirError, match=r"dataset \('synthetic handwriting, not Omniglot' there, 'Omniglot' now\)"):
        run_experiment(config(workdir), REAL)


def test_nothing_trained_is_an_error(tmp_path):
    with pytest.raises(WorkdirError, match='holds nothing trained'):
        run_experiment(config(tmp_path, evaluate_only=True), EXPERIMENT)


def test_an_unfinished_run_is_evaluated_but_not_written(finished, tmp_path, capsys):
    workdir, results = finished
    unfinished = tmp_path / 'unfinished'
    shutil.copytree(workdir, unfinished, ignore=shutil.ignore_patterns('results.json', 'weights.safetensors'))
    assert run_experiment(config(unfinished, evaluate_only=True), EXPERIMENT) == results
    assert 'not been trained to its end' in capsys.readouterr().out
    assert not (unfinished / 'results.json').exists() and not (unfinished / 'weights.safetensors').exists()


def test_weights_of_a_run_give_its_figures_in_a_place_of_their_own(finished, tmp_path, monkeypatch, capsys):
    workdir, results = finished
    monkeypatch.chdir(tmp_path)
    weights = str(workdir / 'weights.safetensors')
    evaluated = run_experiment(config('', weights=weights, shot=2, scale_init='ones'), EXPERIMENT)
    assert evaluated['test'] == results['test']
    assert evaluated['weights']['config'] == results['config']
    assert 'trained with --way=5 --shot=1 --query=3 --recipe="paper" --episodes=0 --seed=0' in capsys.readouterr().out
    (place,) = (tmp_path / 'runs').iterdir()
    assert place.name == f'evaluation-of-{workdir.name}-weights'
    assert json.loads((place / 'results.json').read_text()) == json.loads(json.dumps(evaluated))
    with pytest.raises(WorkdirError, match='holds a run of its own; choose another --workdir for --weights'):
        run_experiment(config(workdir, weights=weights), EXPERIMENT)


def test_weights_of_other_images_are_refused(tmp_path):
    experiment = miniimagenet.EXPERIMENT._replace(load=lambda config: shapes(classes=(5, 5, 5), items=8))
    values = {**TINY, 'workdir': str(tmp_path), 'query': 2, 'test_shot': (1,), 'weights': 'omniglot-60way-1shot'}
    with pytest.raises(ConfigError, match='--weights=omniglot-60way-1shot are of 28x28x1 items, but here they are 84x'):
        run_experiment(dataclasses.replace(miniimagenet.RECIPE, **values), experiment)


def test_commands_of_different_experiments_share_no_folder():
    data = characters(None, synthetic=False)
    commands = [
        [],
        ['--episodes=1000'],
        ['--shot=5'],
        ['--recipe=modern'],
        ['--recipe=modern', '--shift=0'],
        ['--model=matching', '--distance=cosine'],
        ['--weights=omniglot-60way-1shot'],
        ['--weights=a/weights.safetensors'],
        ['--weights=b/weights.safetensors'],
        ['--seed=1'],
    ]
    names = [default_workdir(parse_flags(omniglot.RECIPE, command), REAL, data) for command in commands]
    assert len(set(names)) == len(commands)
    assert names[0] == 'runs/omniglot-60way-1shot-seed0'
    assert names[4] == 'runs/omniglot-60way-1shot-recipe=modern-shift=0-seed0'
    assert names[5] == 'runs/omniglot-60way-1shot-model=matching-distance=cosine-seed0'
    assert names[7] == 'runs/evaluation-of-a-weights'


@pytest.fixture
def lowest_after_four_episodes(monkeypatch, one_device):
    """Validation every two episodes finds these losses, whatever was learned -> list of the encoders that it saw."""
    seen = []

    def with_losses(*args):
        losses = iter([3.0, 1.0, 2.0, 2.0])

        def validate(params, *_):
            seen.append(jax.tree.map(np.array, params['encoder']))
            return Score(50.0, 1.0, next(losses), 10)

        return evaluators(*args)._replace(validate=validate)

    monkeypatch.setattr(driver, 'evaluators', with_losses)
    return seen


def episodes_of(workdir, stage):
    return [line['episode'] for line in lines(workdir) if line['stage'] == stage]


def test_search_then_training_anew(tmp_path, capsys, lowest_after_four_episodes):
    """The validation loss chooses the length; the final model is trained as long on train and validation classes."""
    results = run_experiment(config(tmp_path, patience=2), REAL)
    assert max(episodes_of(tmp_path, 'search')) == 4 + 2 * 2
    assert max(episodes_of(tmp_path, 'train')) == 4 == results['trained_episodes']
    assert 'lowest validation loss after 4 episodes' in capsys.readouterr().out


def test_training_anew_for_as_long_as_the_search_took(tmp_path, lowest_after_four_episodes):
    """As the official code does: the best length plus the patience."""
    results = run_experiment(config(tmp_path, patience=2, retrain_length='search'), REAL)
    assert max(episodes_of(tmp_path, 'train')) == 4 + 2 * 2 == results['trained_episodes']


def test_choosing_between_recipes_never_looks_at_test_classes(tmp_path, one_device):
    def without_test(config):
        return characters(config, synthetic=False)._replace(test=None)

    results = run_experiment(config(tmp_path, evaluate_on='validation', episodes=2), REAL._replace(load=without_test))
    assert 'test' not in results and '5-way 1-shot' in results['validation']


def test_episodes_that_do_not_fit_the_data(tmp_path):
    with pytest.raises(ConfigError, match='--way=33, but there are 32 training classes; lower --way'):
        run_experiment(config(tmp_path, way=33), EXPERIMENT)
    with pytest.raises(
        ConfigError, match='--shot=1 . --query=10 is 11, but the training class .* has 10 items; lower --query'
    ):
        run_experiment(config(tmp_path, query=10), EXPERIMENT)
    with pytest.raises(ConfigError, match='--test_way=17, but there are 16 test classes; lower --test_way'):
        run_experiment(config(tmp_path, test_way=(5, 17)), EXPERIMENT)


def test_miniimagenet_keeps_the_best_state(tmp_path, lowest_after_four_episodes):
    """Training ends when the validation loss has not fallen for long, and its lowest point is the final model."""
    experiment = miniimagenet.EXPERIMENT._replace(load=lambda config: shapes(classes=(5, 5, 5), items=8))
    values = {**TINY, 'workdir': str(tmp_path), 'episodes': 20, 'query': 2, 'test_shot': (1,), 'kernels': 'auto'}
    values['patience'] = 2
    results = run_experiment(dataclasses.replace(miniimagenet.RECIPE, **values).resolved(), experiment)
    assert results['synthetic'] and 'not miniImageNet' in results['dataset']
    validated = [line['episode'] for line in lines(tmp_path) if line['split'] == 'validation']
    assert validated == [2, 4, 6, 8] and results['trained_episodes'] == 4
    weights = load_pretrained(str(tmp_path / 'weights.safetensors'))
    assert weights.description['trained_on'] == {'train': 5} and 'started_from' not in weights.description
    final = weights.params
    jax.tree.map(np.testing.assert_array_equal, final, lowest_after_four_episodes[1])
    assert not np.array_equal(*(jax.tree.leaves(tree)[0] for tree in (final, lowest_after_four_episodes[3])))


def test_pretraining_comes_first_and_is_taken_up_again(tmp_path, one_device, monkeypatch):
    monkeypatch.setattr(building, 'PRETRAINING_BATCH', 8)
    monkeypatch.setitem(building.ENCODERS, 'conv4', lambda config: Conv4(filters=4, kernels=False))
    values = {'episodes': 2, 'retrain': False, 'pretrain': 6, 'flip': True, 'test_shot': (1,)}
    run_experiment(config(tmp_path / 'whole', **values), EXPERIMENT)
    found = lines(tmp_path / 'whole')
    assert [line['stage'] for line in found] == ['pretrain'] * 3 + ['search'] * 2
    assert found[0]['learning_rate'] == pytest.approx(0.05 * (1 + np.cos(np.pi / 6)) / 2)  # after one of six batches
    run_experiment(config(tmp_path / 'without', **{**values, 'pretrain': 0}), EXPERIMENT)
    assert lines(tmp_path / 'without')[0]['loss'] != found[3]['loss']

    shutil.copytree(tmp_path / 'whole', tmp_path / 'again')
    shutil.rmtree(tmp_path / 'again' / 'search')
    run_experiment(config(tmp_path / 'again', **values), EXPERIMENT)
    assert lines(tmp_path / 'again') == found
    for ours, expected in zip(*(final_params(tmp_path / w, 'search') for w in ('again', 'whole')), strict=True):
        np.testing.assert_array_equal(ours, expected)
    with pytest.raises(ConfigError, match='--pretrain draws batches of all classes; give --placement=device'):
        run_experiment(config(tmp_path / 'host', **values, placement='host'), EXPERIMENT)


def test_cub_learns_attributes(tmp_path, one_device):
    experiment = cub.EXPERIMENT._replace(load=lambda config: birds(classes=(30, 10, 10), items=6, features=64))
    values = {'way': 10, 'query': 4, 'episodes': 60, 'learning_rate': 1e-3, 'log_every': 20}
    recipe = dataclasses.replace(cub.RECIPE, workdir=str(tmp_path), **values)
    results = run_experiment(recipe, experiment)
    assert set(results['test']) == {'10-way per image', '10-way per class'}
    assert results['test']['10-way per image']['accuracy'] > 25  # chance is 10
    assert sorted(path.name for path in tmp_path.glob('*.png')) == [
        'curves.png',
        'mistakes.png',
    ]  # features have no images


def test_a_task_with_unlabeled_examples(tmp_path):
    """They are there in training, in validation, in the final table and in the pictures."""
    seen = set()

    def classify(params, episode):
        seen.add((episode.way, len(episode.support), len(episode.query), len(episode.unlabeled)))
        return by_prototypes().apply(params, episode) + 0 * episode.unlabeled.sum()

    def build(config, data, unlabeled=2):
        sizes = {'way': config.way, 'shot': config.shot, 'query': config.query, 'unlabeled': unlabeled}
        return few_shot_task(Conv4(filters=8, kernels=False), data.train.items.shape[2:], classify=classify, **sizes)

    options = config(tmp_path / 'run', episodes=2, retrain=False, test_shot=(1,), placement='host', pictures='on')
    results = run_experiment(options, EXPERIMENT._replace(build=build))
    assert np.isfinite(results['test']['5-way 1-shot']['accuracy'])
    assert [line for line in lines(tmp_path / 'run') if line['split'] == 'validation']
    assert (tmp_path / 'run' / 'episode.png').exists() and (tmp_path / 'run' / 'mistakes.png').exists()
    assert {(5, 5, 15, 10), (4, 4, 12, 8)} <= seen
    with pytest.raises(ConfigError, match=r'--query=3 \+ 7 unlabeled is 11, but the training class .* has 10 items'):
        run_experiment(options, EXPERIMENT._replace(build=lambda *args: build(*args, unlabeled=7)))
