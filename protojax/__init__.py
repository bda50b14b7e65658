"""Prototypical networks for few-shot learning (Snell, Swersky, Zemel 2017) as pure JAX functions.

The paper is in `distances`, `prototypes` and `classifiers`; data on the device are in `episodes`; networks in
`encoders`; the learning problems in `tasks`; the update of the parameters in `training`; several devices in `devices`;
and scores in `evaluation`.
"""

from protojax.class_files import load_classes, save_classes
from protojax.classifiers import (
    accuracies,
    by_gaussians,
    by_matching,
    by_prototypes,
    gaussian_classifier,
    losses,
    matching,
    prototypical,
)
from protojax.datasets import Data, Split
from protojax.devices import parallelize, place, usable_devices
from protojax.distances import (
    Learned,
    bregman,
    cosine,
    euclidean,
    learned_mahalanobis,
    mahalanobis,
    pairwise,
    squared_euclidean,
)
from protojax.encoders import Conv4, EfficientNetLite, LinearMap, ResNet12, encode, initialize
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.evaluation import Score, embedder, episode_scorer, zero_shot_scorer
from protojax.images import load_images
from protojax.known_classes import (
    KnownClasses,
    Prediction,
    calibrated_known_classes,
    known_classes,
    known_classes_as_linear_model,
    merge_known_classes,
    predict_known_classes,
    without_known_class,
    zero_shot_known_classes,
)
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained
from protojax.prototypes import linear_classifier
from protojax.prototypes import prototypes as class_prototypes  # under its own name the module is found
from protojax.tasks import Task, few_shot_task, zero_shot_task
from protojax.training import TrainState, create_state, train_step, train_steps

__version__ = '0.2.0'

__all__ = [
    'Conv4',
    'Data',
    'Dataset',
    'EfficientNetLite',
    'Episode',
    'KnownClasses',
    'Learned',
    'LinearMap',
    'Prediction',
    'Pretrained',
    'ResNet12',
    'Score',
    'Split',
    'Task',
    'TrainState',
    'accuracies',
    'bregman',
    'by_gaussians',
    'by_matching',
    'by_prototypes',
    'calibrated_known_classes',
    'class_prototypes',
    'cosine',
    'create_state',
    'embedder',
    'encode',
    'episode_scorer',
    'euclidean',
    'few_shot_task',
    'gaussian_classifier',
    'initialize',
    'known_classes',
    'known_classes_as_linear_model',
    'learned_mahalanobis',
    'linear_classifier',
    'load_classes',
    'load_images',
    'load_pretrained',
    'losses',
    'mahalanobis',
    'matching',
    'merge_known_classes',
    'pairwise',
    'parallelize',
    'place',
    'predict_known_classes',
    'prototypical',
    'sample_episode',
    'save_classes',
    'save_pretrained',
    'squared_euclidean',
    'train_step',
    'train_steps',
    'usable_devices',
    'without_known_class',
    'zero_shot_known_classes',
    'zero_shot_scorer',
    'zero_shot_task',
]
