"""Few-shot learning on your own images: any folder with a folder of images for each class.

    python -m experiments.folder --source=DIR --way=5 --shot=1 --query=5 --episodes=1000

DIR may have train/, val/ and test/ above the class folders; else the classes are divided as --split says. Drawings are
made 28x28 and grey, all else 84x84 and in colour (--kind, --image_size). The model that results classifies images of
new classes: python -m experiments.classify --weights=runs/.../weights.safetensors --support=...
"""

import contextlib
import dataclasses
from pathlib import Path

import jax.numpy as jnp

from experiments.running.building import augmentations, build_few_shot_task, check_few_shot_sizes, classifier
from experiments.running.config import (
    EVALUATION,
    MAIN,
    MODEL,
    STOPPING,
    ConfigError,
    FewShotConfig,
    identity,
    option,
    run_name,
)
from experiments.running.own_images import load_weights
from experiments.running.startup import Experiment, launch
from protojax.datasets import folder
from protojax.errors import DataError
from protojax.images import INKS, form_of
from protojax.tasks import few_shot_task


@dataclasses.dataclass(frozen=True)
class FolderConfig(FewShotConfig):
    way: int = option(
        0, 'Classes per training episode (N_C); 0: as many as there are, at most 5.', group=MAIN, minimum=0
    )
    validation_way: int = option(
        0, 'Classes per validation episode; 0: as many as there are, at most 5.', group=STOPPING, minimum=0
    )
    test_way: tuple = option(
        (), 'Classes per test episode, one column each. Default: as many as there are, at most 5.', group=EVALUATION
    )
    split: str = option(
        '0.64,0.16,0.2', 'Shares of the classes for train, validation and test, drawn by --seed.', group=MAIN
    )
    kind: str = option(
        'auto', 'Drawings, or photos and other images in colour; "auto" finds out.', group=MAIN, choices=folder.KINDS
    )
    image_size: int = option(0, 'Side of the images in pixels; 0: 28 for drawings, else 84.', group=MAIN, minimum=0)
    ink: str = option(
        'auto',
        'Drawings are dark on light, or light on dark; "auto" finds out for each.',
        group=MODEL,
        choices=INKS,
    )
    init: str = option(
        '',
        'Weights to start from, with their encoder: a name that comes with protojax, "photos", or the '
        'weights.safetensors of a run.',
        group=MAIN,
    )

    def resolved(self):
        """With the ways that are not given, and a workdir that is named after the folder."""
        if not self.source:  # an error, but for a recipe
            return self
        source = Path(self.source).expanduser().resolve()
        classes = {split: min(MOST, len(own)) for split, own in found(source, self).items()}
        named = dataclasses.replace(self, way=self.way or classes['train'])
        workdir = '' if self.weights else f'runs/{run_name(source.name, RECIPE, identity(named))}'
        return dataclasses.replace(
            named,
            validation_way=self.validation_way or classes['validation'],
            test_way=self.test_way or (classes['test'],),
            workdir=self.workdir or workdir,
        )


MOST = 5  # classes of an episode, unless told otherwise
RECIPE = FolderConfig(shot=1, query=5, pixels='standardized')


def found(source, config):
    """The files of each class of each split."""
    try:
        shares = tuple(float(share) for share in config.split.split(','))
    except ValueError as error:
        raise ConfigError(f'--split={config.split} must be three shares with commas between') from error
    with errors_as_flags():
        return folder.find_splits(source, shares, config.seed)


@contextlib.contextmanager
def errors_as_flags():
    """Errors of the library, whose arguments are flags here."""
    try:
        yield
    except DataError as error:
        named = any(str(error).startswith(f'{name}=') for name in ('source', 'split', 'kind'))
        raise ConfigError(f'--{error}' if named else f'--source: {error}') from error


def load(config):
    if not config.source:
        raise ConfigError('give the folder of your images with --source')
    if config.init and (config.image_size or config.kind != 'auto'):
        raise ConfigError('--init tells kind and size of the images; leave out --kind and --image_size')
    weights = config.init or config.weights
    with errors_as_flags():
        return folder.load(
            config.source,
            form=form_of(load_weights(weights)) if weights else None,
            kind=config.kind,
            image_size=config.image_size,
            ink=config.ink,
            shares=tuple(float(share) for share in config.split.split(',')),
            seed=config.seed,
        )


def build(config, data):
    """As of all experiments or, with --init, from trained parameters and their encoder -> Task."""
    if not config.init:
        return build_few_shot_task(config, data)
    check_few_shot_sizes(config, data)
    weights = load_weights(config.init)
    task = few_shot_task(
        weights.encoder.clone(dtype=jnp.dtype(config.precision)),
        data.train.items.shape[2:],
        way=config.way,
        shot=config.shot,
        query=config.query,
        classify=classifier(config),
        augmentations=augmentations(config),
    )

    def initialize(key):
        params, _ = task.initialize(key)
        return {**params, 'encoder': weights.params}, weights.batch_stats

    return task._replace(initialize=initialize)


EXPERIMENT = Experiment(name='folder', recipe=RECIPE, load=load, build=build)

if __name__ == '__main__':
    launch(EXPERIMENT)
