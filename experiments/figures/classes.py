"""Embedded classes for figures: from a data set, from custom images, or birds with their attributes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drawing.style import DrawnClasses
from experiments.own_images import loading
from experiments.running import driver, progress, workdir
from experiments.running.config import ConfigError, Experiment
from protojax import Dataset, load_images, load_pretrained
from protojax.datasets import miniimagenet, omniglot

MAX_CLASSES, MIN_CLASSES, MIN_ITEMS = 30, 3, 6


def images(config: Any) -> tuple[DrawnClasses, str]:
    """Embed the images that a FiguresConfig names -> classes, title."""
    name = config.weights or 'omniglot-60way-1shot'
    if config.folder and not config.weights:
        name = loading.choose_weights(loading.find_classes(config.folder, 'folder').paths, MIN_ITEMS)
    weights = loading.load_weights(name)
    with progress.phase('loading the images'):
        if config.folder:
            items, _, labels, names, _ = load_images(config.folder, weights)
            items, labels, title = items[labels >= 0], labels[labels >= 0], Path(config.folder).resolve().name
        else:
            items, labels, names, title = _test_images(config)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.description['item_shape'], items.shape[1:]))
    if theirs != ours:
        raise ConfigError(f'--weights={name} expects {theirs} images, got {ours}; choose other weights')
    if len(names) < MIN_CLASSES or np.bincount(labels, minlength=len(names)).min() < MIN_ITEMS:
        raise ConfigError(f'expected at least {MIN_CLASSES} classes with {MIN_ITEMS} images each in {title}')
    with progress.phase(f'embedding {len(items)} images'):
        points = np.asarray(weights.embed(items))
    return DrawnClasses(points, labels, names, items), f'{title}, embedded by {Path(name).stem}'


def _test_images(config) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], str]:
    """Load the test classes whose names start with --classes -> items, labels, names, title."""
    common = {'data': config.data, 'source': config.source, 'data_dir': config.data_dir}
    if config.dataset == 'miniimagenet':
        data, prefix = miniimagenet.load(**common), config.classes
    else:
        data = omniglot.load(**common, rotations=False)
        # Synthetic data have other alphabets.
        prefix = config.classes or (data.test.names[0].split('/')[0] if data.synthetic else 'Tengwar')
    split = data.test or data.validation
    chosen = [k for k, name in enumerate(split.names) if name.startswith(prefix)][:MAX_CLASSES]
    if not chosen:
        known = ', '.join(dict.fromkeys(name.split('/')[0] for name in split.names))
        raise ConfigError(f'no test class starts with --classes={prefix}; choose one of {known}')
    items, labels, names = _items(split, chosen)
    return items, labels, names, f'{data.title}: {prefix or "test classes"}'


def _items(split: Dataset, chosen: Sequence[int]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return all items of some classes with their labels, and the names of the classes."""
    items = np.concatenate([split.items[k, : split.counts[k]] for k in chosen])
    return items, np.repeat(np.arange(len(chosen)), split.counts[list(chosen)]), tuple(split.names[k] for k in chosen)


def birds(config: Any, experiment: Experiment) -> tuple[DrawnClasses, np.ndarray, str]:
    """Embed the test classes of CUB and their attributes -> classes, prototypes [classes, D], title.

    Without --weights, use the run of experiments.cub on the same data, and train it first if necessary.
    """
    run = experiment.config(data=config.data, source=config.source, data_dir=config.data_dir, pictures='off')
    if config.weights:
        load_pretrained(config.weights)  # fail fast: loading the data can take minutes
    with progress.phase('loading the data'):
        data = experiment.load(run)
    file = config.weights or f'{workdir.default_path(run, experiment, data)}/weights.safetensors'
    if not config.weights and not Path(file).exists():
        driver.run(run, experiment)
    weights, split = load_pretrained(file), data.test
    if weights.attribute_encoder is None:
        raise ConfigError(f'--weights={file} has no attribute encoder; use the weights.safetensors of a run on CUB')
    prototypes = np.asarray(weights.embed_attributes(split.attributes))
    items, labels, names = _items(split, range(len(split.names)))
    return DrawnClasses(np.asarray(weights.embed(items)), labels, names), prototypes, data.title
