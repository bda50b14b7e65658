"""Classes whose embeddings a figure shows: of a data set, of one's own images, or of birds with their attributes."""

import dataclasses
from pathlib import Path

import jax
import numpy as np

from experiments.reporting.maps import Embedded
from experiments.running import driver
from experiments.running.config import ConfigError
from experiments.running.own_images import find_classes, load_weights, suiting_weights
from experiments.running.progress import phase
from protojax.datasets import miniimagenet, omniglot
from protojax.encoders import encode
from protojax.images import load_images
from protojax.pretrained import load_pretrained

ITEMS_AT_ONCE = 256
CLASSES_SHOWN = 30
LEAST_CLASSES, LEAST_ITEMS = 3, 6


def embedded_classes(config):
    """Classes of images as a FiguresConfig says, and what they are -> Embedded, title."""
    name = config.weights or 'omniglot-60way-1shot'
    if config.folder:
        found = find_classes(config.folder, 'folder')
        name = config.weights or suiting_weights(found.paths, LEAST_ITEMS)
        weights = load_weights(name)
        items, _, labels, names, _ = load_images(config.folder, weights)
        items, labels, title = items[labels >= 0], labels[labels >= 0], Path(config.folder).resolve().name
    else:
        weights = load_weights(name)
        items, labels, names, title = test_classes(config)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.description['item_shape'], items.shape[1:]))
    if theirs != ours:
        raise ConfigError(f'--weights={name} are of {theirs} items, but here they are {ours}; give others')
    if len(names) < LEAST_CLASSES or np.bincount(labels, minlength=len(names)).min() < LEAST_ITEMS:
        raise ConfigError(f'{title} has too few images; give {LEAST_CLASSES} classes with {LEAST_ITEMS} each, or more')
    embed = jax.jit(weights.embed)
    with phase(f'embedding {len(items)} images'):
        parts = [embed(items[start : start + ITEMS_AT_ONCE]) for start in range(0, len(items), ITEMS_AT_ONCE)]
    return Embedded(np.concatenate(parts), labels, names, items), f'{title}, embedded by {Path(name).stem}'


def test_classes(config):
    """The test classes of a data set whose names begin as --classes says -> items, labels, names, title."""
    common = {'data': config.data, 'source': config.source or None, 'data_dir': config.data_dir or None}
    if config.dataset == 'miniimagenet':
        data, beginning = miniimagenet.load(**common), config.classes
    else:
        data = omniglot.load(**common, rotations=False)
        # A stand-in has no Tengwar, but alphabets of its own.
        beginning = config.classes or (data.test.names[0].split('/')[0] if data.synthetic else 'Tengwar')
    split = data.test or data.validation
    chosen = [k for k, name in enumerate(split.names) if name.startswith(beginning)][:CLASSES_SHOWN]
    if not chosen:
        known = ', '.join(dict.fromkeys(name.split('/')[0] for name in split.names))
        raise ConfigError(f'--classes={beginning} is how no test class begins; choose one of {known}')
    items = [split.items[k, : split.counts[k]] for k in chosen]
    labels = np.repeat(np.arange(len(chosen)), split.counts[chosen])
    names = tuple(split.names[k] for k in chosen)
    return np.concatenate(items), labels, names, f'{data.title}: {beginning or "test classes"}'


def embedded_birds(config, experiment):
    """Test classes of CUB, their prototypes from attributes, and what they are -> Embedded, [classes, D], title.

    Without --weights they are those of the run that experiments.cub does with the same data, which is done where it has
    not been done yet.
    """
    places = {name: getattr(config, name) for name in ('data', 'source', 'data_dir', 'compilation_cache')}
    run = dataclasses.replace(experiment.recipe, **places, pictures='off')
    data = experiment.load(run)
    file = config.weights or f'{driver.default_workdir(run, experiment, data)}/weights.safetensors'
    if not config.weights and not Path(file).exists():
        driver.run(run, experiment)
    weights, split = load_pretrained(file), data.test
    if weights.attribute_encoder is None:
        raise ConfigError(f'--weights={file} are of no zero-shot model; give the weights.safetensors of a run on CUB')
    prototypes, _ = encode(weights.attribute_encoder, weights.classifier, {}, split.attributes)
    items = np.concatenate([own[:count] for own, count in zip(split.items, split.counts, strict=True)])
    labels = np.repeat(np.arange(len(split.names)), split.counts)
    return Embedded(np.asarray(weights.embed(items)), labels, split.names), np.asarray(prototypes), data.title
