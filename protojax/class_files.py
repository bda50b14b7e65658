"""Known classes in files that are safe to load from strangers: safetensors, with the names in the header."""

import os
import pathlib

import numpy as np

from protojax.errors import WeightsError, first_line
from protojax.files import read_arrays, write_arrays
from protojax.known_classes import KnownClasses, checked_known_classes

FORMAT = 'protojax classes 1'
LARGEST = 1 << 30  # bytes of a file


def save_classes(path: str | os.PathLike, known: KnownClasses, *, encoder: str = '') -> None:
    """Write classes to one file.

    encoder: what tells the encoder of the embeddings from others, such as the digest of its weights.
    """
    arrays = {'sums': known.sums, 'counts': known.counts}
    arrays |= {name: np.float32(getattr(known, name)).reshape(1) for name in ('temperature', 'threshold')}
    write_arrays(path, arrays, {'format': FORMAT, 'names': list(known.names), 'encoder': encoder})


def load_classes(path: str | os.PathLike, *, encoder: str = '') -> KnownClasses:
    """The classes in a file, which must be of the given encoder if one is given."""
    path = pathlib.Path(path)
    try:
        arrays, description = read_arrays(path, largest=LARGEST)
        names, theirs = description['names'], description['encoder']
        texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not texts or not 0 < len(set(names)) == len(names):
            raise ValueError('its names are not one for each class')
        kinds = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
        expected = {'sums': ('float64', (len(names), arrays['sums'].shape[-1])), 'counts': ('int32', (len(names),))}
        expected |= {name: ('float32', (1,)) for name in ('temperature', 'threshold')}
        if description['format'] != FORMAT or kinds != expected:
            raise ValueError('its contents do not match their description')
        numbers = arrays['sums'], arrays['counts'], arrays['temperature'][0], arrays['threshold'][0]
        known = checked_known_classes(KnownClasses(tuple(names), *numbers))
    except Exception as error:  # damage takes many forms
        raise WeightsError(f'{path} holds no usable classes ({first_line(error)}); save them again') from error
    if encoder and theirs != encoder:
        raise WeightsError(f'the classes in {path} are of embeddings by other weights; load those weights')
    return known
