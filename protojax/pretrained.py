"""Trained encoders in files that are safe to load from strangers.

A file is in the safetensors format: plain arrays, one per parameter and statistic, and a description in its header. The
description holds the kind of encoder and its settings, what it was trained on, the accuracies that it reached, and a
digest of it all. Squared distances between embeddings need no temperature: one that divided them in training is part of
the encoder's settings.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import ArrayLike

from protojax.encoders import (
    Conv4,
    EfficientNetLite,
    LinearMap,
    ResNet12,
    bind_item_shape,
    check_encoder_items,
    encode,
    initialize_shapes,
)
from protojax.errors import WeightsError, first_line
from protojax.files import read_arrays, write_arrays
from protojax.photo_weights import PACKAGED, load_photo_weights

FORMAT = 'protojax weights 2'
LARGEST = 1 << 30  # bytes of a file
BATCH = 64  # items that are embedded at a time, if they are not large
BATCH_NUMBERS = BATCH * 84 * 84 * 3  # in them
LARGEST_ITEM = 1 << 20  # numbers, as of an image of 590 x 590 pixels in colour
DEEPEST = 8  # groups of layers, or factor of their number
ENCODERS = {encoder.__name__: encoder for encoder in (Conv4, EfficientNetLite, LinearMap, ResNet12)}


@functools.partial(jax.jit, static_argnums=0)
def _embed_items(encoder, params, batch_stats, items):
    return encode(encoder, params, batch_stats, items)[0]


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """A trained encoder, and what else was learned with it.

    A value equals itself alone, so that it has a hash and can be a static argument of `jax.jit`.
    """

    encoder: nn.Module
    params: Any  # of the encoder
    batch_stats: Any
    description: dict
    attribute_encoder: nn.Module | None = None  # of zero-shot learning
    classifier: Any = dataclasses.field(default_factory=dict)  # of a learned distance, or of the attribute encoder

    def embed(self, items: ArrayLike) -> jax.Array:
        """Embeddings of any number of items: [N, ...] -> [N, D]. They are embedded a few at a time."""
        items = items if isinstance(items, jax.Array) else np.asarray(items)
        check_encoder_items(self.encoder, items)
        parts = []
        batch = _embedded_at_a_time(items.shape[1:])
        for start in range(0, max(len(items), 1), batch):
            part = jnp.asarray(items[start : start + batch])
            # Padded, so that a program is compiled for a few sizes and not for each.
            size = 1 << max(len(part) - 1, 0).bit_length()
            padded = jnp.concatenate([part, jnp.zeros((size - len(part), *part.shape[1:]), part.dtype)])
            parts.append(_embed_items(self.encoder, self.params, self.batch_stats, padded)[: len(part)])
        return jnp.concatenate(parts)

    def embed_attributes(self, attributes: ArrayLike) -> jax.Array:
        """Prototypes of classes that are known by their attributes alone: [way, A] -> [way, D].

        `zero_shot_known_classes` takes them.
        """
        if self.attribute_encoder is None:
            raise ValueError('these weights know no attributes: only those of zero-shot learning do')
        return encode(self.attribute_encoder, self.classifier, {}, jnp.asarray(attributes))[0]


def load_pretrained(name: str | os.PathLike, *, encoder: nn.Module | None = None) -> Pretrained:
    """The weights that come with protojax under a name, or those of a file.

    'photos' and 'photos-large' are in packages of their own (see protojax.photo_weights).

    `encoder` is needed for weights of an encoder that is not part of protojax: one with the settings of training.
    """
    if name in PACKAGED:
        encoder, params, origin = load_photo_weights(name)
        described = {'encoder': _description_of_encoder(encoder), 'item_shape': list(encoder.item_shape)}
        return Pretrained(encoder, params, {}, {**described, **origin})
    path = pretrained_path(name)
    advice = 'get it again' if encoder is None else 'pass the encoder of its training, or get it again'
    try:
        description, variables = _read_pretrained(path)
        if encoder is None:
            kind = description['encoder']['kind']
            if kind not in ENCODERS:
                kind = str(kind)[:80]
                raise WeightsError(
                    f'the encoder of {path} is a {kind}, which protojax does not know; pass it as encoder='
                )
            encoder = _described_encoder(description['encoder'])
        attribute_encoder = None
        if 'attribute_encoder' in description:
            attribute_encoder = _described_encoder(description['attribute_encoder'])
            _check_pretrained_fit(variables['classifier'], initialize_shapes(attribute_encoder)[0], 'classifier')
        _check_item_shape(description['item_shape'], encoder)
        encoder = bind_item_shape(encoder, description['item_shape'])
        expected = initialize_shapes(encoder, description['item_shape'])
        for part, shapes in zip(('params', 'batch_stats'), expected, strict=True):
            _check_pretrained_fit(variables.get(part, {}), shapes, part)
    except WeightsError:
        raise
    except Exception as error:  # damage takes many forms
        raise WeightsError(f'{path} holds no weights that can be used ({first_line(error)}); {advice}') from error
    parts = (variables.get(part, {}) for part in ('params', 'batch_stats'))
    return Pretrained(encoder, *parts, description, attribute_encoder, variables.get('classifier', {}))


def save_pretrained(path: str | os.PathLike, pretrained: Pretrained, item_shape: tuple[int, ...]) -> None:
    """Write an encoder's weights and description to a file, which conventionally ends in .safetensors."""
    variables = {name: getattr(pretrained, name) for name in ('params', 'batch_stats', 'classifier')}
    arrays = flatten_dict(jax.device_get(variables), sep='/')
    encoders = {'encoder': pretrained.encoder, 'attribute_encoder': pretrained.attribute_encoder}
    described = {name: _description_of_encoder(encoder) for name, encoder in encoders.items() if encoder is not None}
    description = {**pretrained.description, **described, 'format': FORMAT, 'item_shape': list(item_shape)}
    description['digest'] = _pretrained_digest(description, arrays)
    write_arrays(path, arrays, description)


