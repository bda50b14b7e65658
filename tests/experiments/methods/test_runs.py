"""Every method: few-shot learners fit together, and zero-shot methods learn in entire runs."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import cub, methods, omniglot
from experiments.running import driver
from protojax import Dataset, Episode, Splits
from protojax.datasets.synthetic.birds import birds

SIZES = '--way=5 --shot=2 --query=2 --test_way=5 --validation_way=5'


FLAGS = ['prototypical', 'matching --context=fce --embedding=separate', 'nearest', 'metalstm', 'statistician']


@pytest.mark.parametrize('flags', FLAGS)
def test_few_shot_learners_fit_together(flags):
    """Their functions are traced on images of Omniglot, not computed."""
    method, *others = flags.split()
    config = omniglot.EXPERIMENT.parse([f'--model={method}', *others, *SIZES.split()])
    items, labels = np.zeros((6, 8, 28, 28, 1), np.uint8), np.repeat(np.arange(5), 2)
    classes = Dataset(jnp.asarray(items), jnp.full(6, 8), names=tuple('abcdef'))
    learner = methods.build(methods.FEW_SHOT[method], config, Splits('blank', True, classes, classes, classes))

    def traced(key):
        params, batch_stats = learner.init(key)
        loss, (after, _) = learner.loss(params, batch_stats, classes._replace(names=None), key)
        embedded = learner.embed(params, batch_stats, items[:5, :2].reshape(-1, 28, 28, 1))
        episode = Episode(embedded, labels, embedded, labels, np.arange(5))
        return batch_stats, after, loss, learner.classify(params, batch_stats, episode)

    before, after, loss, logits = jax.eval_shape(traced, jax.random.key(0))
    assert before == after and loss.shape == () and logits.shape == (10, 5)
    assert learner.by_accuracy == (method == 'nearest')


@pytest.mark.parametrize('model', methods.ZERO_SHOT)
def test_zero_shot_methods_learn(model, tmp_path, monkeypatch):
    devices = jax.devices()[: 2 if model in ('prototypical', 'clustering') else 1]
    monkeypatch.setattr(driver.placement, 'devices_for', lambda config, learner: devices)
    few_birds = birds(classes=(30, 10, 10), items=6, features=64, noise=0.5)
    experiment = cub.EXPERIMENT._replace(load=lambda config: few_birds)
    values = {'way': 10, 'query': 4, 'episodes': 100, 'log_every': 20, 'optimizer': 'adam', 'learning_rate': 1e-2}
    values |= {'pictures': 'on' if model == 'clustering' else 'off', 'checkpoint_every': 40, 'features': 'GoogLeNet'}
    if model not in ('ale', 'sje'):  # they compare images and attributes without a space between them
        values['dimensions'] = 64
    config = experiment.config(workdir=tmp_path, model=model, **values)
    results = driver.run(config, experiment)
    assert results['test']['10-way per image']['accuracy'] > 25  # chance is 10
    assert (results['features'], results['crops'], results['feature_dimensions']) == ('GoogLeNet', 10, 64)
    assert (results['validation_classes'], results['classes']) == ('by the lists of the source', [30, 10, 10])
    if model == 'clustering':  # it has most to resume: also centres that no gradient moves
        assert sorted(path.name for path in tmp_path.glob('*.png')) == ['curves.png', 'mistakes.png']
        weights = (file := tmp_path / 'weights.safetensors').read_bytes()
        file.unlink()
        shutil.rmtree(tmp_path / 'train' / '100')
        assert driver.run(config, experiment) == results and file.read_bytes() == weights
