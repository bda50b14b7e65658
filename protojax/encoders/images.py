"""The common parts of image encoders: pixel scaling at the input; flip averaging, CL2N and scaling at the output."""

from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from protojax.distances import unit_length
from protojax.encoders.block import MOMENTUM


class ImageEncoder(nn.Module):
    """Base class of encoders that are a sequence of blocks: [N, H, W, C] -> [N, D].

    Images are uint8 or floats in 0..255. A subclass adds its fields to `settings` and defines two methods: `blocks()`
    creates modules, which are applied in order as `block(x, train=..., axis_name=...)`, and `pool(x)` reduces the
    output of the last one to vectors: [N, h, w, F] -> [N, D].
    """

    mean: Sequence[float] = (0.0,)  # mean of each channel, or one for all, after scaling pixels to 0..1
    std: Sequence[float] = (1.0,)  # standard deviation of each channel, or one for all
    item_shape: Sequence[int] | None = None  # height, width, channels; other images are rejected
    two_sided: bool = False  # flip averaging: test embeddings are means over an image and its mirror image
    sphere: bool = False  # centre and L2-normalise test embeddings (CL2N)
    scale: float = 1.0  # factor of the embeddings; includes a temperature of squared distances
    dtype: jnp.dtype = jnp.float32  # type of the activations; parameters, statistics and embeddings are float32
    settings: ClassVar[tuple[str, ...]] = ('mean', 'std', 'item_shape', 'two_sided', 'sphere', 'scale')

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        blocks = self.blocks()

        def embed(images):
            x = scaled_pixels(images, self.mean, self.std, self.dtype)
            for block in blocks:
                x = block(x, train=train, axis_name=axis_name)
            if 0 in x.shape[1:3]:
                raise ValueError(f'images of shape {images.shape[1:]} are too small for {len(blocks)} blocks')
            return self.pool(x).astype(jnp.promote_types(self.dtype, jnp.float32))

        x = embed(images)
        if self.two_sided and not train:
            x = (x + embed(images[:, :, ::-1])) / 2
        if self.sphere:
            x = Sphere()(x, train=train, axis_name=axis_name)
        return self.scale * x


class Sphere(nn.Module):
    """Identity in training; at test time, centre by the running mean and scale to a common norm (CL2N): [N, D].

    Only the direction from the mean remains, so a prototype of few examples does not depend on how strongly they
    activate the encoder (Wang et al. 2019, SimpleShot). The common norm is the running mean of the norms of centred
    embeddings, so that squared distances have the same size as in training.
    """

    @nn.compact
    def __call__(self, x, *, train, axis_name=None):
        mean = self.variable('batch_stats', 'mean', jnp.zeros, (x.shape[-1],))
        radius = self.variable('batch_stats', 'radius', jnp.ones, ())
        if not train:
            return radius.value * unit_length(x - mean.value[None])
        center = _mean_over_axis(x.mean(0), axis_name)
        length = _mean_over_axis(jnp.linalg.norm(x - center[None], axis=-1).mean(), axis_name)
        if not self.is_initializing():
            mean.value = MOMENTUM * mean.value + (1 - MOMENTUM) * center
            radius.value = MOMENTUM * radius.value + (1 - MOMENTUM) * length
        return x


def scaled_pixels(images: jax.Array, mean: Sequence[float], std: Sequence[float], dtype: jnp.dtype) -> jax.Array:
    """Scale pixels from 0..255 to 0..1, then standardise each channel: [N, H, W, C] -> [N, H, W, C]."""
    if images.ndim != 4:
        raise ValueError(f'expected images [N, H, W, C], got shape {images.shape}')
    shift, scale = (jnp.asarray(v, jnp.float32).reshape(1, 1, 1, -1) for v in (mean, std))
    return ((images / 255 - shift) / scale).astype(dtype)


def _mean_over_axis(value, axis_name):
    return value if axis_name is None else lax.pmean(value, axis_name)
