"""Trained encoders in files that are safe to load from untrusted sources.

A file is in the safetensors format: plain arrays, one per parameter and statistic, and metadata in its header. The
metadata contain the kind of encoder and its settings, the training data, the accuracies, and a digest of everything.
Squared distances between embeddings need no temperature: the temperature of training is part of the settings.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import math
import os
import pkgutil
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import ArrayLike

from protojax import devices, encoders, files, hub_weights, photo_weights
from protojax.errors import WeightsError, first_line

FORMAT = 'protojax weights 2'
BATCH = 64  # items that are embedded at once, fewer if they are large
BATCH_NUMBERS = 16 * 224 * 224 * 3  # maximum of pixels times channels in a batch
PARTS = ('params', 'batch_stats', 'classifier')  # first part of each array name
FOLDER = Path(__file__).parent / 'weights'
# All encoders in protojax/encoders by name, i.e. the classes with `settings`.
MODULES = [importlib.import_module(f'protojax.encoders.{m.name}') for m in pkgutil.iter_modules(encoders.__path__)]
ENCODERS = {name: value for module in MODULES for name, value in vars(module).items() if hasattr(value, 'settings')}


@functools.cache
def _embed(encoder, tuned):
    """Program that embeds a batch: params, batch_stats, items -> [N, D]; `tuned` for CPUs."""
    options = devices.cpu_compiler_options() if tuned else None
    return jax.jit(lambda *arguments: encoders.encode(encoder, *arguments)[0], compiler_options=options)


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """A trained encoder, and the parameters that were trained with it.

    Instances are compared by identity, so they are hashable and can be static arguments of `jax.jit`.
    """

    encoder: nn.Module
    params: Any  # parameters of the encoder
    batch_stats: Any  # running statistics of the encoder
    description: dict  # metadata of the file: settings, results of the run, digest
    attribute_encoder: nn.Module | None = None  # encoder of class attributes, in zero-shot learning
    classifier: Any = dataclasses.field(default_factory=dict)  # params of a learned distance or attribute encoder

    def embed(self, items: ArrayLike) -> jax.Array:
        """Embed any number of items in batches: [N, ...] -> [N, D]."""
        items = items if isinstance(items, jax.Array) else np.asarray(items)
        encoders.check(self.encoder, items)
        batch = max(1, min(BATCH, BATCH_NUMBERS // max(1, math.prod(items.shape[1:]))))
        parts, start = [], 0
        while start < max(len(items), 1):
            # Only two sizes are compiled: a full batch, padded with zeros, and one item if few are left.
            size = 1 if 0 < len(items) - start <= batch // 4 else batch
            part = jnp.asarray(items[start : start + size])
            padded = jnp.pad(part, [(0, size - len(part)), *[(0, 0)] * (part.ndim - 1)])
            # A program within another cannot have options.
            tuned = jax.default_backend() == 'cpu' and not isinstance(padded, jax.core.Tracer)
            parts.append(_embed(self.encoder, tuned)(self.params, self.batch_stats, padded)[: len(part)])
            start += size
        return jnp.concatenate(parts)

    def embed_attributes(self, attributes: ArrayLike) -> jax.Array:
        """Embed class attributes as prototypes: [way, A] -> [way, D].

        `PrototypeClassifier.fit(prototypes, range(way), names)` makes a classifier of them.
        """
        if self.attribute_encoder is None:
            raise ValueError('these weights have no attribute encoder; use weights of a zero-shot model')
        return encoders.encode(self.attribute_encoder, self.classifier, {}, jnp.asarray(attributes))[0]


def load_pretrained(name: str | os.PathLike, *, encoder: nn.Module | None = None) -> Pretrained:
    """Load bundled weights by name, or weights from a file.

    Args:
        name: Name of bundled weights, a path, 'photos' or 'photos-large' (see `protojax.photo_weights`), or weights of
            the Hugging Face hub such as 'dinov2-small' (see `protojax.hub_weights`).
        encoder: The encoder used in training, if it is not part of protojax.

    Raises:
        WeightsError: If the weights do not exist or the file is corrupted.
    """
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        files.cache_programs()
    if name in photo_weights.PACKAGED or hub_weights.recognizes(name):
        source = photo_weights if name in photo_weights.PACKAGED else hub_weights
        network, params, origin = source.load(str(name))
        settings = _settings(network)
        return Pretrained(network, params, {}, {'encoder': settings, 'item_shape': settings['item_shape'], **origin})
    file = path(name)
    try:
        description, variables = _read(file)
        return _checked(description, variables, encoder or _encoder(description['encoder']))
    except Exception as error:  # corrupted files raise many types
        hint = 'pass the encoder used in training, or download it again'
        raise WeightsError(f'{file} does not contain usable weights ({first_line(error)}); {hint}') from error


def save_pretrained(path: str | os.PathLike, pretrained: Pretrained, item_shape: tuple[int, ...]) -> None:
    """Write weights and metadata to a file, by convention with the extension .safetensors."""
    arrays = flatten_dict(jax.device_get({part: getattr(pretrained, part) for part in PARTS}), sep='/')
    modules = {'encoder': pretrained.encoder, 'attribute_encoder': pretrained.attribute_encoder}
    described = {name: _settings(module) for name, module in modules.items() if module is not None}
    description = {**pretrained.description, **described, 'format': FORMAT, 'item_shape': list(item_shape)}
    description['digest'] = digest(description, arrays)
    files.write_arrays(path, arrays, description)


def check_fit(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise ValueError unless nested dictionaries of arrays have the expected names and shapes."""
    found, expected = flatten_dict(found, sep='/'), flatten_dict(expected, sep='/')
    for name in sorted(found.keys() | expected.keys()):
        got, wanted = (tree[name].shape if name in tree else 'nothing' for tree in (found, expected))
        if got != wanted:
            raise ValueError(f'{name}: expected {wanted}, got {got}')


