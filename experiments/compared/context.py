"""Full context embeddings (FCE) of matching networks (Vinyals et al. 2016), for any classifier of embedded episodes.

A support example is embedded in the light of the others, g(x_i, S) = forward_i + backward_i + g'(x_i), where forward
and backward are the outputs of two LSTMs that run over the support set. A query is read against the support set by an
LSTM with attention, K times:

    h', c = LSTM(f'(x), [h, r], c),   h = h' + f'(x),   r = sum_i a_i g(x_i, S),   a = softmax_i(h . g(x_i, S))

The support side depends on the order of the support set, which is that of the episode: class by class. The query side
does not.

Axis letters: N support examples, Q queries, D dimensions.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from protojax.classifiers import Classifier, as_learned_classifier
from protojax.distances import Learned


def in_context(classify: Classifier | Learned, *, steps: int = 5) -> Learned:
    """The classifier on full context embeddings; queries attend to the support set `steps` times."""
    classifier = as_learned_classifier(classify)

    @partial(jax.jit, static_argnums=1)
    def initialize(key, dimensions):
        keys = jax.random.split(key, 4)
        inputs = {'forward': dimensions, 'backward': dimensions, 'attention': 2 * dimensions}
        lstms = {name: _init_lstm(k, size, dimensions) for k, (name, size) in zip(keys, inputs.items(), strict=False)}
        return {**lstms, 'classifier': classifier.initialize(keys[3], dimensions)}

    def apply(params, episode):
        support = support_in_context(params, episode.support)
        queries = queries_in_context(params['attention'], episode.query, support, steps=steps)
        own = params.get('classifier', {})  # files of weights hold no empty trees
        return classifier.apply(own, episode._replace(support=support, query=queries))

    return Learned(initialize, apply)


def support_in_context(params, support: jax.Array) -> jax.Array:
    """g(x_i, S): [N, D] -> [N, D]."""
    forward = _lstm_outputs(params['forward'], support)
    backward = _lstm_outputs(params['backward'], support[::-1])[::-1]
    return forward + backward + support


def queries_in_context(params, queries: jax.Array, support: jax.Array, *, steps: int) -> jax.Array:
    """h after some steps of attention to support examples in context: [Q, D], [N, D] -> [Q, D]."""
    h = c = r = jnp.zeros_like(queries)
    for _ in range(steps):
        # A recurrence on [h, r] is one on h with r among the inputs.
        c, h = _lstm(params, (c, h), jnp.concatenate([queries, r], 1))
        h = h + queries
        r = jax.nn.softmax(h @ support.T) @ support
    return h


def _lstm_outputs(params, points):
    """Outputs of an LSTM that runs over points: [N, D] -> [N, D]."""
    start = jnp.zeros((1, points.shape[1]))
    step = lambda state, point: (state := _lstm(params, state, point[None]), state[1][0])  # noqa: E731
    return lax.scan(step, (start, start), points)[1]


def _lstm(params, state, inputs):
    """(c, h) of an LSTM after one step: ([B, D], [B, D]), [B, I] -> ([B, D], [B, D])."""
    return nn.OptimizedLSTMCell(state[0].shape[1]).apply({'params': params}, state, inputs)[0]


def _init_lstm(key, inputs, size):
    start = jnp.zeros((1, size))
    return nn.OptimizedLSTMCell(size).init(key, (start, start), jnp.zeros((1, inputs)))['params']
