"""The update by hand, on any number of devices, in one dispatch or many; totals, failures and sharing of devices."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from protojax.devices import AXIS, parallelize, place, usable_devices
from protojax.encoders import LinearMap
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS, ConvBlock
from protojax.episodes import Dataset
from protojax.tasks import few_shot_task
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
        x = ConvBlock(4, KERNEL_INITS['he_normal'], SCALE_INITS['ones'], kernels=False)(
            x, train=train, axis_name=axis_name
        )
        return x.reshape(x.shape[0], -1)


TASK = few_shot_task(OneBlock(), (6, 6, 1), way=4, shot=2, query=2)  # 16 images


def start():
    return create_state(*TASK.initialize(jax.random.key(0)), OPTIMIZER)


def step_function(devices, *, function=train_step, loss=TASK.loss, optimizer=OPTIMIZER, report_every=100, **options):
    function = functools.partial(function, loss=loss, optimizer=optimizer, report_every=report_every, **options)
    return parallelize(function, jax.devices()[:devices])


@functools.cache
def history(devices, double=False, **options):
    """The states after each of some steps, as NumPy arrays. `double` only tells apart what the two precisions give."""
    assert double == jax.config.jax_enable_x64
    step = step_function(devices, **options)
    state, images, key = place((start(), IMAGES, jax.random.key(KEY)), jax.devices()[:devices])
    states = []
    for _ in range(STEPS):
        state = step(state, images, key)
        states.append(jax.tree.map(np.asarray, state))
    return states


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


@pytest.mark.parametrize('episodes', [1, 8])
def test_one_device_and_many_make_the_update_by_hand(episodes, x64):
    params, average, batch_stats, opt_state, total = by_hand(episodes)
    for devices in (1, 8) if episodes == 1 else (1, 4):
        state = history(devices, double=True, episodes=episodes, average_decay=DECAY)[-1]
        exactly = functools.partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10)
        jax.tree.map(exactly, state.params, params)
        jax.tree.map(exactly, state.batch_stats, batch_stats)
        jax.tree.map(exactly, state.opt_state, opt_state)
        assert_close(state.average, average)  # by weights in single precision
        np.testing.assert_allclose(state.totals['loss'], total, rtol=1e-6)
        assert state.step == STEPS
        assert state.failed_at == -1


def test_eight_devices_are_one_in_single_precision():
    # Measured after three steps of Adam: parameters differ by 1e-6, statistics by 2e-7, the summed loss by 1e-6 of it.
    one, eight = history(1)[-1], history(8)[-1]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), eight, one)
    assert {leaf.dtype for leaf in jax.tree.leaves((eight.params, eight.totals))} == {np.dtype('float32')}
    jax.tree.map(np.testing.assert_array_equal, eight.average, eight.params)  # no averaging by default


@pytest.mark.parametrize('episodes', [1, 8])
def test_everything_returned_is_the_same_on_every_device(episodes):
    # pmap takes the first device's values unseen; vmap refuses values that differ along the axis.
    options = {'loss': TASK.loss, 'optimizer': OPTIMIZER, 'report_every': 100, 'episodes': episodes}

    def step(_, state):
        return train_step(state, IMAGES, jax.random.key(KEY), **options)

    mapped = jax.jit(jax.vmap(step, (0, None), None, axis_name=AXIS))
    state = mapped(np.arange(8), start())
    if episodes == 1:
        assert_close(state, history(1)[0])
    assert state.step == 1


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
    optimizer = optax.sgd(1.0)
    step = step_function(2, loss=functools.partial(counting_loss, **options), optimizer=optimizer, report_every=3)
    state = place(create_state({'number': jnp.float32(0)}, {}, optimizer), jax.devices()[:2])
    states = []
    for _ in range(steps):
        state = step(state, IMAGES, jax.random.key(KEY))
        states.append(state)
    return states


def test_totals_are_those_since_the_last_report():
    states = counted(8)
    assert [int(state.step) for state in states] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [float(state.totals['accuracy']) for state in states] == [0, 1, 3, 3, 7, 12, 6, 13]
    assert [float(state.totals['loss']) for state in states] == [0, -1, -3, -3, -7, -12, -6, -13]
    assert {int(state.failed_at) for state in states} == {-1}


@pytest.mark.parametrize('failure', ['bad_loss', 'bad_gradient'])
def test_the_first_failure_is_named(failure):
    assert [int(state.failed_at) for state in counted(5, **{failure: 2})] == [-1, -1, 2, 2, 2]


def test_learning_lowers_the_loss():
    # Classes differ in two of ten dimensions, under noise in the others that is three times as strong.
    rng = np.random.default_rng(1)
    items = rng.normal(size=(10, 12, 10)) * np.where(np.arange(10) < 2, 0.3, 3)
    items[:, :, :2] += 2 * rng.normal(size=(10, 1, 2))
    dataset = Dataset(items.astype(np.float32), jnp.full(10, 12))
    task = few_shot_task(LinearMap(4), (10,), way=5, shot=2, query=4)
    optimizer = optax.adam(3e-2)
    run = step_function(1, function=train_steps, steps=40, loss=task.loss, optimizer=optimizer, report_every=40)
    state = place(create_state(*task.initialize(jax.random.key(0)), optimizer), jax.devices()[:1])
    totals = []
    for _ in range(4):
        state = run(state, dataset, jax.random.key(KEY))
        totals.append(jax.tree.map(float, state.totals))
    assert totals[-1]['loss'] < 0.25 * totals[0]['loss']
    assert totals[-1]['accuracy'] > 40 * 0.85 > totals[0]['accuracy']


def test_place_and_donate():
    devices = jax.devices()[:2]
    placed = place({'values': jnp.arange(3.0)}, devices)
    assert placed['values'].devices() == set(devices)
    keeping, donating = (
        parallelize(lambda state: {'values': state['values'] + 1}, devices, donate=d) for d in (False, True)
    )
    for function, deleted in ((keeping, False), (donating, True)):
        np.testing.assert_array_equal(function(placed)['values'], [1, 2, 3])
        assert placed['values'].is_deleted() == deleted


@pytest.mark.parametrize('pieces, number', [(16, 8), (8, 8), (6, 6), (9, 3), (14, 7), (11, 1), (1, 1)])
def test_usable_devices(pieces, number):
    assert usable_devices(pieces) == jax.devices()[:number]


@pytest.mark.parametrize('devices, episodes', [(3, 1), (3, 4)])
def test_what_devices_cannot_share_is_told(devices, episodes):
    with pytest.raises(ValueError, match=f'(16 items|4 episodes) cannot be shared evenly by {devices} devices'):
        step_function(devices, episodes=episodes)(start(), IMAGES, jax.random.key(KEY))
