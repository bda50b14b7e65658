"""The meta-learner LSTM (Ravi and Larochelle 2017): an LSTM learns how to train a small network on a support set.

The trained network is an encoder and a linear layer to the classes of an episode. Each of its weights theta is the cell
state of an LSTM, theta_t = f_t theta_{t-1} - i_t grad_t, whose gates see gradient, loss, weight and themselves:

    x_t = LSTM(grad_t, loss_t),   i_t = sigmoid(W_I [x_t, theta_{t-1}, i_{t-1}] + b_I),   f_t likewise

All weights share the meta-learner, and each has a separate state. Gradients of the learner's loss are constants for the
meta-learner. The initial theta is learned too. Batch normalisation uses the statistics of the batch in meta-training,
and the statistics of the episode's support set at test time.

A training episode is one chain of small updates, so it is not sharded: every device computes the complete episode. With
--episodes_per_step, devices compute different episodes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from optax import softmax_cross_entropy_with_integer_labels as cross_entropy

from experiments.methods import encoders, finetuning
from experiments.methods.options import Config, ConfigError, Method, MethodOptions, text
from protojax import Learner, Splits, classifiers, few_shot_learner, sample_episode
from protojax.encoders import encode
from protojax.encoders.block import MOMENTUM

UNITS = 20  # of the LSTM that reads gradient and loss
LOG_RANGE = 10.0  # p of the pre-processing: values below e^-p are scaled by e^p, others by their logarithm
UPDATES = {1: 12}  # shot -> updates of the learner
UPDATES_OTHERWISE = 5


class Options(MethodOptions):
    """Meta-learner LSTM"""


def build(config: Config, data: Splits, encoder: nn.Module) -> Learner:
    sizes = config.episodes
    if {sizes.way, sizes.validation_way, *sizes.test_way} != {sizes.way}:
        ways = f'--way={sizes.way} --validation_way={sizes.validation_way} --test_way={text(sizes.test_way)}'
        raise ConfigError(f'{ways}: expected equal values, because --model=metalstm has one output per class')
    return learner(encoder.clone(filters=32), data.item_shape, **sizes.sizes)


DEFAULTS = {'way': 5, 'query': 15, 'validation_way': 5, 'test_way': (5,)}
DEFAULTS |= {'clip_norm': 0.25, 'halve_every': 0, 'last_scale': 1.0}
METHOD = Method(build, Options, DEFAULTS, {'conv4': encoders.Conv4})


class _Memory(NamedTuple):
    """State of the meta-learner for P weights."""

    theta: jax.Array  # [P]
    lstm: tuple[jax.Array, jax.Array]  # c and h, [P, UNITS] each
    gates: jax.Array  # [P, 2], input and forget gate of the last update


def learner(encoder: nn.Module, item_shape: Sequence[int], *, way: int, shot: int, query: int) -> Learner:
    """Build a meta-learner on episodes of the given way, shot and query; test episodes must have the same way."""
    fresh = few_shot_learner(encoder, item_shape, way=way, shot=shot, query=query)

    def init(key):
        keys = jax.random.split(key, 3)
        params, batch_stats = fresh.init(keys[0])
        item = jnp.zeros((1, *item_shape), jnp.uint8)
        size = jax.eval_shape(fresh.embed, params, batch_stats, item).shape[1]
        layer = {'kernel': nn.initializers.lecun_normal()(keys[1], (size, way)), 'bias': jnp.zeros(way)}
        return {**params, 'classifier': {'layer': layer, 'meta': init_meta(keys[2])}}, batch_stats

    def logits(theta, images, statistics=None):
        """Compute the learner's logits, normalised by statistics, by default of the images -> [N, way], statistics."""
        params, layer = theta
        train, statistics = statistics is None, zeros if statistics is None else statistics
        embeddings, running = encode(encoder, params, statistics, images, train=train)
        batch = jax.tree.map(lambda s: s / (1 - MOMENTUM), running)  # they started at zero
        return embeddings @ layer['kernel'] + layer['bias'][None], batch

    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape), jax.eval_shape(fresh.init, jax.random.key(0))[1])

    def trained(params, support, labels):
        """Return the weights after the updates on a support set."""

        def loss(theta):
            return cross_entropy(logits(theta, support)[0], labels).mean()

        start = params['encoder'], params['classifier']['layer']
        updates = UPDATES.get(len(labels) // way, UPDATES_OTHERWISE)
        return meta_learn(params['classifier']['meta'], loss, start, updates=updates)

    def episode_loss(params, batch_stats, dataset, key, *, axis_name=None):
        episode = sample_episode(key, dataset, way=way, shot=shot, query=query)
        scores, _ = logits(trained(params, episode.support, episode.support_labels), episode.query)
        losses = cross_entropy(scores, episode.query_labels).mean()
        accuracy = classifiers.accuracies(scores, episode.query_labels).mean()
        return losses, (batch_stats, {'loss': losses, 'accuracy': accuracy})

    def classify(params, batch_stats, episode):
        support, queries = (items.reshape(-1, *item_shape) for items in (episode.support, episode.query))
        theta = trained(params, support, episode.support_labels)
        return logits(theta, queries, logits(theta, support)[1])[0]

    return Learner(init, episode_loss, finetuning.items_themselves, classify, encoder, adapts=True)


def meta_learn(meta: Any, loss: Callable[[Any], jax.Array], start: Any, *, updates: int) -> Any:
    """Let the meta-learner update the initial weights `start`; `loss` is a function of weights -> weights."""
    theta, unravel = ravel_pytree(start)
    state = jnp.zeros((theta.size, UNITS))
    memory = _Memory(theta, (state, state), jnp.zeros((theta.size, 2)))
    for _ in range(updates):  # not lax.scan: XLA compiles convolution gradients in a loop badly on CPU
        value, gradient = jax.value_and_grad(loss)(unravel(lax.stop_gradient(memory.theta)))
        memory = _update(meta, memory, ravel_pytree(gradient)[0], value)
    return unravel(memory.theta)


def _update(meta: Any, memory: _Memory, gradient: jax.Array, loss: jax.Array) -> _Memory:
    """Update the learner's weights once: _Memory, [P], [] -> _Memory."""
    losses = jnp.tile(preprocess(loss[None]), (gradient.size, 1))
    inputs = jnp.concatenate([preprocess(gradient), losses], 1)
    state, x = nn.OptimizedLSTMCell(UNITS).apply({'params': meta['lstm']}, memory.lstm, inputs)
    shared = jnp.concatenate([x, memory.theta[:, None]], 1)
    seen = shared @ meta['kernel'][:-1] + memory.gates * meta['kernel'][-1:]
    gates = jax.nn.sigmoid(seen + meta['bias'][None])
    return _Memory(gates[:, 1] * memory.theta - gates[:, 0] * gradient, state, gates)


def preprocess(values: jax.Array) -> jax.Array:
    """Compute (log|v| / p, sign v) if |v| >= e^-p, else (-1, e^p v), with p = LOG_RANGE: [N] -> [N, 2]."""
    size = jnp.abs(values)
    large = size >= jnp.exp(-LOG_RANGE)
    logarithm = jnp.log(jnp.where(large, size, 1.0)) / LOG_RANGE
    pair = jnp.where(large, logarithm, -1.0), jnp.where(large, jnp.sign(values), jnp.exp(LOG_RANGE) * values)
    return jnp.stack(pair, -1)


@jax.jit
def init_meta(key: jax.Array) -> Any:
    """Initialise small weights, and biases with which updates begin near gradient descent with a rate of 0.01."""
    keys = jax.random.split(key)
    state = jnp.zeros((1, UNITS))
    lstm = nn.OptimizedLSTMCell(UNITS).init(keys[0], (state, state), jnp.zeros((1, 4)))['params']
    kernel = jax.random.uniform(keys[1], (UNITS + 2, 2), minval=-0.01, maxval=0.01)
    return {'lstm': lstm, 'kernel': kernel, 'bias': jnp.array([-4.5, 6.0])}
