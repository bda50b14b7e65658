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
LONGEST_RESULTS = 1 << 16  # characters
LARGEST_ITEM = 1 << 20  # numbers, as of an image of 590 x 590 pixels in colour
LARGEST_NUMBER = 1e18  # in arrays and settings, so that a product of two is finite in float32
DEEPEST = 8  # groups of layers, or factor of their number; also parts of an array's name
PARTS = ('params', 'batch_stats', 'classifier')  # with which the names of arrays begin
ENCODERS = {encoder.__name__: encoder for encoder in (Conv4, EfficientNetLite, LinearMap, ResNet12)}
# Settings of ENCODERS. What is not named here is a positive number.
LISTS = ('mean', 'std', 'widths', 'item_shape')
OPEN = ('crop', 'item_shape')  # may be None
TRUTHS = ('sphere', 'two_sided', 'unit_length')
TYPES = dict.fromkeys(TRUTHS, (bool,))
TYPES |= dict.fromkeys(('filters', 'dimensions', 'widths', 'item_shape'), (int,))
RANGES = dict.fromkeys(TRUTHS, (0, 1))
RANGES |= {'crop': (0.01, 1), 'mean': (-LARGEST_NUMBER, LARGEST_NUMBER)}


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
        # Fewer of large ones, as memory is limited; always a power of two.
        fitting = BATCH_NUMBERS // max(1, math.prod(items.shape[1:]))
        batch = 1 << max(1, min(BATCH, fitting)).bit_length() - 1
        parts = []
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
        params, batch_stats, classifier = (variables.get(part, {}) for part in PARTS)
        _check_item_shape(description['item_shape'], encoder)
        encoder = bind_item_shape(encoder, description['item_shape'])
        size = _checked_dimensions(encoder, description['item_shape'], {'params': params, 'batch_stats': batch_stats})
        attribute_encoder = None
        if 'attribute_encoder' in description:
            attribute_encoder = _described_encoder(description['attribute_encoder'])
            shape = attribute_encoder.item_shape
            _check_item_shape(shape, attribute_encoder)
            if _checked_dimensions(attribute_encoder, shape, {'classifier': classifier, 'batch_stats': {}}) != size:
                raise ValueError(f'attributes are not embedded in {size} dimensions, as the items are')
    except WeightsError:
        raise
    except Exception as error:  # damage takes many forms
        raise WeightsError(f'{path} holds no weights that can be used ({first_line(error)}); {advice}') from error
    return Pretrained(encoder, params, batch_stats, description, attribute_encoder, classifier)


def save_pretrained(path: str | os.PathLike, pretrained: Pretrained, item_shape: tuple[int, ...]) -> None:
    """Write an encoder's weights and description to a file, which conventionally ends in .safetensors."""
    variables = {part: getattr(pretrained, part) for part in PARTS}
    arrays = flatten_dict(jax.device_get(variables), sep='/')
    _check_array_names(arrays)
    encoders = {'encoder': pretrained.encoder, 'attribute_encoder': pretrained.attribute_encoder}
    described = {name: _description_of_encoder(encoder) for name, encoder in encoders.items() if encoder is not None}
    description = {**pretrained.description, **described, 'format': FORMAT, 'item_shape': list(item_shape)}
    description['digest'] = _pretrained_digest(description, arrays)
    write_arrays(path, arrays, description)


def check_pretrained_fit(found: Any, expected: Any, part: str) -> None:
    """Raise where a tree of arrays has not the names and shapes that are expected."""
    found, expected = flatten_dict(found, sep='/'), flatten_dict(expected, sep='/')
    for name in sorted(found.keys() | expected.keys()):
        theirs, ours = (tree[name].shape if name in tree else 'missing' for tree in (found, expected))
        if theirs != ours:
            raise ValueError(f'{part}/{name} is {theirs}, not {ours}')


def pretrained_path(name: str | os.PathLike) -> Path:
    """Where the weights of a name lie: those that come with protojax, or a file."""
    path = Path(name)
    if os.sep not in str(name) and path.suffix != '.safetensors':
        path = _shipped_folder() / f'{name}.safetensors'
    try:
        path = path.expanduser()
        found = path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, or of the home of nobody
        found = False
    if not found:
        known = ', '.join([*shipped_names(), *PACKAGED])
        raise WeightsError(f'there are no weights {name}; give a .safetensors file or one of: {known}')
    return path


