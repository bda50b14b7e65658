"""Few-shot learning on your own images: any folder with a folder of images for each class.

    python -m experiments.folder --source=DIR --way=5 --shot=1 --query=5 --episodes=1000

DIR may have train/, val/ and test/ above the class folders; else the classes are divided as --split says. Drawings are
made 28x28 and grey, all else 84x84 and in colour (--kind, --image_size). The model that results classifies images of
new classes: python -m experiments.classify --weights=runs/.../weights.safetensors --support=...
"""

import dataclasses
from pathlib import Path

from experiments.running.config import EVALUATION, MODEL, STOPPING, ConfigError, FewShotConfig, option
from experiments.running.identity import config_identity, name_of_config
from experiments.running.own_images import ink_of_own_images, load_weights_for_own_images
from experiments.running.startup import Experiment, launch
from protojax.datasets.folder import KINDS, find_folder_splits, load_folder
from protojax.images import image_form


@dataclasses.dataclass(frozen=True)
class FolderConfig(FewShotConfig):
    way: int = option(0, 'Classes per training episode (N_C); 0: as many as there are, at most 5.', minimum=0)
    validation_way: int = option(
        0, 'Classes per validation episode; 0: as many as there are, at most 5.', group=STOPPING, minimum=0
    )
    test_way: tuple[int, ...] = option(
        (), 'Classes per test episode, one column each. Default: as many as there are, at most 5.', group=EVALUATION
    )
    split: str = option('0.64,0.16,0.2', 'Shares of the classes for train, validation and test, drawn by --seed.')
    kind: str = option(
        'auto', 'Drawings, or photos and other images in colour; "auto" finds out.', group=MODEL, choices=KINDS
    )
    image_size: int = option(
        0,
        'Side of the images in pixels; 0: as of --init, else 28 for drawings and 84 for others.',
        group=MODEL,
        minimum=0,
    )
    ink: str = ink_of_own_images(MODEL)
    init: str = option(
        '',
        'Weights to start from, with their encoder: a name that comes with protojax, "photos", or the '
        'weights.safetensors of a run. They need a low learning rate (photos: 1e-5). "photos" takes a tenth of a '
        'second of processor time for each image of an episode at --image_size=128; its own 224 have three times '
        'as many pixels.',
    )

    def resolved(self):
        """With the ways that are not given, and a workdir that is named after the folder."""
        if not self.source:  # an error, but for a recipe
            return self
        source = Path(self.source).expanduser().resolve()
        splits = find_folder_splits(source, _shares_of_folder(self), self.seed)
        classes = {split: min(MOST, len(own)) for split, own in splits.items()}
        named = dataclasses.replace(self, way=self.way or classes['train'])
        workdir = '' if self.weights else f'runs/{name_of_config(source.name, RECIPE, config_identity(named))}'
        return dataclasses.replace(
            named,
            validation_way=self.validation_way or classes['validation'],
            test_way=self.test_way or (classes['test'],),
            workdir=self.workdir or workdir,
        )


MOST = 5  # classes of an episode, unless told otherwise
RECIPE = FolderConfig(shot=1, query=5, pixels='standardized')


def _shares_of_folder(config):
    """Shares of the classes in train, validation and test."""
    try:
        return tuple(float(share) for share in config.split.split(','))
    except ValueError as error:
        raise ConfigError(f'--split={config.split} must be three shares with commas between') from error


def _load_for_folder(config):
    if not config.source:
        raise ConfigError('give the folder of your images with --source')
    weights = config.init or config.weights
    if weights and config.kind != 'auto':
        raise ConfigError('weights tell the kind of the images; leave out --kind')
    if config.weights and config.image_size:
        raise ConfigError('--weights tells the size of the images; leave out --image_size')
    if config.data == 'synthetic':
        raise ConfigError('--data=synthetic is not for own images; leave it out')
    side = config.image_size
    form = image_form(load_weights_for_own_images(weights)) if weights else None
    if form and side:  # encoders of images take them in all sizes
        form = form._replace(item_shape=(side, side, form.item_shape[2]))
    return load_folder(
        config.source,
        form=form,
        kind=config.kind,
        image_size=side,
        ink=config.ink,
        split=_shares_of_folder(config),
        seed=config.seed,
    )


EXPERIMENT = Experiment(name='folder', recipe=RECIPE, load=_load_for_folder)

if __name__ == '__main__':
    launch(EXPERIMENT)
