"""Separate encoders for support examples (g) and queries (f), as in matching networks.

Both encoders embed every item, and the two embeddings are concatenated; the classifier uses one half. This wastes one
of the two passes but changes nothing else.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from protojax import Parametric


class Twofold(nn.Module):
    """Two encoders: [N, ...] -> [N, 2 D], the concatenation of g(x) and f(x)."""

    g: nn.Module  # of support examples
    f: nn.Module  # of queries

    @property
    def item_shape(self) -> Sequence[int] | None:
        """Return the shape of the items of both encoders."""
        return self.g.item_shape

    @nn.compact
    def __call__(self, items, *, train=False, axis_name=None):
        options = {'train': train, 'axis_name': axis_name}
        return jnp.concatenate([self.g(items, **options), self.f(items, **options)], -1)


def encoders(encoder: nn.Module) -> Twofold:
    """Duplicate an encoder; the two copies have separate parameters."""
    return Twofold(encoder.clone(), encoder.clone())


def classifier(inner: Parametric) -> Parametric:
    """Apply a classifier to embeddings of `Twofold`: g of support examples, f of queries."""

    def apply(params, episode):
        support, queries = jnp.split(episode.support, 2, -1)[0], jnp.split(episode.query, 2, -1)[1]
        return inner.apply(params, episode._replace(support=support, query=queries))

    return Parametric(lambda key, dimensions: inner.init(key, dimensions // 2), apply)
