"""Omniglot: few-shot classification of handwritten characters (section 3.1 of the paper).

    python -m experiments.omniglot --way=60 --shot=1

trains the paper's 1-shot model and prints its test accuracies; --shot=5 trains the 5-shot model.
"""

from experiments import methods
from experiments.methods.options import option
from experiments.running import Experiment, launch
from experiments.running.config import Config, DataOptions
from protojax import Splits
from protojax.datasets import omniglot

PAPER = {'way': 60, 'shot': 1, 'query': 5, 'validation_way': 20}
# Same encoder, improved training (not in the paper), tuned on the validation alphabets (docs/results.md).
MODERN = {
    'episodes': 12_000,
    'learning_rate': 1e-2,
    'schedule': 'cosine',
    'kernel_init': 'he_normal',  # no measurable difference at this learning rate
    'temperature': 64.0,
    'mirror': True,
    'shift': 2,
}
# The official code as it runs today, for settings that the paper does not specify. It rotates drawings before resizing
# them, which makes no difference, and draws new validation episodes each time; here a run reuses its episodes, so that
# losses are comparable.
OFFICIAL = {
    'resize': 'nearest',
    'scale_init': 'ones',  # PyTorch since 1.2
    'validation_way': 5,
    'validation_episodes': 100,
    'patience': 200,
    'retrain_length': 'search',
}


class Options(DataOptions):
    """Omniglot"""

    resize: str = option('antialias', 'Resizing to 28x28. Official code: nearest.', choices=tuple(omniglot.FILTERS))


def load(config: Config) -> Splits:
    return omniglot.load(**vars(config.data))


EXPERIMENT = Experiment(
    'omniglot', methods.FEW_SHOT, load, Options, defaults=PAPER, recipes={'official': OFFICIAL, 'modern': MODERN}
)

if __name__ == '__main__':
    launch(EXPERIMENT)
