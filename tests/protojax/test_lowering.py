"""The programs of TPUs and GPUs, lowered on this CPU: they exist and contain nothing that only a CPU can run."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from protojax import evaluation
from protojax.devices import pmapped
from protojax.encoders import Conv4, LinearMap, ResNet12
from protojax.episodes import Dataset
from protojax.learners import few_shot_learner, zero_shot_learner
from protojax.training import create_state, train_step, train_steps

SIZES = {'way': 4, 'shot': 1, 'query': 3}
IMAGES = (16, 16, 3)
LEARNERS = {
    'conv4': few_shot_learner(Conv4(kernels=False), IMAGES, **SIZES),
    'conv4 in bfloat16': few_shot_learner(Conv4(kernels=False, dtype=jnp.bfloat16), IMAGES, **SIZES),
    'resnet12': few_shot_learner(ResNet12(widths=(8,)), IMAGES, **SIZES),
    'zero-shot': zero_shot_learner(LinearMap(8), LinearMap(8, unit_length=True), (10, 12), 5, way=4, query=4),
}


def data(learner):
    item, kind = ((10, 12), np.float32) if learner.zero_shot else (IMAGES, np.uint8)
    attributes = np.zeros((6, 5), np.float32) if learner.zero_shot else None
    return Dataset(np.zeros((6, 8, *item), kind), np.full(6, 8, np.int32), attributes)


def lowered(function, state, *arguments, devices=8):
    """Yield the text of the program that each platform would compile, after a check of its operations."""
    program = jax.jit(pmapped(function, jax.devices()[:devices])).trace(np.arange(devices), state, arguments)
    for platform in ('tpu', 'cuda'):
        text = program.lower(lowering_platforms=(platform,)).as_text()
        calls = set(re.findall(r'custom_call @([\w.]+)', text))
        assert not {call for call in calls if 'protojax' in call or 'callback' in call or 'lapack' in call}, calls
        assert 'f64' not in text
        assert ('stablehlo.all_' in text) or devices == 1
        yield text


def training(learner, function=train_step, **options):
    """Return a function of state, data set and key, with shapes for its arguments."""
    optimizer = optax.adam(1e-3)
    state = jax.eval_shape(lambda key: create_state(*learner.init(key), optimizer), jax.random.key(0))
    step = partial(function, loss=learner.loss, optimizer=optimizer, **options)
    return step, state, data(learner), jax.random.key(1)


@pytest.mark.parametrize('name', LEARNERS)
def test_training_steps(name):
    for text in lowered(*training(LEARNERS[name])):
        assert ('bf16' in text) == ('bfloat16' in name)


@pytest.mark.parametrize('devices', [1, 8])
def test_several_steps_in_one_dispatch(devices):
    steps = training(LEARNERS['zero-shot'], train_steps, steps=5)
    assert all('stablehlo.while' in text for text in lowered(*steps, devices=devices))


def test_embedding_and_scoring(monkeypatch):
    learner, devices = LEARNERS['conv4'], jax.devices()
    variables = jax.eval_shape(learner.init, jax.random.key(0))
    texts, results = [], iter([np.zeros((64, 64), np.float32), (np.ones(8), np.ones(8))])

    def lowering(function, _):
        return lambda *given: (texts.extend(lowered(function, *given)), next(results))[1]

    monkeypatch.setattr(evaluation, 'parallelize', lowering)
    embedded = evaluation.embedder(learner.embed, devices, batch_size=8)(*variables, data(learner))
    evaluation.episode_scorer(learner.classify, devices, **SIZES, episodes=8)(*variables, embedded, jax.random.key(1))
    assert [text.count('stablehlo.convolution') for text in texts] == [4, 4, 0, 0]  # for two platforms each
