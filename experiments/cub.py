"""CUB-200-2011: zero-shot classification of birds from class attributes (section 3.3 of the paper).

    python -m experiments.cub --source=FOLDER

projects image features and attributes linearly to one space. CUB does not contain features; --source is needed once.
"""

from typing import Any

from experiments import methods
from experiments.methods.options import option
from experiments.paper.tables import UNNAMED
from experiments.running import Experiment, launch
from experiments.running.config import Config, DataOptions, ZeroShot
from protojax.datasets import Splits, cub

# Training overfits after a few hundred episodes, so the validation loss is evaluated often.
PAPER = {
    'way': 50,
    'query': 10,
    'learning_rate': 1e-4,
    'weight_decay': 1e-5,
    'halve_every': 0,
    'validate_every': 20,
    'patience': 25,
}
# Better features for the same linear maps (not in the paper), chosen on the validation classes (docs/results.md).
MODERN = {'root': True, 'ridge': 10.0}


class Options(DataOptions):
    """CUB"""

    features: str = option(
        '', 'Name of the network behind the features, only recorded. Paper: GoogLeNet.', identity=False
    )


def load(config: Config) -> Splits:
    return cub.load(data=config.data.data, source=config.data.source, data_dir=config.data.data_dir)


def details(config: Config, data: Splits) -> dict[str, Any]:
    """Return the properties of features and splits that decide whether results are comparable."""
    train, validation, test = (list(split.names) for split in (data.train, data.validation, data.test))
    by_rule = cub.divide(train + validation, None, test)['validation'] == sorted(validation)
    crops, dimensions = data.item_shape
    return {
        'features': config.data.features or UNNAMED,
        'feature_dimensions': dimensions,
        'crops': crops,
        'classes': [len(train), len(validation), len(test)],
        'validation_classes': 'every third class in the order of names' if by_rule else 'by the lists of the source',
    }


EXPERIMENT = Experiment(
    'cub',
    methods.ZERO_SHOT,
    load,
    Options,
    defaults=PAPER,
    recipes={'modern': MODERN},
    episodes=ZeroShot,
    details=details,
    synthetic_episodes=2000,
)

if __name__ == '__main__':
    launch(EXPERIMENT)
