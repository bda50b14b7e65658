"""Encoders as Linen modules. They are used through two pure functions, so that nothing else knows Linen."""

import jax
import jax.numpy as jnp

from protojax.encoders.conv4 import Conv4
from protojax.encoders.linear import LinearMap

__all__ = ['Conv4', 'LinearMap', 'encode', 'initialize']


def initialize(encoder, key, item_shape):
    """Fresh parameters and running statistics for items of a shape -> params, batch_stats."""
    variables = jax.jit(encoder.init)(key, jnp.zeros((1, *item_shape), jnp.uint8))
    return variables['params'], variables.get('batch_stats', {})


def encode(encoder, params, batch_stats, items, *, train=False, axis_name=None):
    """Embeddings, and the running statistics after this batch: [N, ...] -> [N, D], batch_stats.

    In training the statistics of the batch normalise it; with `axis_name` the batch is spread over that axis.
    """
    variables = {'params': params, 'batch_stats': batch_stats}
    if not train:
        return encoder.apply(variables, items), batch_stats
    embeddings, updated = encoder.apply(variables, items, train=True, axis_name=axis_name, mutable=['batch_stats'])
    return embeddings, updated.get('batch_stats', {})
