"""Flax as one would first write it: the contender that shows what protojax's reordering and kernels gain."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from experiments.benchmark.contenders import contender_dataset
from experiments.benchmark.workloads import FILTERS
from protojax.episodes import sample_episode


class _TextbookConv4(nn.Module):
    """Four blocks of convolution, batch normalisation, ReLU and max-pool: [N, H, W, C] -> [N, D]."""

    @nn.compact
    def __call__(self, images, *, train):
        x = images.astype(jnp.float32) / 255
        for _ in range(4):
            x = nn.Conv(FILTERS, (3, 3))(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        return x.reshape(x.shape[0], -1)


def textbook_loss(params, batch_stats, dataset, key, *, sizes, train=True):
    """Loss of the episode that the key names, and the running statistics after it."""
    episode = sample_episode(key, dataset, **sizes)
    images = jnp.concatenate([episode.support, episode.query])
    variables = {'params': params, 'batch_stats': batch_stats}
    embeddings, updated = _TextbookConv4().apply(variables, images, train=train, mutable=['batch_stats'])
    support, queries = jnp.split(embeddings, [len(episode.support)])
    prototypes = support.reshape(sizes['way'], sizes['shot'], -1).mean(1)
    distances = jnp.sum((queries[:, None] - prototypes[None]) ** 2, -1)
    losses = optax.softmax_cross_entropy_with_integer_labels(-distances, episode.query_labels)
    return losses.mean(), updated['batch_stats']


def textbook_training(workload):
    """One step: draw an episode and update the parameters."""
    sizes, params, batch_stats, dataset, key = start_textbook(workload)
    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(params, batch_stats, opt_state, dataset, key):
        gradient = jax.grad(lambda *arguments: textbook_loss(*arguments, sizes=sizes), has_aux=True)
        gradients, batch_stats = gradient(params, batch_stats, dataset, key)
        updates, opt_state = optimizer.update(gradients, opt_state)
        return optax.apply_updates(params, updates), batch_stats, opt_state

    state, done = (params, batch_stats, optimizer.init(params)), 0

    def run(steps):
        nonlocal state, done
        for _ in range(steps):
            state = step(*state, dataset, jax.random.fold_in(key, done))
            done += 1
        jax.block_until_ready(state)

    return run


def textbook_evaluation(workload):
    """One step: draw an episode, embed it with the running statistics and score it."""
    sizes, params, batch_stats, dataset, key = start_textbook(workload)
    score = jax.jit(lambda *arguments: textbook_loss(*arguments, sizes=sizes, train=False)[0])
    done = 0

    def run(steps):
        nonlocal done
        for _ in range(steps):
            loss = score(params, batch_stats, dataset, jax.random.fold_in(key, done))
            done += 1
        return float(loss)

    return run


def start_textbook(workload):
    """Sizes of an episode, params, batch_stats, the data set on the device, and a key."""
    sizes = {'way': workload.way, 'shot': workload.shot, 'query': workload.query}
    variables = _TextbookConv4().init(jax.random.key(0), jnp.zeros((1, *workload.image)), train=False)
    dataset = jax.device_put(contender_dataset(workload))
    return sizes, variables['params'], variables['batch_stats'], dataset, jax.random.key(1)
