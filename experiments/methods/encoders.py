"""The values of --encoder with their options, and the encoders of trained weights (--init, --weights).

The options of an encoder are a `Part` with a function `build(data)` that returns the Linen module.
"""

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from experiments.methods.options import ConfigError, Part, option
from protojax import Dataset, Pretrained, Splits, encoders, load_pretrained
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS

SMALLEST = 16  # pixels: each of four blocks halves the image
AS_TRAINED = ('model', 'distance', 'context', 'embedding', 'prototypes_per_class')  # --weights need the same values


class Machine(Part):
    """Encoder"""

    precision: str = option('float32', 'Type of activations.', choices=('float32', 'bfloat16'))
    kernels: str = option('auto', 'C++ kernels on CPU, if a compiler is found.', choices=('auto', 'off'))

    def on_this_machine(self, encoder: nn.Module) -> nn.Module:
        """Set the type of the activations and the use of kernels, if the encoder has these fields."""
        if self.precision != 'float32' and not hasattr(encoder, 'dtype'):
            raise ConfigError(f'--precision={self.precision}: {type(encoder).__name__} only supports float32')
        wanted = {'dtype': jnp.dtype(self.precision), 'kernels': self.kernels == 'auto'}
        return encoder.clone(**{name: value for name, value in wanted.items() if hasattr(encoder, name)})


class Images(Machine):
    """Encoder"""

    pixels: str = option('unit', 'Scale pixels to 0..1, or standardise each channel.', choices=('unit', 'standardized'))

    def network(self) -> nn.Module:
        """Return the network, for items of any shape."""
        raise NotImplementedError

    def build(self, data: Splits) -> nn.Module:
        """Return the network for the images of a data set."""
        height, width = data.item_shape[:2]
        if min(height, width) < SMALLEST:
            raise ConfigError(f'expected images of at least {SMALLEST}x{SMALLEST} pixels, got {height}x{width}')
        encoder = self.network().clone(item_shape=data.item_shape)
        if self.pixels == 'standardized':
            mean, std = channel_statistics(data.train)
            std[std == 0] = 1  # a constant channel
            encoder = encoder.clone(mean=tuple(map(float, mean)), std=tuple(map(float, std)))
        return self.on_this_machine(encoder)


class Conv4(Images):
    """Encoder"""

    kernel_init: str = option(encoders.Conv4.kernel_init, 'Initialisation of kernels.', choices=tuple(KERNEL_INITS))
    scale_init: str = option(encoders.Conv4.scale_init, 'Initialisation of scales.', choices=tuple(SCALE_INITS))
    last_scale: float = option(
        encoders.Conv4.last_scale, 'Factor of the initial batch-norm scales of the last block.', above=0
    )

    def network(self) -> nn.Module:
        return encoders.Conv4(kernel_init=self.kernel_init, scale_init=self.scale_init, last_scale=self.last_scale)


class AtTest(Images):
    """Encoder"""

    two_sided: bool = option(False, 'At test time, average embeddings of image and mirror image. Paper: no.')
    sphere: bool = option(False, 'At test time, centre and L2-normalise embeddings (CL2N). Paper: no.')

    def build(self, data: Splits) -> nn.Module:
        return super().build(data).clone(two_sided=self.two_sided, sphere=self.sphere)


class Conv4AtTest(AtTest, Conv4):
    """Encoder"""


class ResNet12(AtTest):
    """Encoder"""

    def network(self) -> nn.Module:
        return encoders.ResNet12()


class WideResNet12(AtTest):
    """Encoder"""

    def network(self) -> nn.Module:
        return encoders.ResNet12(widths=(64, 160, 320, 640))


CONVOLUTIONAL = {'conv4': Conv4AtTest, 'resnet12': ResNet12, 'resnet12-wide': WideResNet12}


def channel_statistics(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Compute mean and standard deviation of each channel over all images, in units of x / 255: [C], [C]."""
    channels = dataset.items.shape[-1]
    histogram = np.zeros((channels, 256), np.int64)  # exact, and class by class: no copy of the images as floats
    for items, count in zip(dataset.items, dataset.counts, strict=True):
        for channel in range(channels):
            histogram[channel] += np.bincount(items[:count, ..., channel].reshape(-1), minlength=256)
    values, weights = np.arange(256) / 255, histogram / histogram.sum(1, keepdims=True)
    mean = weights @ values
    return mean.astype(np.float32), np.sqrt(weights @ values**2 - mean**2).astype(np.float32)


def trained_with(weights: Pretrained) -> dict[str, Any]:
    """Return the configuration that weights were trained with, as far as their file contains it."""
    return weights.description.get('results', {}).get('config', {})


def to_evaluate(name: str, config: dict[str, Any], data: Splits) -> Pretrained:
    """Load the weights of --weights and check that they match the data and the flat config."""
    weights = load_pretrained(name)
    got, expected = (_spec(shape) for shape in (weights.description['item_shape'], data.item_shape))
    if got != expected:
        raise ConfigError(f'--weights={name}: expected weights for {expected} items, got {got}; choose other weights')
    trained = trained_with(weights)
    for option_name in AS_TRAINED:
        if option_name in config and trained.get(option_name, config[option_name]) != config[option_name]:
            given = f'--{option_name}={trained[option_name]}'
            raise ConfigError(f'--weights={name} were trained with {given}; set this flag')
    return weights


def to_start_from(name: str, data: Splits) -> Pretrained:
    """Load the weights of --init, with their encoder for the images of a data set."""
    weights = load_pretrained(name)
    squared = trained_with(weights).get('distance', 'euclidean') == 'euclidean'
    if not squared or jax.tree.leaves(weights.classifier) or weights.attribute_encoder is not None:
        raise ConfigError(f'--init={name} were not trained with squared Euclidean distances only; choose other weights')
    got, expected = (_spec(shape) for shape in (weights.encoder.item_shape, data.item_shape))
    encoder = weights.encoder.clone(item_shape=data.item_shape)
    try:
        embed = partial(encoders.encode, encoder, weights.params, weights.batch_stats)
        fits = jax.eval_shape(embed, jax.ShapeDtypeStruct((1, *data.item_shape), jnp.uint8))[0].shape[1] > 0
    except Exception:  # networks fail in many ways on other channels or on images that are too small
        fits = False
    if not fits or (getattr(encoder, 'sphere', False) and got != expected):  # its mean depends on the image size
        raise ConfigError(f'--init={name}: expected weights for {expected} images, got {got}; choose other weights')
    return dataclasses.replace(weights, encoder=encoder)


def _spec(shape):
    return 'x'.join(map(str, shape))
