"""Few-shot learning on your images: trains an encoder that distinguishes new classes, and tests it on unseen ones.

    python -m experiments.folder --source=DIR --way=5 --shot=1 --query=5 --episodes=1000
    python -m experiments.folder --source=tfds:oxford_flowers102 --split=split.txt

DIR contains one subfolder of images per class. tfds:NAME is an image classification set of TFDS, which is downloaded
unless it is prepared in --data_dir. Each class is in one of train, validation and test: as below the folders train/,
val/ and test/, as listed in the file --split, or at random. To classify images of the classes that you have examples
of, no training is needed: python -m experiments.classify. It also takes the encoder that is trained here
(--weights=runs/.../weights.safetensors).

Drawings are resized to 28x28 greyscale, other images to 84x84 in colour (--kind, --image_size).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import methods
from experiments.methods.options import ConfigError, option
from experiments.own_images import loading
from experiments.running import Experiment, launch
from experiments.running.config import Config, DataOptions
from protojax.datasets import Splits, folder
from protojax.images import image_form

ASKS = ('source', 'split', 'seed', 'data_dir', 'image_key', 'label_key')
MAX_WAY = 5  # classes per episode by default


class Options(DataOptions):
    """Images"""

    source: str = option('', 'Folder with one subfolder of images per class, or tfds:NAME.', identity=False)
    split: str = option(folder.SPLIT, 'Fractions of train, validation and test classes, or a file that lists them.')
    image_key: str = option('', 'Image feature of a TFDS set, if it has several.')
    label_key: str = option('', 'Class label of a TFDS set, if it has several.')
    kind: str = option('auto', 'Kind of the images.', choices=folder.KINDS)
    image_size: int = option(0, 'Pixels; 0 = as --init, or 28 for drawings, 84 for photos.', minimum=0)
    ink: str = loading.ink_option()


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults for the classes in --source: at most five per episode."""
    paper = {'shot': 1, 'query': 5, 'pixels': 'standardized'}
    if not given.get('source'):
        return paper
    seed = str(given.get('seed', 0))
    options = {name: given[name] for name in ASKS if name in given and name not in ('source', 'seed')}
    splits = folder.find(given['source'], seed=int(seed) if seed.isdigit() else 0, **options).splits
    ways = {split: min(MAX_WAY, len(classes)) for split, classes in splits.items()}
    return {**paper, 'way': ways['train'], 'validation_way': ways['validation'], 'test_way': (ways['test'],)}


def load(config: Config) -> Splits:
    options, weights = config.data, config.method.init or config.run.weights
    if not options.source:
        raise ConfigError('no images given; set --source to a folder with one subfolder per class')
    if options.data == 'synthetic':
        raise ConfigError('--data=synthetic is not available for your images; remove it')
    if weights and options.kind != 'auto':
        raise ConfigError('the weights determine the kind of images; remove --kind')
    if config.run.weights and options.image_size:
        raise ConfigError('--weights determines the image size; remove --image_size')
    size = options.image_size
    form = image_form(loading.load_weights(weights)) if weights else None
    if form and size:  # encoders of images accept any size
        form = form._replace(item_shape=(size, size, form.item_shape[2]))
    given = {name: value for name, value in vars(options).items() if name not in ('source', 'data')}
    return folder.load(options.source, **{**given, 'form': form, 'seed': config.run.seed})


EXPERIMENT = Experiment(
    'folder',
    methods.FEW_SHOT,
    load,
    Options,
    defaults=defaults,
    asks=ASKS,
    run_name=lambda config: Path(config.data.source.removeprefix(folder.TFDS)).expanduser().resolve().name,
)

if __name__ == '__main__':
    launch(EXPERIMENT)