def pretrained_path(name: str | os.PathLike) -> Path:
    """Where the weights of a name lie: those that come with protojax, or a file."""
    path = Path(name).expanduser()
    if os.sep not in str(name) and path.suffix != '.safetensors':
        path = _shipped_folder() / f'{name}.safetensors'
    if not path.is_file():
        known = ', '.join([*shipped_names(), *PACKAGED])
        raise WeightsError(f'there are no weights {name}; give a .safetensors file or one of: {known}')
    return path


def shipped_names() -> list[str]:
    """Names of the weights that come with protojax."""
    return sorted(file.stem for file in _shipped_folder().glob('*.safetensors'))


def _embedded_at_a_time(item_shape):
    """How many items are embedded together: fewer of large ones, as memory is limited; always a power of two."""
    fitting = BATCH_NUMBERS // max(1, math.prod(item_shape))
    return 1 << max(1, min(BATCH, fitting)).bit_length() - 1


def _shipped_folder():
    return Path(str(resources.files('protojax'))) / 'weights'


def _read_pretrained(path):
    """Description and variables of a file, none of whose arrays is larger than what the file holds."""
    arrays, description = read_arrays(path, largest=LARGEST)
    if description['format'] != FORMAT or description['digest'] != _pretrained_digest(description, arrays):
        raise ValueError('its contents do not match their description')
    results = description.get('results', {})
    if not isinstance(results, dict) or not isinstance(results.get('config', {}), dict):
        raise ValueError('its results are no named values')
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f'{name} is not made of finite float32 numbers')
        if name.startswith('batch_stats/') and name.split('/')[-1] == 'var' and array.min(initial=0) < 0:
            raise ValueError(f'{name} has negative variances')
    return description, unflatten_dict(arrays, sep='/')


def _description_of_encoder(encoder):
    settings = {name: getattr(encoder, name) for name in getattr(encoder, 'settings', ())}
    return {'kind': type(encoder).__name__, **settings}


def _described_encoder(described):
    """The encoder of a description; its sequences become tuples, so that it can be hashed."""
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in described.items() if name != 'kind'}
    if described['kind'] not in ENCODERS:
        raise ValueError(f'protojax knows no encoder {described["kind"]}')
    for name, value in settings.items():
        numbers = value if isinstance(value, tuple) else (value,)
        positive = name in ('std', 'scale')
        if value is not None and not all(math.isfinite(n) and (n > 0 or not positive) for n in numbers):
            raise ValueError(f'the encoder has {name}={value}')
    if settings.get('depth', 1) > DEEPEST or len(settings.get('widths', ())) > DEEPEST:
        raise ValueError(f'the encoder has far more than {DEEPEST} layers')  # it would take minutes just to look at it
    encoder = ENCODERS[described['kind']]
    return encoder(**{name: value for name, value in settings.items() if name in encoder.settings})


def _check_item_shape(shape, encoder):
    """Raise where items have no possible shape, or a large one: the file would decide how much memory is taken."""
    if not all(type(n) is int and n > 0 for n in shape) or math.prod(shape) > LARGEST_ITEM:
        raise ValueError(f'items of shape {shape} are impossible, or larger than {LARGEST_ITEM} numbers')
    own = getattr(encoder, 'item_shape', None)
    if own is not None and tuple(own) != tuple(shape):
        raise ValueError(f'items are {tuple(shape)}, but the encoder takes {own}')


def _check_pretrained_fit(found, expected, part):
    """Raise where a tree of arrays has not the names and shapes that are expected."""
    found, expected = flatten_dict(found, sep='/'), flatten_dict(expected, sep='/')
    for name in sorted(found.keys() | expected.keys()):
        theirs, ours = (tree[name].shape if name in tree else 'missing' for tree in (found, expected))
        if theirs != ours:
            raise ValueError(f'{part}/{name} is {theirs}, not {ours}')


def _pretrained_digest(description, arrays):
    """SHA-256 of all that a file holds, but for the digest itself."""
    told = {name: value for name, value in description.items() if name != 'digest'}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f'{name} {arrays[name].dtype} {arrays[name].shape}\n'.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
