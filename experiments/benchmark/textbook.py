"""Measured functions of textbook Flax, without protojax's reordering and kernels."""

from functools import partial
from itertools import count
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.benchmark.contenders import dataset
from experiments.benchmark.plan import FILTERS, Run, Workload, repeated
from protojax.episodes import Dataset, sample_episode


class _Conv4(nn.Module):
    """Four blocks of convolution, batch normalisation, ReLU and max-pool: [N, H, W, C] -> [N, D]."""

    @nn.compact
    def __call__(self, images, *, train):
        x = images.astype(jnp.float32) / 255
        for _ in range(4):
            x = nn.Conv(FILTERS, (3, 3))(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        return x.reshape(x.shape[0], -1)


def episode_loss(
    params: Any, batch_stats: Any, data: Dataset, key: jax.Array, *, sizes: dict, train: bool = True
) -> tuple:
    """Return the loss of a random episode and the updated running statistics."""
    episode = sample_episode(key, data, **sizes)
    images = jnp.concatenate([episode.support, episode.query])
    variables = {'params': params, 'batch_stats': batch_stats}
    embeddings, updated = _Conv4().apply(variables, images, train=train, mutable=['batch_stats'])
    support, queries = jnp.split(embeddings, [len(episode.support)])
    prototypes = support.reshape(sizes['way'], sizes['shot'], -1).mean(1)
    distances = jnp.sum((queries[:, None] - prototypes[None]) ** 2, -1)
    losses = optax.softmax_cross_entropy_with_integer_labels(-distances, episode.query_labels)
    return losses.mean(), updated['batch_stats']


def training(workload: Workload) -> Run:
    """Step: sample an episode and update the parameters."""
    params, batch_stats, data, keys = start(workload)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(params, batch_stats, opt_state, data, key):
        gradient = jax.grad(partial(episode_loss, sizes=workload.sizes), has_aux=True)
        gradients, batch_stats = gradient(params, batch_stats, data, key)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), batch_stats, opt_state

    state = params, batch_stats, optimizer.init(params)

    def run(steps):
        nonlocal state
        for _ in range(steps):
            state = step(*state, data, next(keys))
        jax.block_until_ready(state)

    return run


def evaluation(workload: Workload) -> Run:
    """Step: sample an episode, embed it with the running statistics and score it."""
    *fixed, keys = start(workload)
    score = jax.jit(partial(episode_loss, sizes=workload.sizes, train=False))
    return repeated(lambda: float(score(*fixed, next(keys))[0]))


def start(workload: Workload) -> tuple:
    """Return params, batch_stats, the data set on the device, and a key for each step."""
    variables = _Conv4().init(jax.random.key(0), jnp.zeros((1, *workload.image)), train=False)
    keys = map(partial(jax.random.fold_in, jax.random.key(1)), count())
    return variables['params'], variables['batch_stats'], jax.device_put(dataset(workload)), keys
