"""CUB-200-2011: zero-shot classification of birds from attributes of their classes (section 3.3 of the paper).

    python -m experiments.cub

maps image features and attributes to one space by a linear map each. CUB has no features, so give yours once with
--source.
"""

import dataclasses
from typing import ClassVar

from experiments.reporting.paper import NOT_TOLD
from experiments.running.building import build_zero_shot_task
from experiments.running.config import TRAINING, ZeroShotConfig, option
from experiments.running.driver import Experiment
from experiments.running.startup import launch
from protojax.datasets.cub import load_cub
from protojax.datasets.sources.cub_lists import divide_by_cub_lists

# What --model changes besides: chosen in short trials on the validation classes, of which there are no records.
MODELS = {
    'ale': {'optimizer': 'sgd', 'query': 1, 'learning_rate': 0.3, 'weight_decay': 0.0, 'episodes': 30_000},
    'sje': {'optimizer': 'sgd', 'query': 1, 'learning_rate': 0.3, 'weight_decay': 0.0, 'episodes': 30_000},
    'ds-sje': {'episodes': 1000},
    'da-sje': {'episodes': 1000},
    'clustering': {'learning_rate': 1e-3, 'episodes': 1000},
}


@dataclasses.dataclass(frozen=True)
class CubConfig(ZeroShotConfig):
    variants: ClassVar[dict] = MODELS

    features: str = option(
        '',
        'Network that the image features come from, for results.json; figures on GoogLeNet features are compared with '
        "the paper's.",
        identity=False,
    )
    halve_every: int = option(
        0,
        'Halve the learning rate every so many episodes; 0: never, as in the paper.',
        group=TRAINING,
        minimum=0,
    )


# A few hundred episodes are enough to learn the training classes by heart, so the validation loss is looked at often.
RECIPE = CubConfig(way=50, query=10, learning_rate=1e-4, weight_decay=1e-5, validate_every=20, patience=25)


def _cub_details(config, data):
    """What of the inputs decides how figures compare with others."""
    train, validation, test = (list(split.names) for split in (data.train, data.validation, data.test))
    by_rule = divide_by_cub_lists(train + validation, None, test)['validation'] == sorted(validation)
    crops, dimensions = data.train.items.shape[2:]
    return {
        'features': config.features or NOT_TOLD,
        'feature_dimensions': dimensions,
        'crops': crops,
        'classes': [len(train), len(validation), len(test)],
        'validation_classes': 'every third class in the order of names' if by_rule else 'by the lists of the source',
    }


EXPERIMENT = Experiment(
    name='cub',
    recipe=RECIPE,
    load=lambda config: load_cub(data=config.data, source=config.source, data_dir=config.data_dir),
    build=build_zero_shot_task,
    details=_cub_details,
    stand_in_episodes=2000,
)

if __name__ == '__main__':
    launch(EXPERIMENT)
