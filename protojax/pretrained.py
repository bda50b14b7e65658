"""Trained encoders in files that are safe to load from strangers: plain arrays and a JSON description, never a pickle.

A file is a NumPy archive with one array per parameter and statistic, named by its path, and `description`: settings of
the encoder, shape of its inputs, the config that trained it, the accuracies that it reached, and a digest. Squared
distances of the embeddings need no temperature: the weights include the one that divided them in training.
"""

import hashlib
import io
import json
import os
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from protojax.encoders import Conv4, initialize
from protojax.errors import WeightsError, first_line

FORMAT = 'protojax weights 1'
LARGEST = 64 * 2**20  # bytes of all arrays: no encoder of this package comes near it
SETTINGS = ('filters', 'mean', 'std')  # of the encoder, as far as they change what it computes


class Pretrained(NamedTuple):
    """A trained encoder: `protojax.encode(encoder, params, batch_stats, images)`."""

    encoder: Conv4
    params: Any
    batch_stats: Any
    description: dict


def load_pretrained(name):
    """The weights that come with protojax under a name, or those of a file -> Pretrained."""
    path = Path(name) if os.sep in str(name) or str(name).endswith('.npz') else _shipped() / f'{name}.npz'
    if not path.is_file():
        known = ', '.join(sorted(file.stem for file in _shipped().glob('*.npz'))) or 'none yet'
        raise WeightsError(f'there are no weights {name}; give a file.npz or one of: {known}')
    try:
        arrays = _read(path)
        if 'description' not in arrays:
            raise ValueError('it does not describe any')
        description = json.loads(bytes(arrays.pop('description')).decode())
        if description['format'] != FORMAT or description['digest'] != _digest(arrays):
            raise ValueError('its contents do not match their description')
        encoder = Conv4(**{setting: description['encoder'][setting] for setting in SETTINGS})
        variables = jax.eval_shape(lambda key: initialize(encoder, key, description['item_shape']), jax.random.key(0))
        params, batch_stats = jax.tree_util.tree_map_with_path(lambda p, leaf: _fitting(arrays, p, leaf), variables)
    except Exception as error:  # damage takes many forms
        reason = first_line(error)
        raise WeightsError(f'{path} holds no weights that can be used ({reason}); get the file again') from error
    return Pretrained(encoder, params, batch_stats, description)


def save_pretrained(path, pretrained, item_shape):
    """Write an encoder's weights and description to a file.npz."""
    variables = jax.device_get((pretrained.params, pretrained.batch_stats))
    arrays = {jax.tree_util.keystr(p): np.asarray(leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(variables)}
    description = {
        **pretrained.description,
        'format': FORMAT,
        'encoder': {setting: getattr(pretrained.encoder, setting) for setting in SETTINGS},
        'item_shape': list(item_shape),
        'digest': _digest(arrays),
    }
    encoded = np.frombuffer(json.dumps(description, indent=1).encode(), np.uint8)
    temporary = Path(path).with_suffix('.tmp')
    with open(temporary, 'wb') as file:
        np.savez(file, description=encoded, **arrays)
    os.replace(temporary, path)  # a file is there whole or not at all


def _shipped():
    return Path(str(resources.files('protojax'))) / 'weights'


def _read(path):
    """All arrays of an archive. Memory is taken for what the file holds, never for what it claims."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError('it is compressed')
        if sum(entry.file_size for entry in entries) > LARGEST:
            raise ValueError('it is too large')
        return {entry.filename.removesuffix('.npy'): _array(archive.read(entry)) for entry in entries}


def _array(content):
    """The array of an .npy file, in the memory of its bytes, of which no object can be made."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError('its arrays are of an unknown version')
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape, order='F' if fortran_order else 'C')


def _fitting(arrays, path, leaf):
    name = jax.tree_util.keystr(path)
    if name not in arrays:
        raise ValueError(f'it has no {name}')
    array = arrays[name]
    if array.shape != leaf.shape or array.dtype != leaf.dtype:
        raise ValueError(f'{name} is {array.dtype}{array.shape}, not {leaf.dtype}{leaf.shape}')
    if not np.isfinite(array).all():
        raise ValueError(f'{name} has values that are no finite numbers')
    return array


def _digest(arrays):
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f'{name} {arrays[name].dtype} {arrays[name].shape}\n'.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
