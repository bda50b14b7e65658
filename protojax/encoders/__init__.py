"""Encoders: networks that map items to points of the embedding space.

An encoder is a Linen module. Nothing else in the package knows Linen, as encoders are used through `initialize` and
`encode` alone. One of your own has to keep this contract:

- It is called as `encoder(items, train=..., axis_name=...)` with items [N, ...] and returns embeddings [N, D] in
  float32. Images come as uint8, or as floats from 0 to 255.
- What it learns lies in the collection 'params'; running statistics, where it has any, in 'batch_stats'.
- With `train` it normalises by the statistics of the batch and moves the running ones towards them; without, it uses
  the running ones, so that the embedding of an item does not depend on the others.
- `axis_name` names the axis of devices over which a training batch is spread: statistics of the batch are those of all
  devices (`lax.pmean`, or `nn.BatchNorm(axis_name=axis_name)`).
- It draws no random numbers in a call, as dropout would: an update depends on the parameters and the episode alone.
- A field `item_shape`, if it has one, says what shape of items it takes; `encode` refuses others.
- A field `crop`, if it has one, is the side of the central square of an image that it is to see, in shorter sides of
  the image; without, `protojax.load_images` shows it the whole image.
- A class attribute `settings`, if it has one, names the fields that are saved in a weights file.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from protojax.encoders.conv4 import Conv4
from protojax.encoders.linear import LinearMap
from protojax.encoders.photos import EfficientNetLite
from protojax.encoders.resnet12 import ResNet12

__all__ = ['Conv4', 'EfficientNetLite', 'LinearMap', 'ResNet12', 'check_encoder_items', 'encode', 'initialize']


def initialize(encoder: nn.Module, key: jax.Array, item_shape: Sequence[int]) -> tuple[Any, Any]:
    """Fresh parameters and running statistics for items of a shape -> params, batch_stats."""
    variables = jax.jit(encoder.init)(key, jnp.zeros((1, *item_shape), jnp.uint8))
    return variables.get('params', {}), variables.get('batch_stats', {})


def initialize_shapes(encoder: nn.Module, item_shape: tuple[int, ...] | None = None) -> tuple[Any, Any]:
    """Shapes of an encoder's parameters and statistics, without computing them -> params, batch_stats."""
    shape = tuple(item_shape or encoder.item_shape)
    return jax.eval_shape(lambda key: initialize(encoder, key, shape), jax.random.key(0))


def encode(
    encoder: nn.Module,
    params: Any,
    batch_stats: Any,
    items: ArrayLike,
    *,
    train: bool = False,
    axis_name: str | None = None,
) -> tuple[jax.Array, Any]:
    """Embeddings, and the running statistics after this batch: [N, ...] -> [N, D], batch_stats.

    In training the statistics of the batch normalise it; with `axis_name` the batch is spread over that axis.
    """
    check_encoder_items(encoder, items)
    variables = {'params': params, 'batch_stats': batch_stats}
    if not train:
        return encoder.apply(variables, items), batch_stats
    embeddings, updated = encoder.apply(variables, items, train=True, axis_name=axis_name, mutable=['batch_stats'])
    return embeddings, updated.get('batch_stats', {})


def check_encoder_items(encoder: nn.Module, items: ArrayLike) -> None:
    """Raise ValueError for items that the encoder would embed without complaint but not as they are meant."""
    expected = getattr(encoder, 'item_shape', None)
    if expected is None:
        return
    expected, found = tuple(expected), np.shape(items)
    if found[1:] != expected:
        hint = 'add the batch axis: items[None]' if found == expected else 'resize or convert them first'
        raise ValueError(f'items of shape {found}, but this encoder takes [N, {", ".join(map(str, expected))}]; {hint}')
    known = not isinstance(items, jax.core.Tracer)
    if len(expected) == 3 and known and jnp.issubdtype(items.dtype, jnp.floating) and np.size(items):
        highest = np.max(items)
        if 0 < highest <= 1:
            raise ValueError(f'pixels go up to {highest:.3g} only, but images are 0 to 255 here; multiply them by 255')
