"""Classifies your own images by a few examples of each class.

    python -m experiments.classify --support=examples --query=photo.jpg
    python -m experiments.classify --support=examples --query=folder --page

examples/ has a folder for each class with one or more images (PNG, JPEG, WebP) of any size. The queries are files, or
folders with images; where the folders in them are named like classes, accuracy and a confusion matrix are reported.
Everything is written to --output: predictions.csv, predictions.json, confusion.png and, with --page, page.html.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np

from experiments.reporting import prediction_page, predictions
from experiments.reporting.drawing import save
from experiments.running.command import CommandConfig, launch_command
from experiments.running.config import EVALUATION, MAIN, ConfigError, option
from experiments.running.own_images import (
    embed_classes,
    embed_files,
    find_classes,
    find_images_of,
    load_weights,
    suiting_weights,
)
from protojax.class_files import load_classes, save_classes
from protojax.distances import pairwise, squared_euclidean
from protojax.files import write_whole
from protojax.images import INKS
from protojax.known_classes import calibrated, known_classes, merge, predict

PRINTED = 30  # answers on the screen; all are in the files
QUERIES_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class ClassifyConfig(CommandConfig):
    support: str = option('', 'Folder with a folder of examples for each class.', group=MAIN)
    query: str = option('', 'Image or folder to classify; further ones may follow, separated by spaces.', group=MAIN)
    weights: str = option(
        '',
        'Encoder: "photos" or "photos-large" for photographs, omniglot-... for drawings and characters, or the '
        'weights.safetensors of a run. Default: as the examples are.',
        group=MAIN,
    )
    output: str = option('classified', 'Folder that predictions are written to.', group=MAIN)
    page: bool = option(False, 'Write page.html, which shows each query beside the nearest examples.', group=MAIN)
    classifier: str = option(
        '', 'File with classes of an earlier --save; the classes of --support, if given, are added to them.', group=MAIN
    )
    save: str = option('', 'File to save the classes to (.safetensors), for later queries.', group=MAIN)
    ink: str = option(
        'auto',
        'Drawings are dark on light, or light on dark; "auto" finds out for each.',
        group=EVALUATION,
        choices=INKS,
    )
    unknown: str = option(
        'auto',
        'Squared distance beyond which an image is of no class ("off": none is). A class of n examples gets '
        '(1 + 1/n) times as much. "auto" takes the distance that calls 5 % of the examples unknown, each left out in '
        'turn.',
        group=EVALUATION,
    )


def classify(config, more_queries):
    """Learn the classes, classify the queries, write everything down -> answers."""
    weights, known, support = learn(config)
    if config.save:
        save_classes(config.save, known, encoder=weights.description['digest'])
        print(f'{len(known.names)} classes saved to {config.save}')
    queries = [path for path in (config.query, *more_queries) if path]
    if not queries and config.save:
        return []
    if not queries:
        raise ConfigError('there is nothing to classify; give an image or a folder with --query')
    embedded = embed_files(weights, find_images_of(queries, 'query'), label='queries', ink=config.ink)
    if not embedded.paths:
        raise ConfigError('none of the images of --query can be read')
    found = []
    for start in range(0, len(embedded.paths), QUERIES_AT_ONCE):
        part = slice(start, start + QUERIES_AT_ONCE)
        prediction = predict(known, embedded.embeddings[part])
        found += predictions.answers(embedded.paths[part], embedded.classes[part], prediction, known.names)
    report(config, weights, known, support, embedded, found)
    return found


def learn(config):
    """The classes of --classifier and --support -> Pretrained, KnownClasses, embedded support or None."""
    if not (config.support or config.classifier):
        raise ConfigError('there are no classes; give --support=DIR with a folder for each class')
    found = find_classes(config.support, 'support') if config.support else None
    if not (config.weights or found):
        raise ConfigError('--classifier alone does not tell the encoder; give --weights as when it was saved')
    name = config.weights or suiting_weights(found.paths, len(found.paths) / len(set(found.classes)))
    weights = load_weights(name)
    print(f'encoder: {name}')
    support = embed_classes(weights, found, flag='support', ink=config.ink) if found else None
    known = None
    if support:
        known = known_classes(support.embeddings, support.labels, support.names)
        known = calibrated(known, support.embeddings, support.labels)
    if config.classifier:
        saved = load_classes(config.classifier, encoder=weights.description['digest'])
        known = merge(saved, known) if known else saved
    return weights, with_threshold(known, config.unknown), support


def with_threshold(known, unknown):
    """The classes with the threshold that --unknown says."""
    if unknown == 'auto':
        return known
    try:
        threshold = math.inf if unknown == 'off' else float(unknown)
    except ValueError:
        threshold = -1.0
    if not threshold > 0:
        raise ConfigError(f'--unknown={unknown} must be auto, off or a number above 0')
    return dataclasses.replace(known, threshold=np.float32(threshold))


def report(config, weights, known, support, embedded, found):
    """Print the answers and write the files."""
    told = predictions.summary(found, known.names)
    counts = f'{known.counts.min()} to {known.counts.max()}' if np.ptp(known.counts) else f'{known.counts[0]}'
    about = f'{len(known.names)} classes of {counts} examples, temperature {known.temperature:.3g}, '
    about += 'nothing is unknown' if np.isinf(known.threshold) else f'unknown beyond {known.threshold:.3g}'
    lines = [about, *predictions.summary_lines(told)]
    print('\n'.join([*predictions.as_lines(found, PRINTED), *lines]))
    output = Path(config.output).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    write_whole(output / 'predictions.csv', predictions.as_csv(found))
    threshold = None if np.isinf(known.threshold) else float(known.threshold)
    facts = {'classes': known.names, 'temperature': float(known.temperature), 'threshold': threshold}
    facts |= {'summary': told, 'skipped': embedded.skipped}
    write_whole(output / 'predictions.json', predictions.as_json(found, **facts))
    if told:
        matrix = predictions.confusion_matrix(found, known.names)
        save(predictions.confusion_figure(matrix, known.names, lines[1]), output / 'confusion.png')
    if config.page:
        write_whole(output / 'page.html', page(lines, found, embedded, support))
    print(f'written to {output}')


def page(lines, found, embedded, support):
    """page.html."""
    paths, classes = (support.paths, support.classes) if support else ((), ())
    nearest = np.zeros((len(found), 0), int)
    if support:
        distances = np.asarray(pairwise(squared_euclidean)(embedded.embeddings, support.embeddings))
        nearest = np.argsort(distances, 1)[:, : prediction_page.BESIDE]
    return prediction_page.page('Classified images', lines, found, embedded.paths, paths, classes, nearest)


if __name__ == '__main__':
    launch_command(ClassifyConfig(), classify)
