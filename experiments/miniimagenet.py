"""miniImageNet: few-shot classification of colour images (section 3.2 of the paper).

    python -m experiments.miniimagenet --shot=1
    python -m experiments.miniimagenet --shot=5

train the paper's two models: 30-way for one shot, 20-way for five. The images may not be passed on, so give yours once
with --source.
"""

import dataclasses
from typing import ClassVar

from experiments.running.config import FewShotConfig, option
from experiments.running.startup import Experiment, launch
from protojax.datasets.miniimagenet import load_miniimagenet

# Beyond the paper, with the same encoder: what gained on the validation classes (experiments/RESULTS.md).
MODERN = {
    'shot': 5,  # better than one shot for both columns of the final table
    'pretrain': 12_000,
    'episodes': 1500,
    'schedule': 'cosine',
    'temperature': 64.0,
    'last_scale': 1.0,
    'flip': True,
    'shift': 8,
    'two_sided': True,
    'sphere': True,
}


@dataclasses.dataclass(frozen=True)
class MiniImageNetConfig(FewShotConfig):
    variants: ClassVar[dict] = {**FewShotConfig.variants, 'modern': MODERN}

    recipe: str = option(
        'paper',
        'Where the values of flags that are not given come from: the paper, or "modern", which goes beyond it.',
        choices=('paper', 'modern'),
    )
    way: int = option(
        0, "Classes per training episode (N_C); 0: the paper's, 30 for one shot and 20 for more.", minimum=0
    )

    def resolved(self):
        return dataclasses.replace(self, way=self.way or (30 if self.shot == 1 else 20))


# last_scale: in 1,600 dimensions squared distances would begin at several hundred, so that training would begin by
# drawing all embeddings together.
RECIPE = MiniImageNetConfig(
    shot=1, query=15, pixels='standardized', last_scale=0.125, retrain=False, test_way=(5,), test_episodes=600
)


EXPERIMENT = Experiment(
    name='miniimagenet',
    recipe=RECIPE,
    load=lambda config: load_miniimagenet(data=config.data, source=config.source, data_dir=config.data_dir),
    stand_in_episodes=100,
)

if __name__ == '__main__':
    launch(EXPERIMENT)
