"""Updates of a small encoder, for tests that shard them across devices and hosts.

    python -m tests.helpers.steps OUTPUT.npz COORDINATOR PROCESSES PROCESS

writes the parameters after training on all devices of the distributed run, in double precision.
"""

import sys
from functools import partial

import flax.linen as nn
import jax
import numpy as np
import optax

from protojax import Dataset, create_state, few_shot_learner, parallelize, place, train_step
from protojax.devices import AXIS
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS, ConvBlock

WAY, SHOT, QUERY = 4, 1, 3  # 16 images
STEPS = 20


class Conv2(nn.Module):
    """Two blocks: the first computes its batch statistics from patches, the second from its output."""

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = images.astype(np.float64) / 255
        for _ in range(2):
            block = ConvBlock(10, KERNEL_INITS['he_normal'], SCALE_INITS['ones'], kernels=False)
            x = block(x, train=train, axis_name=axis_name)
        return x.reshape(x.shape[0], -1)


def trained(devices):
    """Return parameters and batch statistics after some updates on these devices, as a list of arrays."""
    rng = np.random.default_rng(0)
    dataset = Dataset(rng.integers(0, 256, (6, 5, 4, 4, 1), dtype=np.uint8), np.full(6, 5, np.int32))
    learner = few_shot_learner(Conv2(), (4, 4, 1), way=WAY, shot=SHOT, query=QUERY)
    shapes = jax.eval_shape(learner.init, jax.random.key(0))  # compiling the initialisation would take seconds
    params, batch_stats = jax.tree.map(lambda x: rng.uniform(0.1, 0.5, x.shape), shapes)
    optimizer = optax.adam(1e-3)
    state = place(create_state(params, batch_stats, optimizer), devices)
    step = partial(train_step, loss=learner.loss, optimizer=optimizer, report_every=STEPS)
    step = parallelize(step, devices, donate=True)
    for _ in range(STEPS):
        state = step(state, dataset, jax.random.key(1))
    return [np.asarray(x) for x in jax.tree.leaves((state.params, state.batch_stats))]


def largest_difference(expected, found):
    """Return the largest difference of corresponding arrays, relative to the largest entry of each array."""
    return max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(expected, found, strict=True))


def on_one_and_more(loss, *given, devices):
    """Return loss and gradient on one device, and those of the first of several that share the work."""
    gradient = jax.value_and_grad(loss, has_aux=True)
    shared = jax.vmap(lambda _: jax.lax.pmean(gradient(*given, axis_name=AXIS), AXIS), axis_name=AXIS)
    together = jax.jit(shared)(np.arange(devices))
    return jax.jit(gradient)(*given), jax.tree.map(lambda leaf: np.asarray(leaf)[0], together)


if __name__ == '__main__':
    jax.distributed.initialize(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    jax.config.update('jax_enable_x64', True)
    np.savez(sys.argv[1], *trained(jax.devices()))
