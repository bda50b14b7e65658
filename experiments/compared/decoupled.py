"""Embeddings of their own for support and query examples, as matching networks may have: g and f.

Every item goes through both encoders, and its embedding is the two side by side; a classifier takes the half that it
needs. That costs an encoding that is not used, and leaves everything else as it is.
"""

import flax.linen as nn
import jax.numpy as jnp

from protojax.classifiers import Classifier, as_learned_classifier
from protojax.distances import Learned


class Twofold(nn.Module):
    """Two encoders side by side: [N, ...] -> [N, 2 D], g(x) and then f(x)."""

    g: nn.Module  # of support examples
    f: nn.Module  # of queries

    @property
    def item_shape(self):
        """The shape of items that both take."""
        return self.g.item_shape

    @nn.compact
    def __call__(self, items, *, train=False, axis_name=None):
        options = {'train': train, 'axis_name': axis_name}
        return jnp.concatenate([self.g(items, **options), self.f(items, **options)], -1)


def decoupled_encoder(encoder: nn.Module) -> Twofold:
    """Two encoders of the same kind, with parameters of their own."""
    return Twofold(encoder.clone(), encoder.clone())


def decoupled_classifier(classify: Classifier | Learned) -> Learned:
    """The classifier on embeddings of `Twofold`: support examples by g, queries by f."""
    classifier = as_learned_classifier(classify)

    def apply(params, episode):
        support, queries = jnp.split(episode.support, 2, -1)[0], jnp.split(episode.query, 2, -1)[1]
        return classifier.apply(params, episode._replace(support=support, query=queries))

    return Learned(lambda key, dimensions: classifier.initialize(key, dimensions // 2), apply)
