"""The update by hand, on any number of devices, in one dispatch or many; totals, failures and sharing of devices."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from protojax.devices import AXIS, cpu_compiler_options, parallelize, place, usable_devices
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS, ConvBlock
from protojax.episodes import Dataset
from protojax.learners import few_shot_learner
from protojax.training import create_state, train_step, train_steps

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 6, 1), dtype=np.uint8)
IMAGES = Dataset(jnp.asarray(PIXELS), jnp.full(5, 4))
KEY = 7
OPTIMIZER = optax.adam(1e-2)
STEPS = 3
DECAY = 0.15  # reached in the second step; the first one forgets by 1 / 10
assert_close = functools.partial(jax.tree.map, functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6))


class OneBlock(nn.Module):
    """A single block, as four would only take longer to compile: [N, 6, 6, 1] -> [N, 36]."""

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = (images / 255).astype(jnp.result_type(float))
        block = ConvBlock(4, KERNEL_INITS['he_normal'], SCALE_INITS['ones'], kernels=False)
        return block(x, train=train, axis_name=axis_name).reshape(len(x), -1)


TASK = few_shot_learner(OneBlock(), (6, 6, 1), way=4, shot=2, query=2)  # 16 images


def start():
    return create_state(*TASK.init(jax.random.key(0)), OPTIMIZER)


def step_function(devices, *, function=train_step, loss=TASK.loss, optimizer=OPTIMIZER, report_every=100, **options):
    function = functools.partial(function, loss=loss, optimizer=optimizer, report_every=report_every, **options)
    return parallelize(function, jax.devices()[:devices])


@functools.cache
def history(devices, double=False, **options):
    """Return the states after each of the steps, as NumPy arrays. `double` is part of the key of the cache."""
    assert double == jax.config.jax_enable_x64
    step = step_function(devices, **options)
    state, images, key = place((start(), IMAGES, jax.random.key(KEY)), jax.devices()[:devices])
    return [jax.tree.map(np.asarray, state := step(state, images, key)) for _ in range(STEPS)]


def by_hand(episodes):
    """The same training, written out: the mean gradient of episodes numbered through, then optax."""
    state = start()
    params, average, batch_stats, opt_state, total = state.params, state.params, state.batch_stats, state.opt_state, 0
    gradient = jax.jit(jax.value_and_grad(TASK.loss, has_aux=True))
    for step in range(STEPS):
        keys = [jax.random.fold_in(jax.random.key(KEY), step * episodes + i) for i in range(episodes)]
        results = [gradient(params, batch_stats, IMAGES, key) for key in keys]
        (losses, (batch_stats, _)), gradients = jax.tree.map(lambda *x: np.mean(x, 0), *results)
        updates, opt_state = OPTIMIZER.update(gradients, opt_state, params)
        params = optax.apply_updates(params, updates)
        decay = min(DECAY, (1 + step) / (10 + step))
        average = jax.tree.map(lambda old, new, decay=decay: decay * old + (1 - decay) * new, average, params)
        total += losses
    return params, average, batch_stats, opt_state, total


@pytest.mark.parametrize('devices, episodes', [(8, 1), (3, 1), (1, 8), (4, 8)])  # 3 devices cannot share 16 items
def test_any_number_of_devices_makes_the_update_by_hand(devices, episodes, x64):
    params, average, batch_stats, opt_state, total = by_hand(episodes)
    state = history(devices, double=True, episodes=episodes, average_decay=DECAY)[-1]
    exactly = functools.partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)
    jax.tree.map(exactly, (state.params, state.batch_stats, state.opt_state), (params, batch_stats, opt_state))
    assert_close(state.average, average)  # its weights are in single precision
    np.testing.assert_allclose(state.totals['loss'], total, rtol=1e-6)
    assert state.step == STEPS and state.failed_at == -1


@pytest.mark.parametrize('episodes', [1, 4])
def test_everything_returned_is_the_same_on_every_device(episodes):
    # pmap returns the values of the first device without a check; vmap rejects values that differ along the axis.
    def step(_, state):
        options = {'loss': TASK.loss, 'optimizer': OPTIMIZER, 'episodes': episodes}
        return train_step(state, IMAGES, jax.random.key(KEY), **options)

    state = jax.jit(jax.vmap(step, (0, None), None, axis_name=AXIS))(np.arange(4), start())
    assert state.step == 1


def test_plain_jit_gives_the_bits_of_one_device():
    options = {'loss': TASK.loss, 'optimizer': OPTIMIZER, 'report_every': 100}
    step = jax.jit(functools.partial(train_step, **options), compiler_options=cpu_compiler_options())
    state = start()
    for expected in history(1):
        state = step(state, IMAGES, jax.random.key(KEY))
        jax.tree.map(np.testing.assert_array_equal, state, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves((state.params, state.totals))} == {np.dtype('float32')}
    jax.tree.map(np.testing.assert_array_equal, state.average, state.params)  # no averaging by default


def test_many_steps_in_one_dispatch():
    scanned = step_function(1, function=train_steps, steps=STEPS)(start(), IMAGES, jax.random.key(KEY))
    assert_close(scanned, history(1)[-1])


def counting_loss(params, batch_stats, dataset, key, *, axis_name=None, bad_loss=-1, bad_gradient=-1):
    """Minus a number that grows by one with every step of plain gradient descent."""
    number = params['number']
    # the root of zero is zero, its slope infinite
    value = jnp.where(number == bad_loss, jnp.nan, jnp.sqrt(jnp.abs(number - bad_gradient)) * 0) - number
    return value, (batch_stats, {'loss': value, 'accuracy': number})


def counted(steps, **options):
    """The states of a training that counts its steps."""
    optimizer, devices = optax.sgd(1.0), jax.devices()[:2]
    step = step_function(2, loss=functools.partial(counting_loss, **options), optimizer=optimizer, report_every=3)
    state = place(create_state({'number': jnp.float32(0)}, {}, optimizer), devices)
    return [state := step(state, IMAGES, jax.random.key(KEY)) for _ in range(steps)]


def test_totals_are_those_since_the_last_report():
    states = counted(8)
    assert [int(state.step) for state in states] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [float(state.totals['accuracy']) for state in states] == [0, 1, 3, 3, 7, 12, 6, 13]
    assert [float(state.totals['loss']) for state in states] == [0, -1, -3, -3, -7, -12, -6, -13]
    assert {int(state.failed_at) for state in states} == {-1}


@pytest.mark.parametrize('failure', ['bad_loss', 'bad_gradient'])
def test_the_first_failure_is_named(failure):
    assert [int(state.failed_at) for state in counted(5, **{failure: 2})] == [-1, -1, 2, 2, 2]


def test_donated_states_are_deleted():
    placed = place(jnp.arange(3.0), jax.devices()[:2])
    for donate in (False, True):
        step = parallelize(lambda state: state + 1, jax.devices()[:2], donate=donate)
        np.testing.assert_array_equal(step(placed), [1, 2, 3])
        assert placed.is_deleted() == donate


def test_only_devices_that_can_share_the_work_are_used():
    assert [len(usable_devices(pieces)) for pieces in (16, 9, 11)] == [8, 3, 1]
    with pytest.raises(ValueError, match='cannot divide 4 episodes evenly among 3 devices'):
        step_function(3, episodes=4)(start(), IMAGES, jax.random.key(KEY))
