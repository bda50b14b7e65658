"""The programs of TPUs and GPUs, lowered on this CPU: they exist, and hold nothing that only a CPU could run."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from protojax.devices import AXIS, pmapped
from protojax.encoders import Conv4, LinearMap, ResNet12
from protojax.episodes import Dataset, sample_episode
from protojax.tasks import few_shot_task, zero_shot_task
from protojax.training import create_state, train_step, train_steps

OPTIMIZER = optax.adam(1e-3)
SIZES = {'way': 4, 'shot': 1, 'query': 3}
IMAGES = (16, 16, 3)
TASKS = {
    'conv4': few_shot_task(Conv4(kernels=False), IMAGES, **SIZES),
    'conv4 in bfloat16': few_shot_task(Conv4(kernels=False, dtype=jnp.bfloat16), IMAGES, **SIZES),
    'resnet12': few_shot_task(ResNet12(widths=(8, 16)), IMAGES, **SIZES),
    'zero-shot': zero_shot_task(LinearMap(8), LinearMap(8, unit_length=True), (10, 12), 5, way=4, query=4),
}
platforms = pytest.mark.parametrize('platform', ['tpu', 'cuda'])


def data(task):
    zero_shot = task is TASKS['zero-shot']
    item, kind = ((10, 12), np.float32) if zero_shot else (IMAGES, np.uint8)
    attributes = np.zeros((6, 5), np.float32) if zero_shot else None
    return Dataset(np.zeros((6, 8, *item), kind), np.full(6, 8, np.int32), attributes)


def lowered(function, platform, devices, *arguments):
    """Text of the program that a platform with that many devices would compile."""
    mapped = pmapped(function, jax.devices()[:devices])
    state, *rest = arguments
    return jax.jit(mapped).trace(np.arange(devices), state, tuple(rest)).lower(lowering_platforms=(platform,)).as_text()


def check(text, platform, devices):
    calls = set(re.findall(r'custom_call @([\w.]+)', text))
    assert not {call for call in calls if 'protojax' in call or 'callback' in call or 'lapack' in call}, calls
    assert 'f64' not in text
    assert ('stablehlo.all_reduce' in text) or devices == 1


@platforms
@pytest.mark.parametrize('devices', [1, 8])
@pytest.mark.parametrize('name', TASKS)
def test_training_steps(platform, devices, name):
    task = TASKS[name]
    state = jax.eval_shape(lambda key: create_state(*task.initialize(key), OPTIMIZER), jax.random.key(0))
    one = partial(train_step, loss=task.loss, optimizer=OPTIMIZER)
    many = partial(train_steps, steps=5, loss=task.loss, optimizer=OPTIMIZER)
    for function in (one, many):
        text = lowered(function, platform, devices, state, data(task), jax.random.key(1))
        check(text, platform, devices)
        assert ('bf16' in text) == ('bfloat16' in name)
        assert ('stablehlo.while' in text) or function is one


@platforms
@pytest.mark.parametrize('name', TASKS)
def test_embedding_and_scoring(platform, name):
    task = TASKS[name]
    params, batch_stats = jax.eval_shape(task.initialize, jax.random.key(0))

    def embed(variables, items):
        return jax.lax.all_gather(task.embed(*variables, items), AXIS, tiled=True)

    check(lowered(embed, platform, 8, (params, batch_stats), data(task).items[0]), platform, 1)
    if name == 'zero-shot':
        return

    def score(params, dataset, key):
        return jax.lax.pmean(task.classify(params, sample_episode(key, dataset, **SIZES)).mean(), AXIS)

    embedded = data(task)._replace(items=np.zeros((6, 8, 5), np.float32))
    check(lowered(score, platform, 8, params, embedded, jax.random.key(0)), platform, 8)
