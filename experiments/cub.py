"""CUB-200-2011: zero-shot classification of birds from attributes of their classes (section 3.3 of the paper).

    python -m experiments.cub

maps image features and attributes to one space by a linear map each. CUB has no features, so give yours once with
--source.
"""

from experiments.running.building import build_zero_shot_task
from experiments.running.config import ZeroShotConfig
from experiments.running.startup import Experiment, launch
from protojax.datasets import cub

# A few hundred episodes are enough to learn the training classes by heart, so the validation loss is looked at often.
RECIPE = ZeroShotConfig(
    way=50, query=10, learning_rate=1e-4, halve_every=0, weight_decay=1e-5, validate_every=20, patience=25
)


def load(config):
    return cub.load(data=config.data, source=config.source or None, data_dir=config.data_dir or None)


EXPERIMENT = Experiment(
    name='cub',
    recipe=RECIPE,
    load=load,
    build=build_zero_shot_task,
    stand_in_episodes=2000,
)

if __name__ == '__main__':
    launch(EXPERIMENT)
