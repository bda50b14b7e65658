"""Encoders: networks that map items to points of the embedding space.

An encoder is a Linen module. The rest of the package calls it only through `init` and `encode`, and otherwise only
reads its fields or sets them with `clone`. A custom encoder has to follow this contract:

- It is called as `encoder(items)` to create parameters and in evaluation, and as `encoder(items, train=True,
  axis_name=...)` in training; `train` and `axis_name` are keyword arguments with defaults False and None. Items are
  [N, ...]; the returned embeddings are [N, D] in float32.
- Items with three axes are images [H, W, C], uint8 or floats in 0..255.
- Parameters are in the collection 'params', running statistics, if any, in 'batch_stats'; all are float32.
- With `train` it normalises by the statistics of the batch and updates the running ones; without, it uses the running
  ones, so that the embedding of an item does not depend on other items.
- `axis_name` names the axis of devices across which a training batch is sharded: batch statistics are means over all
  devices (`lax.pmean`, or `nn.BatchNorm(axis_name=axis_name)`).
- Its fields are hashable (numbers, strings and tuples, not arrays): programs are compiled once for all equal encoders.
- It draws no random numbers when called, as dropout would: an update depends only on the parameters and the episode.

It may have these fields:

- `item_shape`: shape of the items; `encode` rejects others. If it is None, `few_shot_learner` and `load_pretrained` set
  it to the shape of their images. `load_images` and exports need it.
- `crop`: size of the central square crop of an image, relative to its shorter side; without it, `load_images` uses the
  complete image.
- `scale`: factor of the embeddings, which includes a temperature of squared distances in saved weights.
- `two_sided`: flip averaging: test embeddings are means over an image and its mirror image.
- `sphere`: test embeddings are centred and L2-normalised (CL2N), so images must have the size used in training.
- `dtype`: type of the activations, e.g. bfloat16; parameters, statistics and embeddings are float32.
- `resize_first`: images are resized before they are cropped, as on the Hugging Face hub.
- `kernels`, `products`: whether faster implementations for CPUs are used; exports disable them.
- `settings`, a class attribute: fields saved in weights files; without it, `load_pretrained` needs the encoder.
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

from protojax.encoders.conv4 import Conv4 as Conv4
from protojax.encoders.linear import LinearMap as LinearMap
from protojax.encoders.photos import EfficientNetLite as EfficientNetLite
from protojax.encoders.resnet12 import ResNet12 as ResNet12

# Limits of numbers in files: creating a network takes time, and large items take memory.
LARGEST, DEEPEST, LARGEST_ITEM = 1 << 16, {'blocks': 256, 'depth': 8, 'grid': 256}, 1 << 24


def init(encoder: nn.Module, key: jax.Array, item_shape: Sequence[int]) -> tuple[Any, Any]:
    """Initialise parameters and running statistics for items of a shape -> params, batch_stats."""
    variables = _init(encoder, key, tuple(item_shape))
    return variables.get('params', {}), variables.get('batch_stats', {})


@functools.partial(jax.jit, static_argnums=(0, 2))
def _init(encoder, key, item_shape):
    return encoder.init(key, jnp.zeros((1, *item_shape), jnp.uint8))


def shapes(encoder: nn.Module, item_shape: Sequence[int] | None = None) -> tuple[Any, Any]:
    """Return the shapes of parameters and running statistics, without computing them -> params, batch_stats."""
    shape = tuple(item_shape or encoder.item_shape)
    return jax.eval_shape(lambda key: init(encoder, key, shape), jax.random.key(0))


def dimensions(encoder: nn.Module, item_shape: Sequence[int]) -> int:
    """Return the number of dimensions of the embeddings of items of a shape."""
    if np.prod(item_shape) > LARGEST_ITEM:
        raise ValueError(f'items of shape {tuple(item_shape)} are too large')
    item = jax.ShapeDtypeStruct((1, *item_shape), jnp.uint8)
    shape = jax.eval_shape(functools.partial(encode, encoder), *shapes(encoder, item_shape), item)[0].shape
    if len(shape) != 2 or shape[0] != 1 or shape[1] < 1:
        raise ValueError(f'expected an embedding [1, D] of one item {tuple(item_shape)}, got shape {shape}')
    return shape[1]


def encode(
    encoder: nn.Module,
    params: Any,
    batch_stats: Any,
    items: ArrayLike,
    *,
    train: bool = False,
    axis_name: str | None = None,
) -> tuple[jax.Array, Any]:
    """Embed a batch: [N, ...] -> [N, D], updated batch_stats.

    In training, the batch is normalised by its statistics; with `axis_name`, it is sharded across that axis.
    """
    items = jnp.asarray(items)
    check(encoder, items)
    variables = {'params': params, 'batch_stats': batch_stats}
    if not train:
        return encoder.apply(variables, items), batch_stats  # type: ignore[return-value]
    embeddings, updated = encoder.apply(variables, items, train=True, axis_name=axis_name, mutable=['batch_stats'])
    return embeddings, updated.get('batch_stats', {})


def bind_item_shape(encoder: nn.Module, item_shape: Sequence[int]) -> nn.Module:
    """Set the encoder's field `item_shape` to the shape of these images, if the field exists and is None."""
    has_field = any(field.name == 'item_shape' for field in dataclasses.fields(encoder))
    if has_field and encoder.item_shape is None and len(item_shape) == 3:
        return encoder.clone(item_shape=tuple(item_shape))
    return encoder


def check_settings(encoder: nn.Module) -> None:
    """Raise an error for settings from a file that are too large or not numbers; strings need a string default."""
    for name in encoder.settings:
        for value in jax.tree.leaves(getattr(encoder, name)):
            text = isinstance(value, str) and isinstance(getattr(type(encoder), name, None), str)
            if not (text or abs(value) <= DEEPEST.get(name, LARGEST)):  # also rejects NaN
                raise ValueError(f'{type(encoder).__name__} cannot have {name}={value}')


def check(encoder: nn.Module, items: jax.Array | np.ndarray) -> None:
    """Raise ValueError for inputs that the encoder would silently misinterpret (wrong shape, 0-1 pixels)."""
    expected, found = getattr(encoder, 'item_shape', None), items.shape
    if expected is not None and found[1:] != tuple(expected):
        hint = 'add the batch axis: items[None]' if found == tuple(expected) else 'resize or convert the items'
        raise ValueError(f'expected items of shape [N, {", ".join(map(str, expected))}], got {found}; {hint}')
    floats = jnp.issubdtype(items.dtype, jnp.floating) and not isinstance(items, jax.core.Tracer)
    if len(found) == 4 and floats and items.size:
        highest = float(np.max(items))
        if 0 < highest <= 1:
            raise ValueError(f'expected pixel values in 0..255, got a maximum of {highest:.3g}; multiply by 255')
