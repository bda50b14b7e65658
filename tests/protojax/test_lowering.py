"""The programs of TPUs and GPUs, lowered on this CPU: they exist, and hold nothing that only a CPU could run."""

import re
from functools import cache, partial

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


def traced(function, devices, *arguments):
    """The program of that many devices, before any platform makes its own of it."""
    mapped = pmapped(function, jax.devices()[:devices])
    state, *rest = arguments
    return jax.jit(mapped).trace(np.arange(devices), state, tuple(rest))


def lowered(program, platform):
    """Text of the program that a platform would compile."""
    return program.lower(lowering_platforms=(platform,)).as_text()


def check(text, platform, devices):
    calls = set(re.findall(r'custom_call @([\w.]+)', text))
    assert not {call for call in calls if 'protojax' in call or 'callback' in call or 'lapack' in call}, calls
    assert 'f64' not in text
    assert ('stablehlo.all_reduce' in text) or devices == 1


@cache
def training_steps(name, devices):
    """One step, and several in one dispatch."""
    task = TASKS[name]
    state = jax.eval_shape(lambda key: create_state(*task.initialize(key), OPTIMIZER), jax.random.key(0))
    one = partial(train_step, loss=task.loss, optimizer=OPTIMIZER)
    many = partial(train_steps, steps=5, loss=task.loss, optimizer=OPTIMIZER)
    return [traced(function, devices, state, data(task), jax.random.key(1)) for function in (one, many)]


@platforms
@pytest.mark.parametrize(('devices', 'name'), [(1, 'conv4'), *((8, name) for name in TASKS)])
def test_training_steps(platform, devices, name):
    one, many = (lowered(program, platform) for program in training_steps(name, devices))
    for text in (one, many):
        check(text, platform, devices)
        assert ('bf16' in text) == ('bfloat16' in name)
    assert 'stablehlo.while' in many


@cache
def embedding(name):
    task = TASKS[name]
    variables = jax.eval_shape(task.initialize, jax.random.key(0))

    def embed(variables, items):
        return jax.lax.all_gather(task.embed(*variables, items), AXIS, tiled=True)

    return traced(embed, 8, variables, data(task).items[0])


@cache
def scoring(name):
    task = TASKS[name]
    params, _ = jax.eval_shape(task.initialize, jax.random.key(0))

    def score(params, dataset, key):
        return jax.lax.pmean(task.classify(params, sample_episode(key, dataset, **SIZES)).mean(), AXIS)

    embedded = data(task)._replace(items=np.zeros((6, 8, 5), np.float32))
    return traced(score, 8, params, embedded, jax.random.key(0))


@platforms
@pytest.mark.parametrize('name', TASKS)
def test_embedding_and_scoring(platform, name):
    check(lowered(embedding(name), platform), platform, 1)
    if name != 'zero-shot':
        check(lowered(scoring(name), platform), platform, 8)
