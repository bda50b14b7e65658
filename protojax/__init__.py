"""Prototypical networks for few-shot learning (Snell, Swersky, Zemel 2017) as pure JAX functions.

The paper is in `distances`, `prototypes` and `classifiers`; data on the device in `episodes`; networks in `encoders`;
the learning problems in `tasks`; the update of the parameters in `training`; and scores in `evaluation`.
"""

from protojax.classifiers import accuracies, losses, matching, prototypical
from protojax.distances import bregman, cosine, mahalanobis, pairwise, squared_euclidean
from protojax.encoders import Conv4, LinearMap, encode, initialize
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.pretrained import load_pretrained
from protojax.prototypes import linear_classifier

__version__ = '0.1.0'

__all__ = [
    'Conv4',
    'Dataset',
    'Episode',
    'LinearMap',
    'accuracies',
    'bregman',
    'cosine',
    'encode',
    'initialize',
    'linear_classifier',
    'load_pretrained',
    'losses',
    'mahalanobis',
    'matching',
    'pairwise',
    'prototypical',
    'sample_episode',
    'squared_euclidean',
]
