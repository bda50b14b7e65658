"""What the names that flags take stand for: encoders, distances and optimizers."""

from functools import partial

import optax

from protojax import distances
from protojax.encoders import Conv4, ResNet12

ENCODERS = {
    'conv4': lambda config: Conv4(
        kernel_init=config.kernel_init, scale_init=config.scale_init, last_scale=config.last_scale
    ),
    'resnet12': lambda config: ResNet12(),
    'resnet12-wide': lambda config: ResNet12(widths=(64, 160, 320, 640)),
}
DISTANCES = {
    'euclidean': distances.squared_euclidean,
    'unsquared': distances.euclidean,
    'cosine': distances.cosine,
    'mahalanobis': distances.learned_mahalanobis(),
}
OPTIMIZERS = {'adam': optax.adam, 'sgd': optax.sgd, 'momentum': partial(optax.sgd, momentum=0.9, nesterov=True)}