def shipped_names() -> list[str]:
    """Names of the weights that come with protojax."""
    return sorted(file.stem for file in _shipped_folder().glob('*.safetensors'))


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
    # What a file says of itself is copied to results.json and to weights that start from it.
    if len(json.dumps([results, description.get('trained_on')])) > LONGEST_RESULTS:
        raise ValueError(f'its results have more than {LONGEST_RESULTS} characters')
    _check_array_names(arrays)
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f'{name} is not made of finite float32 numbers')
        if np.abs(array).max(initial=0) > LARGEST_NUMBER:
            raise ValueError(f'{name} has numbers beyond {LARGEST_NUMBER:.0e}')
        statistic = name.split('/')[-1] if name.startswith('batch_stats/') else ''
        if statistic == 'var' and array.min(initial=0) < 0:
            raise ValueError(f'{name} has negative variances')
        if statistic == 'radius' and not (array > 0).all():
            raise ValueError(f'{name} is not positive')
    return description, unflatten_dict(arrays, sep='/')


def _check_array_names(names):
    """Raise where names are not those of the arrays in PARTS, each of which is a tree of a few levels.

    What a classifier has learned may also be a single array.
    """
    inner = set()
    for name in names:
        parts = name.split('/', DEEPEST)
        levels = 1 if parts[0] == 'classifier' else 2
        if parts[0] not in PARTS or not levels <= len(parts) <= DEEPEST or '' in parts:
            raise ValueError(f'{name[:80]} is no name of an array in a dict of {", ".join(PARTS)}')
        inner.update('/'.join(parts[:number]) for number in range(1, len(parts)))
    for name in inner.intersection(names):
        raise ValueError(f'{name} is both an array and a dict of others')


def _description_of_encoder(encoder):
    settings = {name: getattr(encoder, name) for name in getattr(encoder, 'settings', ())}
    return {'kind': type(encoder).__name__, **settings}


def _described_encoder(described):
    """The encoder of a description, if each setting is of its type and in its range.

    Sequences become tuples, so that the encoder can be hashed.
    """
    if described['kind'] not in ENCODERS:
        raise ValueError(f'protojax knows no encoder {described["kind"]}')
    encoder = ENCODERS[described['kind']]
    settings = {name: described[name] for name in encoder.settings if name in described}
    for name, value in settings.items():
        if value is None and name in OPEN:
            continue
        types, (low, high) = TYPES.get(name, (int, float)), RANGES.get(name, (1 / LARGEST_NUMBER, LARGEST_NUMBER))
        numbers = value if isinstance(value, list) else [value]
        fitting = len(numbers) > 0 and all(type(n) in types and low <= n <= high for n in numbers)
        if isinstance(value, list) != (name in LISTS) or not fitting:
            raise ValueError(f'the encoder has {name}={value}')
    if settings.get('depth', 1) > DEEPEST or len(settings.get('widths', ())) > DEEPEST:
        raise ValueError(f'the encoder has far more than {DEEPEST} layers')  # it would take minutes just to look at it
    return encoder(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()})


def _check_item_shape(shape, encoder):
    """Raise where items have no possible shape, or a large one: the file would decide how much memory is taken."""
    possible = isinstance(shape, list | tuple) and 1 <= len(shape) <= 3 and all(type(n) is int and n > 0 for n in shape)
    if not possible or math.prod(shape) > LARGEST_ITEM:
        raise ValueError(f'items of shape {shape} are impossible, or larger than {LARGEST_ITEM} numbers')
    own = getattr(encoder, 'item_shape', None)
    if own is not None and tuple(own) != tuple(shape):
        raise ValueError(f'items are {tuple(shape)}, but the encoder takes {own}')
    for name in ('mean', 'std') if type(encoder) in ENCODERS.values() else ():
        numbers = len(getattr(encoder, name, (1,)))
        if numbers not in (1, shape[-1]):
            raise ValueError(f'the encoder has {name} of {numbers} numbers, but items are {tuple(shape)}')


def _checked_dimensions(encoder, item_shape, variables):
    """The size of embeddings, where the encoder's variables fit and an item has an embedding at all."""
    expected = initialize_shapes(encoder, item_shape)
    for (part, found), shapes in zip(variables.items(), expected, strict=True):
        check_pretrained_fit(found, shapes, part)
    item = jax.ShapeDtypeStruct((1, *item_shape), jnp.uint8)
    shape = jax.eval_shape(functools.partial(encode, encoder), *expected, item)[0].shape
    if len(shape) != 2 or shape[0] != 1 or shape[1] < 1:
        raise ValueError(f'one item of shape {tuple(item_shape)} has an embedding of shape {shape}, not [1, D]')
    return shape[1]


def _pretrained_digest(description, arrays):
    """SHA-256 of all that a file holds, but for the digest itself."""
    told = {name: value for name, value in description.items() if name != 'digest'}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f'{name} {arrays[name].dtype} {arrays[name].shape}\n'.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
