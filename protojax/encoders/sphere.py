"""Test embeddings on a sphere about the mean embedding, an option of the encoders of images."""

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from protojax.distances import unit_length
from protojax.encoders.block import MOMENTUM


class Sphere(nn.Module):
    """Embeddings as they are in training, on a sphere about their running mean otherwise: [N, D] -> [N, D].

    Only the direction from the mean is then left of an embedding, so that a prototype of few examples does not depend
    on how strongly these excite the encoder (Wang et al. 2019, SimpleShot). The radius is the mean distance from the
    mean, so that squared distances keep the size that they have in training.
    """

    @nn.compact
    def __call__(self, x, *, train, axis_name=None):
        mean = self.variable('batch_stats', 'mean', jnp.zeros, (x.shape[-1],))
        radius = self.variable('batch_stats', 'radius', jnp.ones, ())
        if not train:
            return radius.value * unit_length(x - mean.value[None])
        center = _mean_over_devices(x.mean(0), axis_name)
        length = _mean_over_devices(jnp.linalg.norm(x - center[None], axis=-1).mean(), axis_name)
        if not self.is_initializing():
            mean.value = MOMENTUM * mean.value + (1 - MOMENTUM) * center
            radius.value = MOMENTUM * radius.value + (1 - MOMENTUM) * length
        return x


def _mean_over_devices(value, axis_name):
    return value if axis_name is None else lax.pmean(value, axis_name)
