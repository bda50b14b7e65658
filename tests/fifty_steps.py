"""Fifty updates of a small encoder, for tests that compare ways of spreading them over devices and hosts.

    python tests/fifty_steps.py OUTPUT.npz COORDINATOR PROCESSES PROCESS

writes the parameters after training one episode per step on all devices of the job, in double precision.
"""

import pathlib
import sys
from functools import partial

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import flax.linen as nn  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

from protojax.devices import parallelize, place  # noqa: E402
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS, ConvBlock  # noqa: E402
from protojax.episodes import Dataset  # noqa: E402
from protojax.tasks import few_shot_task  # noqa: E402
from protojax.training import create_state, train_step  # noqa: E402

WAY, SHOT, QUERY = 4, 1, 3  # 16 images


class Conv2(nn.Module):
    """Two blocks, of which the first takes its statistics from patches and the second from its output."""

    dtype: type

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        x = images.astype(self.dtype) / 255
        for _ in range(2):
            x = ConvBlock(10, KERNEL_INITS['he_normal'], SCALE_INITS['ones'], kernels=False)(
                x, train=train, axis_name=axis_name
            )
        return x.reshape(x.shape[0], -1)


def fifty_steps(devices, *, dtype=np.float64):
    """Parameters and batch statistics after 50 updates on these devices, as a list of arrays."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 5, 4, 4, 1), dtype=np.uint8)
    dataset = Dataset(images, np.full(6, 5, np.int32))
    task = few_shot_task(Conv2(dtype), (4, 4, 1), way=WAY, shot=SHOT, query=QUERY)
    shapes = jax.eval_shape(task.initialize, jax.random.key(0))  # compiling the random start would take seconds
    params, batch_stats = jax.tree.map(lambda x: rng.uniform(0.1, 0.5, x.shape).astype(dtype), shapes)
    optimizer = optax.adam(1e-3)
    state = place(create_state(params, batch_stats, optimizer), devices)
    step = partial(train_step, loss=task.loss, optimizer=optimizer, report_every=50)
    step = parallelize(step, devices, donate=True)
    for _ in range(50):
        state = step(state, dataset, jax.random.key(1))
    return [np.asarray(x) for x in jax.tree.leaves((state.params, state.batch_stats))]


def greatest_difference(expected, found):
    """Of corresponding arrays, relative to the greatest entry of each."""
    return max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(expected, found, strict=True))


if __name__ == '__main__':
    jax.distributed.initialize(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    jax.config.update('jax_enable_x64', True)
    arrays = fifty_steps(jax.devices())
    np.savez(sys.argv[1], *arrays)
