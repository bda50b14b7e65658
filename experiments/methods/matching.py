"""Matching networks (Vinyals et al. 2016): attention over single support examples.

python -m experiments.omniglot --model=matching --distance=cosine
"""

import flax.linen as nn

from experiments.methods import context, decoupled, encoders
from experiments.methods.options import DISTANCES, Augmented, Config, ConfigError, Method, option
from protojax import Learner, Parametric, Splits, classifiers, few_shot_learner


class Options(Augmented):
    """Matching networks"""

    distance: str = option('euclidean', 'Distance of embeddings; euclidean is squared.', choices=tuple(DISTANCES))
    temperature: float = option(1.0, 'Divide all distances by this. Paper: 1 (not specified for cosine).', above=0)
    context: str = option('none', 'fce: full context embeddings. Paper: none.', choices=('none', 'fce'))
    embedding: str = option('shared', 'Encoders of support and query. Paper: shared.', choices=('shared', 'separate'))
    pretrain: int = option(0, 'First train the encoder to classify all classes, for N mini-batches.', minimum=0)

    def keeps_temperature(self, encoder: nn.Module) -> bool:
        """Return whether saved weights include the temperature, as a scale of the embeddings."""
        return self.distance == 'euclidean' and self.context == 'none' and hasattr(encoder, 'scale')

    def with_temperature(self, encoder: nn.Module) -> nn.Module:
        if self.temperature == 1 or not self.keeps_temperature(encoder):
            return encoder
        return encoder.clone(scale=encoder.scale * self.temperature**-0.5)


def build(config: Config, data: Splits, encoder: nn.Module) -> Learner:
    distance, divisor = DISTANCES[config.method.distance], temperature(config, encoder)
    classify = classifiers.by_distance(classifiers.matching, distance, temperature=divisor)
    return learner(config, data, encoder, classify)


def temperature(config: Config, encoder: nn.Module) -> float:
    """Return the divisor of the distances; 1 for --weights whose encoder already includes it."""
    included = config.run.weights and config.method.keeps_temperature(encoder)
    return 1.0 if included else config.method.temperature


def learner(config: Config, data: Splits, encoder: nn.Module, classify: Parametric) -> Learner:
    """Build the learner of a classifier, with the context and the encoders that the options select."""
    options = config.method
    if options.init and (options.pretrain or options.temperature != 1):
        raise ConfigError('--init takes encoder and temperature from the weights; set --pretrain=0 --temperature=1')
    if options.context == 'fce':
        classify = context.in_context(classify)
    if options.embedding == 'separate':
        for name in ('init', 'pretrain', 'unlabeled', 'weights'):
            if config.flat.get(name):
                raise ConfigError(f'--{name} is for one encoder; remove it or --embedding=separate')
        encoder, classify = decoupled.encoders(encoder), decoupled.classifier(classify)
    sizes = {**config.episodes.sizes, 'unlabeled': options.unlabeled}
    return few_shot_learner(encoder, data.item_shape, **sizes, classify=classify, augmentations=options.augmentations)


METHOD = Method(build, Options, encoders=encoders.CONVOLUTIONAL)
