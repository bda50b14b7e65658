"""Entire experiments on tiny data: output, resuming, and rejected configurations."""

import contextlib
import io
import json
import pathlib
import shutil
from functools import partial

import jax
import numpy as np
import pytest

from experiments import omniglot
from experiments.methods import encoders, nearest, prototypical, zero_shot
from experiments.methods.options import ConfigError
from experiments.running import driver, evaluate, results
from experiments.running.workdir import WorkdirError
from protojax import Conv4, Score, load_pretrained
from protojax.checkpoints import Checkpoints
from protojax.datasets.omniglot import rotated
from protojax.datasets.synthetic.handwriting import handwriting
from tests.helpers import tiny

TINY = {'way': 5, 'shot': 1, 'query': 3, 'test_way': (5,), 'test_query': 3, 'test_episodes': 50, 'pictures': 'off'}
TINY |= {'validation_way': 4, 'validation_episodes': 10, 'log_every': 2, 'validate_every': 2, 'checkpoint_every': 4}


def characters(config, synthetic=True):
    data = handwriting(0, alphabets=(2, 1, 1), characters=4, drawings=10).map(rotated)
    data = data.map(lambda split: split._replace(items=split.items[:, :, 6:22, 6:22]))
    return data if synthetic else data._replace(title='Omniglot', synthetic=False)


EXPERIMENT = omniglot.EXPERIMENT._replace(load=characters, synthetic_episodes=6)
REAL = EXPERIMENT._replace(load=partial(characters, synthetic=False))


def config(workdir='', **values):
    return EXPERIMENT.config(workdir=str(workdir), **{**TINY, 'kernels': 'off', **values})


def restored(workdir, stage='train'):
    checkpoints = Checkpoints(workdir / stage)
    return checkpoints._manager.restore(checkpoints.steps()[-1], args=None).tree


def lines(workdir):
    return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


