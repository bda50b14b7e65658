"""Every system as a whole run on tiny data: it trains, is evaluated, draws, and goes on where it was interrupted."""

import shutil
from functools import partial

import jax
import numpy as np
import pytest

from experiments import omniglot
from experiments.compared import metalstm
from experiments.compared.statistician import statistician_task
from experiments.cub import EXPERIMENT, MODELS, RECIPE
from experiments.running import building, driver
from experiments.running.driver import run_experiment
from experiments.running.identity import configured
from protojax.datasets.omniglot import SPLITS, rotated_characters
from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.encoders import Conv4
from protojax.files import read_arrays

TINY = {
    'way': 5,
    'shot': 2,
    'query': 2,
    'episodes': 2,
    'test_way': (5,),
    'test_shot': (2,),
    'test_query': 2,
    'validation_way': 5,
    'test_episodes': 10,
    'log_every': 2,
    'kernels': 'off',
    'pictures': 'off',
}
FEW_SHOT = {
    'nearest': {'model': 'nearest', 'pictures': 'on'},
    'matching, fce, separate': {'model': 'matching', 'distance': 'cosine', 'context': 'fce', 'embedding': 'separate'},
    'metalstm': {'model': 'metalstm', 'pictures': 'on'},
    'statistician': {'model': 'statistician'},
}
PICTURES = {'nearest': ['curves.png', 'episode.png', 'mistakes.png'], 'metalstm': ['curves.png', 'episode.png']}
LEARNED = {  # what only this system learns: beginnings of names in its file of weights
    'nearest': {'classifier/kernel', 'classifier/bias'},
    'matching, fce, separate': {'params/g', 'params/f', 'classifier/forward', 'classifier/attention'},
    'metalstm': {'classifier/layer', 'classifier/meta'},
    'statistician': {'classifier/context', 'classifier/prior', 'classifier/posterior', 'classifier/decoder'},
}


def characters(config):
    data = handwriting(0, alphabets=(2, 1, 1), characters=4, drawings=6)
    data = data._replace(**{name: rotated_characters(getattr(data, name)) for name in SPLITS})
    smaller = {name: (split := getattr(data, name))._replace(items=split.items[:, :, 6:22, 6:22]) for name in SPLITS}
    return data._replace(**smaller)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few devices and small networks, which compile quickly."""
    monkeypatch.setattr(driver, 'devices_for', lambda config, task: jax.devices()[:2])
    monkeypatch.setitem(building.ENCODERS, 'conv4', lambda config: Conv4(filters=4, kernels=False))
    monkeypatch.setattr(metalstm, 'UPDATES_OTHERWISE', 2)
    sizes = {'widths': (4, 4), 'context': 8, 'code': 2}
    monkeypatch.setattr(building, 'statistician_task', partial(statistician_task, **sizes))


def run(experiment, workdir, **values):
    return run_experiment(configured(experiment.recipe, {'workdir': str(workdir), **values}), experiment)


@pytest.mark.parametrize('system', FEW_SHOT)
def test_few_shot_systems_run(system, tmp_path):
    results = run(omniglot.EXPERIMENT._replace(load=characters), tmp_path, **{**TINY, **FEW_SHOT[system]})
    (score,) = results['test'].values()
    assert 0 < score['accuracy'] <= 100 and np.isfinite(score['loss'])
    arrays, _ = read_arrays(tmp_path / 'weights.safetensors', largest=1 << 30)
    names = {'/'.join(name.split('/')[:2]) for name in arrays}
    assert [known for known, own in LEARNED.items() if own <= names] == [system]
    assert sorted(path.name for path in tmp_path.glob('*.png')) == PICTURES.get(system, [])


def test_fine_tuning_changes_the_scores_of_the_same_weights(tmp_path):
    experiment = omniglot.EXPERIMENT._replace(load=characters)
    values = {**TINY, 'model': 'matching', 'distance': 'cosine'}
    (plain,) = run(experiment, tmp_path / 'plain', **values)['test'].values()
    values['weights'] = str(tmp_path / 'plain/weights.safetensors')
    (tuned,) = run(experiment, tmp_path / 'tuned', **values, finetune=2, finetune_rate=0.1)['test'].values()
    assert 0 < tuned['accuracy'] <= 100 and abs(tuned['loss'] - plain['loss']) > 1e-3


@pytest.mark.parametrize('model', MODELS)
def test_zero_shot_systems_learn(model, tmp_path):
    few_birds = birds(classes=(30, 10, 10), items=6, features=64, noise=0.5)
    experiment = EXPERIMENT._replace(load=lambda config: few_birds)
    values = {'way': 10, 'query': 4, 'episodes': 100, 'log_every': 20, 'optimizer': 'adam', 'learning_rate': 1e-2}
    values |= {'pictures': 'on' if model == 'clustering' else 'off', 'checkpoint_every': 40}
    if model not in ('ale', 'sje'):  # which compare images and attributes without a space between them
        values['dimensions'] = 64
    results = run(experiment, tmp_path, model=model, **values)
    assert results['test']['10-way per image']['accuracy'] > 25  # chance is 10
    if model != 'clustering':  # which has most to take up again: also centres that no gradient moves
        return
    assert sorted(path.name for path in tmp_path.glob('*.png')) == ['curves.png', 'mistakes.png']
    finished = {
        name: (tmp_path / name).read_bytes() for name in ('metrics.jsonl', 'weights.safetensors', 'results.json')
    }
    shutil.rmtree(tmp_path / 'train' / '100')
    for name in ('weights.safetensors', 'results.json'):
        (tmp_path / name).unlink()
    assert run(experiment, tmp_path, model=model, **values) == results
    assert (tmp_path / 'train' / '100').exists()
    assert {name: (tmp_path / name).read_bytes() for name in finished} == finished


def test_results_say_what_the_inputs_of_cub_are(tmp_path):
    few_birds = birds(classes=(20, 10, 5), items=4, features=8)
    experiment = EXPERIMENT._replace(load=lambda config: few_birds)
    values = {'way': 10, 'query': 4, 'dimensions': 4, 'episodes': 3, 'features': 'GoogLeNet', 'pictures': 'off'}
    results = run(experiment, tmp_path, **values)
    assert results['features'] == 'GoogLeNet' and results['trained_episodes'] == 3
    assert (results['crops'], results['feature_dimensions'], results['classes']) == (10, 8, [20, 10, 5])
    assert results['validation_classes'] == 'by the lists of the source'
    names = sorted(few_birds.train.names + few_birds.validation.names)
    train = few_birds.train._replace(names=tuple(name for i, name in enumerate(names) if i % 3 != 2))
    by_rule = few_birds._replace(train=train, validation=few_birds.validation._replace(names=tuple(names[2::3])))
    told = EXPERIMENT.details(configured(RECIPE, {}), by_rule)
    assert told['validation_classes'].startswith('every third class') and told['features'] == 'not told'
