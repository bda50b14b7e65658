"""Prototypical networks (Snell et al. 2017), the paper's method: python -m experiments.omniglot"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.methods import encoders, matching
from experiments.methods.options import DISTANCES, Config, ConfigError, Method, option
from protojax import Learner, Parametric, Splits, classifiers


class Options(matching.Options):
    """Prototypical networks"""

    distance: str = option('euclidean', 'Distance; diagonal: a variance per class.', choices=(*DISTANCES, 'diagonal'))
    prototypes_per_class: int = option(1, 'Prototypes per class, by k-means. Paper: 1.', minimum=1)
    unlabeled: int = option(0, 'Unlabelled examples per class, for soft k-means. Paper: 0.', minimum=0)


def build(config: Config, data: Splits, encoder: nn.Module) -> Learner:
    options, shot = config.method, config.episodes.shot
    if options.prototypes_per_class > shot:
        raise ConfigError(f'--prototypes_per_class={options.prototypes_per_class}: expected at most --shot={shot}')
    temperature = matching.temperature(config, encoder)
    if options.distance == 'diagonal':
        classify = classifiers.by_gaussians(temperature=temperature)
    else:
        scaling = {'temperature': temperature, 'per_class': options.prototypes_per_class}
        classify = classifiers.by_distance(classifiers.prototypical, DISTANCES[options.distance], **scaling)
    return matching.learner(config, data, encoder, refined(classify) if options.unlabeled else classify)


def refined(classify: Parametric) -> Parametric:
    """Move the prototypes of each episode towards its unlabelled examples, weighted by their probabilities."""

    def apply(params, episode):
        soft = jax.nn.softmax(classify.apply(params, episode._replace(query=episode.unlabeled)))  # [U, way]
        sums = jax.ops.segment_sum(episode.support, episode.support_labels, episode.way) + soft.T @ episode.unlabeled
        counts = classifiers.counts(episode.support_labels, way=episode.way) + soft.sum(0)
        moved = episode._replace(support=sums / counts[:, None], support_labels=jnp.arange(episode.way))
        return classify.apply(params, moved)

    return Parametric(classify.init, apply)


METHOD = Method(build, Options, encoders=encoders.CONVOLUTIONAL)