@pytest.fixture(scope='module', autouse=True)
def quick():
    """A small network on one of the eight devices that tests see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.placement, 'devices_for', lambda config, learner: jax.devices()[:1])
        patch.setattr(encoders.Conv4, 'network', lambda self: Conv4(filters=4, kernels=False, last_scale=1.0))
        yield


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """An uninterrupted run on synthetic data: its default workdir, results and output."""
    with contextlib.chdir(tmp_path_factory.mktemp('run')), contextlib.redirect_stdout(io.StringIO()) as output:
        found = driver.run(config(pictures='on'), EXPERIMENT)
        (workdir,) = (path.absolute() for path in pathlib.Path('runs').iterdir())
    return workdir, found, output.getvalue().splitlines()


def test_a_run_writes_what_it_promises(finished):
    workdir, found, printed = finished
    saved = json.loads((workdir / 'results.json').read_text())
    assert saved == json.loads(json.dumps(found))
    assert saved['dataset'] == 'synthetic handwriting, not Omniglot' and saved['synthetic'] is True
    assert set(saved['test']) == {'5-way 1-shot', '5-way 5-shot'}
    for cell in saved['test'].values():
        assert 0 < cell['accuracy'] <= 100 and 0 < cell['ci95'] < 50 and cell['episodes'] == 50
    assert [(line['episode'], line['split']) for line in lines(workdir)] == [(2, 'train'), (4, 'train'), (6, 'train')]
    timing = json.loads((workdir / 'timing.json').read_text())
    assert timing['seconds'] > 0 and 'core' in timing['processor'] and 'commit' in timing
    names = ['curves.png', 'episode.png', 'mistakes.png']
    assert printed[-2:] == [f'written to {workdir}:', f'  results.json, weights.safetensors, {", ".join(names)}']
    (events,) = (workdir / 'tensorboard' / 'pictures').glob('events.*')
    assert all((workdir / name).read_bytes() in events.read_bytes() for name in names)
    assert workdir.name.startswith('synthetic-not-omniglot-5way-1shot-query=3-')
    assert 'not Omniglot' in printed[0] and any('not Omniglot' in line for line in printed[2:])  # the table's title


def test_starting_again_evaluates_the_same(finished, tmp_path, capsys):
    workdir, found, _ = finished
    assert driver.run(config(workdir), EXPERIMENT) == found and len(lines(workdir)) == 3
    unfinished = tmp_path / 'unfinished'
    shutil.copytree(workdir, unfinished, ignore=shutil.ignore_patterns('results.json', 'weights.safetensors'))
    assert driver.run(config(unfinished, evaluate_only=True), EXPERIMENT) == found
    assert 'Training is not complete' in capsys.readouterr().out
    assert not (unfinished / 'results.json').exists() and not (unfinished / 'weights.safetensors').exists()


def test_a_run_resumed_with_data_on_the_host_is_the_same(finished, tmp_path):
    workdir, found, _ = finished
    resumed = shutil.copytree(workdir, tmp_path / 'resumed')
    shutil.rmtree(resumed / 'train' / '6')  # leaves the checkpoint of episode 4
    assert driver.run(config(resumed, placement='host'), EXPERIMENT) == found
    jax.tree.map(np.testing.assert_array_equal, restored(resumed), restored(workdir))


def test_runs_that_are_rejected(finished, tmp_path):
    workdir, _, _ = finished
    tried = {'weights': str(workdir / 'weights.safetensors')}
    other = {'weights': 'omniglot-60way-1shot', 'workdir': tmp_path / 'other'}
    for error, message, experiment, values in [
        (WorkdirError, r'shot \(saved 1, now 2\)', EXPERIMENT, {'shot': 2}),
        (WorkdirError, r"dataset \(saved 'synthetic handwriting, not Omniglot', now 'Omniglot'\)", REAL, {}),
        (WorkdirError, 'contains another run; choose another --workdir for --weights', EXPERIMENT, tried),
        (WorkdirError, 'contains no trained model', EXPERIMENT, {'evaluate_only': True, 'workdir': tmp_path}),
        (ConfigError, '--way=33: expected at most 32, the number of training classes', EXPERIMENT, {'way': 33}),
        (ConfigError, '--test_way=17: expected at most 16, the number of test', EXPERIMENT, {'test_way': (5, 17)}),
        (ConfigError, 'class .* has 10; lower --shot', EXPERIMENT, {'query': 10}),
        (ConfigError, 'expected weights for 16x16x1 items, got 28x28x1', EXPERIMENT, other),
    ]:
        with pytest.raises(error, match=message):
            driver.run(config(**{'workdir': workdir, **values}), experiment)


def test_weights_of_a_run_give_its_results_in_another_workdir(finished, tmp_path, monkeypatch, capsys):
    workdir, found, _ = finished
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(results, 'diagnosis', lambda *_, hint: [f'not learned; {hint}'])
    weights = str(workdir / 'weights.safetensors')
    evaluated = driver.run(config(weights=weights, shot=2), EXPERIMENT)
    assert evaluated['test'] == found['test'] and evaluated['weights']['config'] == found['config']
    printed = capsys.readouterr().out
    assert 'trained with --way=5 --shot=1 --query=3 --recipe="paper" --episodes=0 --seed=0' in printed
    assert 'not learned; choose other --weights' in printed
    (place,) = (tmp_path / 'runs').iterdir()
    assert place.name == f'evaluation-on-synthetic-handwriting-not-Omniglot-of-{workdir.name}-weights'
    assert json.loads((place / 'results.json').read_text()) == json.loads(json.dumps(evaluated))
    # The encoder has hardly learned and its distances are tiny, so a step must be large.
    values = {'test_shot': (1,), 'finetune': 1, 'finetune_rate': 1e5, 'pictures': 'on'}
    tuned = driver.run(config(tmp_path / 'tuned', weights=weights, **values), EXPERIMENT)
    assert abs(tuned['test']['5-way 1-shot']['loss'] - found['test']['5-way 1-shot']['loss']) > 1e-3
    assert [path.name for path in (tmp_path / 'tuned').glob('*.png')] == ['episode.png']  # it adapts to one episode


@pytest.fixture
def lowest_after_four_episodes(monkeypatch):
    """Validation every two episodes returns these scores -> list of the encoders that it was called with."""
    seen, evaluators = [], evaluate.evaluators

    def with_scores(*args):
        scores = iter([(50.0, 3.0), (40.0, 1.0), (60.0, 2.0), (60.0, 2.0)])

        def validate(params, *_, dataset):
            seen.append(jax.tree.map(np.array, params['encoder']))
            accuracy, loss = next(scores)
            return Score(accuracy, 1.0, loss, 10)

        return evaluators(*args)._replace(validate=validate)

    monkeypatch.setattr(evaluate, 'evaluators', with_scores)
    return seen


@pytest.mark.parametrize(('length', 'episodes'), [('best', 4), ('search', 4 + 2 * 2)])
@pytest.mark.usefixtures('lowest_after_four_episodes')
def test_the_search_decides_how_long_the_final_model_is_trained(length, episodes, tmp_path):
    """The official code adds the patience to the best length."""
    found = tiny.run(tmp_path, log_every=2, validate_every=2, patience=2, retrain_length=length)
    last = {line['stage']: line['episode'] for line in lines(tmp_path)}
    assert last == {'search': 4 + 2 * 2, 'train': episodes} and found['trained_episodes'] == episodes


def test_without_retraining_the_model_with_the_lowest_validation_loss_is_kept(tmp_path, lowest_after_four_episodes):
    values = {'log_every': 2, 'validate_every': 2, 'patience': 2, 'episodes': 20, 'retrain': False}
    assert tiny.run(tmp_path, **values)['trained_episodes'] == 4
    assert [line['episode'] for line in lines(tmp_path) if line['split'] == 'validation'] == [2, 4, 6, 8]
    weights = load_pretrained(str(tmp_path / 'weights.safetensors'))
    assert weights.description['trained_on'] == {'train': 8} and 'started_from' not in weights.description
    jax.tree.map(np.testing.assert_array_equal, weights.params, lowest_after_four_episodes[1])
    assert not np.array_equal(weights.params['Dense_0']['kernel'], lowest_after_four_episodes[3]['Dense_0']['kernel'])


def test_learners_by_accuracy_keep_the_highest_accuracy(tmp_path, monkeypatch, lowest_after_four_episodes):
    build, values = zero_shot.METHOD.build, {'validate_every': 2, 'patience': 4, 'episodes': 8, 'retrain': False}
    changed = zero_shot.METHOD._replace(build=lambda *given: build(*given)._replace(by_accuracy=True))
    monkeypatch.setattr(tiny, 'EXPERIMENT', tiny.EXPERIMENT._replace(methods={'prototypical': changed}))
    assert tiny.run(tmp_path, **values)['trained_episodes'] == 6


def test_evaluation_on_validation_classes_never_uses_test_classes(tmp_path, monkeypatch):
    experiment = tiny.EXPERIMENT._replace(load=lambda config: tiny.load(config)._replace(test=None))
    monkeypatch.setattr(tiny, 'EXPERIMENT', experiment)
    found = tiny.run(tmp_path, evaluate_on='validation', episodes=2)
    assert 'test' not in found and '4-way per image' in found['validation']


def test_pretraining_comes_first_and_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, 'PRETRAINING_BATCH', 8)
    values = {'episodes': 2, 'retrain': False, 'pretrain': 6, 'flip': True, 'test_shot': (1,), 'learning_rate': 1e-9}
    driver.run(config(tmp_path / 'whole', **values), EXPERIMENT)
    found = lines(tmp_path / 'whole')
    assert [line['stage'] for line in found] == ['pretrain'] * 3 + ['search'] * 2
    assert found[0]['learning_rate'] == pytest.approx(0.05 * (1 + np.cos(np.pi / 6)) / 2)  # after one of six batches
    first, expected = (restored(tmp_path / 'whole', stage) for stage in ('pretrain', 'search'))
    final = load_pretrained(str(tmp_path / 'whole/weights.safetensors')).params
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), final, first['state']['params']['encoder'])

    shutil.copytree(tmp_path / 'whole', tmp_path / 'again')
    shutil.rmtree(tmp_path / 'again' / 'search')
    driver.run(config(tmp_path / 'again', **values), EXPERIMENT)
    assert lines(tmp_path / 'again') == found
    jax.tree.map(np.testing.assert_array_equal, restored(tmp_path / 'again', 'search'), expected)
    with pytest.raises(ConfigError, match='set --placement=device'):
        driver.run(config(tmp_path / 'host', **values, placement='host'), EXPERIMENT)


def test_a_method_with_unlabeled_examples(tmp_path, monkeypatch):
    """They are present in training, validation, the final table and the pictures."""
    refined, seen = prototypical.refined, set()

    def observed(classifier):
        def apply(params, episode):
            seen.add((episode.way, len(episode.support), len(episode.query), len(episode.unlabeled)))
            return refined(classifier).apply(params, episode)

        return classifier._replace(apply=apply)

    monkeypatch.setattr(prototypical, 'refined', observed)
    values = {'episodes': 2, 'retrain': False, 'test_shot': (1,), 'placement': 'host', 'pictures': 'on'}
    driver.run(config(tmp_path, unlabeled=2, **values), EXPERIMENT)
    assert (tmp_path / 'episode.png').exists() and (tmp_path / 'mistakes.png').exists()
    assert {(5, 5, 15, 10), (4, 4, 12, 8)} <= seen
    with pytest.raises(ConfigError, match='--query=3 and 7 unlabelled need 11 examples per class, but .* has 10'):
        driver.run(config(tmp_path / 'other', unlabeled=7, **values), EXPERIMENT)
