"""Classes whose embeddings a figure shows: of a data set, of one's own images, or of birds with their attributes."""

import dataclasses
from pathlib import Path

import numpy as np

from experiments.reporting.drawing import DrawnClasses
from experiments.running.config import ConfigError
from experiments.running.driver import run_experiment
from experiments.running.own_images import find_own_classes, load_weights_for_own_images, weights_for_own_images
from experiments.running.progress import phase
from experiments.running.workdir import default_workdir
from protojax.datasets.miniimagenet import load_miniimagenet
from protojax.datasets.omniglot import load_omniglot
from protojax.images import load_images
from protojax.pretrained import load_pretrained

ITEMS_AT_ONCE = 64
CLASSES_SHOWN = 30
LEAST_CLASSES, LEAST_ITEMS = 3, 6


def shown_classes(config):
    """Classes of images as a FiguresConfig says, and what they are -> DrawnClasses, title."""
    name = config.weights or 'omniglot-60way-1shot'
    if config.folder:
        found = find_own_classes(config.folder, 'folder')
        name = config.weights or weights_for_own_images(found.paths, LEAST_ITEMS)
        weights = load_weights_for_own_images(name)
        with phase('reading the images'):
            items, _, labels, names, _ = load_images(config.folder, weights)
        items, labels, title = items[labels >= 0], labels[labels >= 0], Path(config.folder).resolve().name
    else:
        weights = load_weights_for_own_images(name)
        with phase('loading the data'):
            items, labels, names, title = _shown_test_classes(config)
    theirs, ours = ('x'.join(map(str, shape)) for shape in (weights.description['item_shape'], items.shape[1:]))
    if theirs != ours:
        raise ConfigError(f'--weights={name} are of {theirs} items, but here they are {ours}; give others')
    if len(names) < LEAST_CLASSES or np.bincount(labels, minlength=len(names)).min() < LEAST_ITEMS:
        raise ConfigError(f'{title} has too few images; give {LEAST_CLASSES} classes with {LEAST_ITEMS} each, or more')
    parts = []
    with phase(f'embedding {len(items)} images') as tell:
        for start in range(0, len(items), ITEMS_AT_ONCE):
            parts.append(np.asarray(weights.embed(items[start : start + ITEMS_AT_ONCE])))
            tell(start / len(items))
    return DrawnClasses(np.concatenate(parts), labels, names, items), f'{title}, embedded by {Path(name).stem}'


def _shown_test_classes(config):
    """The test classes of a data set whose names begin as --classes says -> items, labels, names, title."""
    common = {'data': config.data, 'source': config.source, 'data_dir': config.data_dir}
    if config.dataset == 'miniimagenet':
        data, beginning = load_miniimagenet(**common), config.classes
    else:
        data = load_omniglot(**common, rotations=False)
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


def shown_birds(config, experiment):
    """Test classes of CUB, their prototypes from attributes, and what they are -> DrawnClasses, [classes, D], title.

    Without --weights they are those of the run that experiments.cub does with the same data, which is done where it has
    not been done yet.
    """
    places = {name: getattr(config, name) for name in ('data', 'source', 'data_dir', 'compilation_cache')}
    run = dataclasses.replace(experiment.recipe, **places, pictures='off')
    if config.weights:
        load_pretrained(config.weights)  # a wrong name is told before minutes are spent on data
    with phase('loading the data'):
        data = experiment.load(run)
    file = config.weights or f'{default_workdir(run, experiment, data)}/weights.safetensors'
    if not config.weights and not Path(file).exists():
        run_experiment(run, experiment)
    weights, split = load_pretrained(file), data.test
    if weights.attribute_encoder is None:
        raise ConfigError(f'--weights={file} are of no zero-shot model; give the weights.safetensors of a run on CUB')
    prototypes = np.asarray(weights.embed_attributes(split.attributes))
    items = np.concatenate([own[:count] for own, count in zip(split.items, split.counts, strict=True)])
    labels = np.repeat(np.arange(len(split.names)), split.counts)
    return DrawnClasses(np.asarray(weights.embed(items)), labels, split.names), prototypes, data.title
