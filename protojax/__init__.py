"""Prototypical networks for few-shot learning (Snell, Swersky, Zemel 2017) as pure JAX functions.

Start with `distances` and `classifiers`, the paper's model. `episodes` has data sets and episodes on the device,
`encoders` the networks, `learners` the learning problems, `training` the updates, `devices` the use of several devices,
and `evaluation` the scores.
"""

from protojax.classifiers import linear_classifier, matching, prototypes, prototypical
from protojax.datasets import Splits
from protojax.devices import parallelize, place, usable_devices
from protojax.distances import (
    Parametric,
    bregman,
    cosine,
    euclidean,
    learned_mahalanobis,
    mahalanobis,
    pairwise,
    squared_euclidean,
)
from protojax.encoders import Conv4, EfficientNetLite, LinearMap, ResNet12
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.evaluation import Score, embedder, episode_scorer
from protojax.few_shot_classifier import FewShotClassifier
from protojax.images import load_images
from protojax.learners import Learner, few_shot_learner, zero_shot_learner
from protojax.pretrained import Pretrained, load_pretrained, save_pretrained
from protojax.prototype_classifier import Prediction, PrototypeClassifier
from protojax.training import TrainState, create_state, train_step

__version__ = '0.2.0'