def path(name: str | os.PathLike) -> Path:
    """Return the path of bundled weights or of a file; raises WeightsError if it does not exist."""
    file = os.path.expanduser(name)
    if os.sep not in file and not file.endswith('.safetensors'):
        file = os.path.join(FOLDER, f'{name}.safetensors')
    if os.path.isfile(file):
        return Path(file)
    known = ', '.join([*names(), *photo_weights.PACKAGED, *hub_weights.REPOSITORIES])
    raise WeightsError(f'weights {name} not found; expected a .safetensors file or one of: {known}')


def names() -> list[str]:
    """Return the names of the bundled weights."""
    return sorted(file.stem for file in FOLDER.glob('*.safetensors'))


def name_of(digest: str) -> str:
    """Return the name of the bundled, packaged or downloaded weights with this digest."""
    for name, packaged in photo_weights.PACKAGED.items():
        if packaged.sha256 == digest:
            return name
    for name in names():
        if _read(path(name))[0]['digest'] == digest:
            return name
    for name in hub_weights.REPOSITORIES:
        file = hub_weights.cached(name)
        if file and files.sha256(file) == digest:
            return name
    raise WeightsError('the classifier was saved with weights of a file or of another machine; set --weights too')


def digest(description: dict, arrays: dict[str, np.ndarray]) -> str:
    """Return the SHA-256 of metadata and arrays, except for the digest itself."""
    metadata = {name: value for name, value in description.items() if name != 'digest'}
    found = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(f'{name} {arrays[name].dtype} {arrays[name].shape}\n'.encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def _read(file):
    """Read metadata and variables of a file."""
    arrays, description = files.read_arrays(file)
    if description['format'] != FORMAT or description['digest'] != digest(description, arrays):
        raise ValueError('digest mismatch')
    if not isinstance(description.get('results', {}).get('config', {}), dict):
        raise ValueError('expected results with named settings')
    for name, array in arrays.items():
        if name.split('/')[0] not in PARTS or array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f'expected finite float32 arrays in {", ".join(PARTS)}, got {name[:80]} of {array.dtype}')
    return description, unflatten_dict(arrays, sep='/')


def _checked(description: dict, variables: dict, encoder: nn.Module) -> Pretrained:
    """Build a Pretrained from the contents of a file, if its arrays fit the encoders."""
    item_shape = tuple(description['item_shape'])
    if tuple(getattr(encoder, 'item_shape', None) or item_shape) != item_shape:
        raise ValueError(f'expected items of shape {encoder.item_shape}, got {item_shape}')
    encoder = encoders.bind_item_shape(encoder, item_shape)
    variables = {part: variables.get(part, {}) for part in PARTS}
    dimensions, attribute_encoder = encoders.dimensions(encoder, item_shape), None
    expected = dict(zip(PARTS, encoders.shapes(encoder, item_shape), strict=False))
    if 'attribute_encoder' in description:
        attribute_encoder = _encoder(description['attribute_encoder'])
        expected['classifier'], _ = encoders.shapes(attribute_encoder)
        if encoders.dimensions(attribute_encoder, attribute_encoder.item_shape) != dimensions:
            raise ValueError(f'expected attribute embeddings of {dimensions} dimensions')
    check_fit({part: variables[part] for part in expected}, expected)
    return Pretrained(encoder, description=description, attribute_encoder=attribute_encoder, **variables)


def _settings(encoder):
    settings = {name: getattr(encoder, name) for name in getattr(encoder, 'settings', ())}
    return {'kind': type(encoder).__name__, **settings}


def _encoder(described):
    """Create an encoder from its saved settings; sequences become tuples, so that it is hashable."""
    kind = ENCODERS.get(described['kind'])
    if kind is None:
        raise ValueError(f'unknown encoder {described["kind"]}')
    settings = {name: described[name] for name in kind.settings if name in described}
    encoder = kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()})
    encoders.check_settings(encoder)
    return encoder
