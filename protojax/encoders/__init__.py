"""Encoders: networks that map items to points of the embedding space.

An encoder is a Linen module. The rest of the package calls it through `initialize` and `encode` alone, and beyond that
only reads its fields or sets them with `clone`. One of your own has to keep this contract:

- It is called as `encoder(items)` when parameters are made and in evaluation, and as `encoder(items, train=True,
  axis_name=...)` in training: `train` and `axis_name` are keyword arguments with the defaults False and None. Items are
  [N, ...], and the embeddings that it returns [N, D] in float32.
- Items of three axes are images [H, W, C] and come as uint8, or as floats from 0 to 255.
- What it learns lies in the collection 'params'; running statistics, where it has any, in 'batch_stats'. All are
  float32. A statistic called 'var' is a variance and one called 'radius' a length: a weights file with a negative
  variance, or a radius that is not positive, counts as damaged.
- With `train` it normalises by the statistics of the batch and moves the running ones towards them; without, it uses
  the running ones, so that the embedding of an item does not depend on the others.
- `axis_name` names the axis of devices over which a training batch is spread: statistics of the batch are those of all
  devices (`lax.pmean`, or `nn.BatchNorm(axis_name=axis_name)`).
- Its fields have hashes, as numbers, names and tuples do and arrays do not: programs are compiled once for all equal
  encoders.
- It draws no random numbers in a call, as dropout would: an update depends on the parameters and the episode alone.

It may have these fields, each of which is used where it is there:

- `item_shape`: the shape of the items that it takes; `encode` refuses others. Where it is None, `few_shot_task` and
  `load_pretrained` set it to that of their images. `load_images` and exports need it.
- `crop`: the side of the central square of an image that it is to see, in shorter sides of the image; without,
  `load_images` shows it the whole image.
- `scale`: a factor of the embeddings, which takes a temperature of squared distances into saved weights.
- `two_sided`: whether test embeddings are means over an image and its mirror image.
- `sphere`: whether test embeddings lie on a sphere about their mean, so that images must keep the size of training.
- `dtype`: of the activations, which may be bfloat16; parameters, statistics and embeddings stay float32.
- `kernels`, `products`: whether faster forms for CPUs are used; exports turn them off.
- `settings`, a class attribute: names of the fields that are saved in a weights file.
"""

import dataclasses
import functools
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
    variables = _initialized(encoder, key, tuple(item_shape))
    return variables.get('params', {}), variables.get('batch_stats', {})


@functools.partial(jax.jit, static_argnums=(0, 2))
def _initialized(encoder, key, item_shape):
    return encoder.init(key, jnp.zeros((1, *item_shape), jnp.uint8))


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
    items = jnp.asarray(items)
    check_encoder_items(encoder, items)
    variables = {'params': params, 'batch_stats': batch_stats}
    if not train:
        return encoder.apply(variables, items), batch_stats
    embeddings, updated = encoder.apply(variables, items, train=True, axis_name=axis_name, mutable=['batch_stats'])
    return embeddings, updated.get('batch_stats', {})


def bind_item_shape(encoder: nn.Module, item_shape: Sequence[int]) -> nn.Module:
    """The encoder with images of that shape as the only ones it takes, where it has left this open."""
    has_field = any(field.name == 'item_shape' for field in dataclasses.fields(encoder))
    open_to_all = has_field and encoder.item_shape is None and len(item_shape) == 3
    return encoder.clone(item_shape=tuple(item_shape)) if open_to_all else encoder


def check_encoder_items(encoder: nn.Module, items: jax.Array | np.ndarray) -> None:
    """Raise ValueError for items that the encoder would embed without complaint but not as they are meant."""
    expected, found = getattr(encoder, 'item_shape', None), items.shape
    if expected is not None and found[1:] != tuple(expected):
        hint = 'add the batch axis: items[None]' if found == tuple(expected) else 'resize or convert them first'
        raise ValueError(f'items of shape {found}, but this encoder takes [N, {", ".join(map(str, expected))}]; {hint}')
    if len(found) == 4 and items.size and not isinstance(items, jax.core.Tracer):
        highest = float(np.max(items))
        if 0 < highest <= 1:  # whatever their type; images that are all black are left
            raise ValueError(f'pixels go up to {highest:.3g} only, but images are 0 to 255 here; multiply them by 255')
