"""Full context embeddings (FCE) of matching networks (Vinyals et al. 2016), for any classifier of embedded episodes.

The embedding of a support example depends on all others, g(x_i, S) = forward_i + backward_i + g'(x_i), where forward
and backward are the outputs of two LSTMs that run over the support set. A query attends to the support set by an LSTM
in K steps:

    h', c = LSTM(f'(x), [h, r], c),   h = h' + f'(x),   r = sum_i a_i g(x_i, S),   a = softmax_i(h . g(x_i, S))

Support embeddings depend on the order of the support set, which is class by class; query embeddings do not.

Axis letters: N support examples, Q queries, D dimensions.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from protojax import Parametric


def in_context(classifier: Parametric, *, steps: int = 5) -> Parametric:
    """Apply a classifier to full context embeddings; queries attend to the support set in `steps` steps."""

    @partial(jax.jit, static_argnums=1)
    def init(key, dimensions):
        keys = jax.random.split(key, 4)
        inputs = {'forward': dimensions, 'backward': dimensions, 'attention': 2 * dimensions}
        lstms = {name: _init_lstm(k, size, dimensions) for k, (name, size) in zip(keys, inputs.items(), strict=False)}
        return {**lstms, 'classifier': classifier.init(keys[3], dimensions)}

    def apply(params, episode):
        support = support_in_context(params, episode.support)
        queries = queries_in_context(params['attention'], episode.query, support, steps=steps)
        own = params.get('classifier', {})  # weights files do not contain empty trees
        return classifier.apply(own, episode._replace(support=support, query=queries))

    return Parametric(init, apply)


def support_in_context(params: Any, support: jax.Array) -> jax.Array:
    """Compute g(x_i, S): [N, D] -> [N, D]."""
    forward = _lstm_outputs(params['forward'], support)
    backward = _lstm_outputs(params['backward'], support[::-1])[::-1]
    return forward + backward + support


def queries_in_context(params: Any, queries: jax.Array, support: jax.Array, *, steps: int) -> jax.Array:
    """Compute h after `steps` steps of attention to support examples in context: [Q, D], [N, D] -> [Q, D]."""
    # The recurrence on [h, r] is computed as one on h, with r as an input that changes from step to step.
    of_query, of_read = jnp.split(params['inputs'], 2)
    fixed = queries @ of_query + params['bias'][None]
    c, h = _lstm_state(jnp.zeros_like(queries), fixed)  # h and r begin at zero
    for _ in range(steps - 1):
        h = h + queries
        read = jax.nn.softmax(h @ support.T) @ support
        c, h = _lstm_state(c, fixed + read @ of_read + h @ params['recurrent'])
    return h + queries


def _lstm_outputs(params, points):
    """Run an LSTM over points and return its outputs: [N, D] -> [N, D]."""

    def step(state, of_point):
        c, h = state
        state = _lstm_state(c, of_point[None] + h @ params['recurrent'])
        return state, state[1][0]

    start = jnp.zeros((1, points.shape[1]))
    return lax.scan(step, (start, start), points @ params['inputs'] + params['bias'][None])[1]


def _lstm_state(c, gates):
    """Return (c, h) of an LSTM after a step, given c and inputs of its gates: [B, D], [B, 4 D] -> [B, D], [B, D]."""
    i, f, g, o = jnp.split(gates, 4, 1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return c, jax.nn.sigmoid(o) * jnp.tanh(c)


def _init_lstm(key, inputs, size):
    """Initialise the kernels of input, forget, cell and output gate, concatenated so that one product serves all.

    LeCun initialisation, also of the recurrent kernels, because the authors do not specify theirs.
    """
    draw, keys = nn.initializers.lecun_normal(), jax.random.split(key)
    kernels = {'inputs': draw(keys[0], (inputs, 4 * size)), 'recurrent': draw(keys[1], (size, 4 * size))}
    return {**kernels, 'bias': jnp.zeros(4 * size)}
