"""Fine-tuning on the support set of each test episode (Vinyals et al. 2016), for any few-shot method.

The queries are classified after some gradient steps on the support set, which are then discarded. A support example
must not match itself, and with one shot its class has no other example; so the queries of these steps are the support
examples, shifted by a few pixels.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from optax import softmax_cross_entropy_with_integer_labels as cross_entropy

from protojax import Learner, augmentation


def tuned(learner: Learner, *, steps: int, rate: float, pixels: int = 2) -> Learner:
    """Add `steps` steps of gradient descent to `classify`, which takes images because the encoder changes."""
    item_shape = tuple(learner.encoder.item_shape)
    move = partial(augmentation.shift, way=0, pixels=pixels)

    def classify(params, batch_stats, episode):
        given = {name: getattr(episode, name) for name in ('support', 'query', 'unlabeled')}
        images = {name: items.reshape(-1, *item_shape) for name, items in given.items() if items is not None}

        def logits(params, queries):
            shown = {**images, 'query': queries}
            embedded = {name: learner.embed(params, batch_stats, items) for name, items in shown.items()}
            return learner.classify(params, batch_stats, episode._replace(**embedded))

        def loss(params, key):
            scores = logits(params, move(key, images['support'], episode.support_labels))
            return cross_entropy(scores, episode.support_labels).mean()

        for step in range(steps):  # not lax.scan: XLA compiles convolution gradients in loops badly on CPU
            gradient = jax.grad(loss)(params, jax.random.key(step))
            params = jax.tree.map(lambda p, g: p - rate * g, params, gradient)
        return logits(params, images['query'])

    return learner._replace(embed=items_themselves, classify=classify, adapts=True)


def items_themselves(params: Any, batch_stats: Any, items: jax.Array) -> jax.Array:
    """Return the items as vectors, for learners that adapt the encoder: [N, ...] -> [N, D]."""
    return jnp.asarray(items).reshape(len(items), -1)
