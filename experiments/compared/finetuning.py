"""Fine-tuning on the support set of each test episode (matching networks, Vinyals et al. 2016), for any few-shot task.

Some gradient steps on the support set come before the queries are classified, and are forgotten after them. A support
example cannot be matched by itself, and with one shot there is no other of its class: so the support set, moved by a
few pixels, is its own queries.
"""

from functools import partial

import jax
import jax.numpy as jnp

from protojax import classifiers
from protojax.augmentation import shift
from protojax.tasks import Task


def fine_tuned(task: Task, *, steps: int, rate: float, pixels: int = 2) -> Task:
    """The task with `steps` steps of gradient descent at test; embeddings are the images, as the encoder changes.

    The parameters of `classify` must have the running statistics beside them, as 'batch_stats'.
    """
    item_shape = tuple(task.encoder.item_shape)
    move = partial(shift, way=0, pixels=pixels)

    def classify(params, episode):
        batch_stats = params['batch_stats']
        given = {name: getattr(episode, name) for name in ('support', 'query', 'unlabeled')}
        images = {name: items.reshape(-1, *item_shape) for name, items in given.items() if items is not None}

        def logits(params, queries):
            shown = {**images, 'query': queries}
            embedded = {name: task.embed(params, batch_stats, items) for name, items in shown.items()}
            return task.classify(params, episode._replace(**embedded))

        def loss(params, key):
            scores = logits(params, move(key, images['support'], episode.support_labels))
            return classifiers.losses(scores, episode.support_labels).mean()

        tuned = {name: params[name] for name in ('encoder', 'classifier')}
        for step in range(steps):  # not lax.scan: XLA compiles convolution gradients in a loop badly on CPU
            gradient = jax.grad(loss)(tuned, jax.random.key(step))
            tuned = jax.tree.map(lambda p, g: p - rate * g, tuned, gradient)
        return logits(tuned, images['query'])

    return task._replace(embed=as_they_are, classify=classify)


def as_they_are(params, batch_stats, items: jax.Array) -> jax.Array:
    """The items themselves, for classifiers that run the encoder: [N, ...] -> [N, D]."""
    return jnp.asarray(items).reshape(len(items), -1)
