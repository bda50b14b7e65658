"""Classifies your own images by a few examples of each class.

    python -m experiments.classify --support=examples --query=photo.jpg
    python -m experiments.classify --support=examples --query=folder --page

examples/ has a folder for each class with one or more images (PNG, JPEG, WebP) of any size. The queries are files, or
folders with images; where the folders in them are named like classes, accuracy and a confusion matrix are reported.
Everything is written to --output: predictions.csv, predictions.json, confusion.png and, with --page, page.html.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path

import numpy as np

from experiments.reporting.confusion import confusion_figure, confusion_line, confusion_matrix
from experiments.reporting.drawing import save_drawing
from experiments.reporting.prediction_page import BESIDE, SHOWN, prediction_page
from experiments.reporting.predictions import (
    listed_predictions,
    prediction_summary,
    prediction_summary_lines,
    predictions_as_csv,
    predictions_as_lines,
)
from experiments.running.command import launch_command
from experiments.running.config import EVALUATION, CompilingConfig, ConfigError, option
from experiments.running.own_images import (
    embed_own_files,
    find_own_classes,
    find_own_images,
    ink_of_own_images,
    load_own_classes,
    load_weights_for_own_images,
    weights_for_own_images,
)
from experiments.running.progress import phase, progress_columns
from protojax.class_files import save_classes
from protojax.distances import pairwise, squared_euclidean
from protojax.files import write_whole
from protojax.known_classes import calibrated_known_classes, known_classes, merge_known_classes, predict_known_classes

PRINTED = 30  # answers on the screen; all are in the files
AT_ONCE = 1024  # queries


@dataclasses.dataclass(frozen=True)
class ClassifyConfig(CompilingConfig):
    support: str = option('', 'Folder with a folder of examples for each class.')
    query: str = option('', 'Image or folder to classify; further ones may follow, separated by spaces.')
    weights: str = option(
        '',
        'Encoder: "photos" or "photos-large" for photographs, omniglot-... for drawings and characters, or the '
        'weights.safetensors of a run. Default: chosen by what the examples look like.',
    )
    output: str = option('classified', 'Folder that predictions are written to.')
    page: bool = option(False, 'Write page.html, which shows each query beside the nearest examples.')
    classifier: str = option(
        '', 'File with classes of an earlier --save; the classes of --support, if given, are added to them.'
    )
    save: str = option('', 'File to save the classes to (.safetensors), for later queries.')
    ink: str = ink_of_own_images(EVALUATION)
    unknown: str = option(
        'auto',
        'Squared distance to the nearest prototype beyond which an image is called unknown, times 1 + 1/n for a class '
        'of n examples; "off": never. "auto" estimates it by leaving out each example in turn, and calls at most a '
        'tenth of the examples unknown. With one example per class the estimate is poor: a third of the photographs '
        'may be called unknown wrongly.',
        group=EVALUATION,
    )


def run_classify(config, more_queries):
    """Learn the classes, classify the queries, write everything down -> answers."""
    queries = [path for path in (config.query, *more_queries) if path]
    if not (queries or config.save):
        raise ConfigError('there is nothing to classify; give an image or a folder with --query')
    images = find_own_images(queries, 'query') if queries else []
    weights, known, support = _learn_to_classify(config)
    if config.save:
        save_classes(config.save, known, encoder=weights.description['digest'])
        print(f'{len(known.names)} classes saved to {config.save}')
    if not queries:
        return []
    embedded = embed_own_files(weights, images, label='queries', ink=config.ink)
    if not embedded.paths:
        raise ConfigError('none of the images of --query can be read')
    found = []
    for part in _query_batches(len(embedded.paths)):
        prediction = predict_known_classes(known, embedded.embeddings[part])
        found += listed_predictions(embedded.paths[part], embedded.classes[part], prediction, known.names)
    _report_classified(config, known, support, embedded, found)
    return found


def _learn_to_classify(config):
    """The classes of --classifier and --support -> Pretrained, KnownClasses, embedded support or None."""
    threshold = _threshold_to_classify(config.unknown)
    if not (config.support or config.classifier):
        raise ConfigError('there are no classes; give --support=DIR with a folder for each class')
    found = find_own_classes(config.support, 'support') if config.support else None
    if not (config.weights or found):
        raise ConfigError('--classifier alone does not tell the encoder; give --weights as when it was saved')
    with phase('loading the encoder'):
        name = config.weights or weights_for_own_images(found.paths, len(found.paths) / len(set(found.classes)))
        weights = load_weights_for_own_images(name)
    print(f'encoder: {name}')
    support = known = None
    if found:
        support = embed_own_files(weights, found, label='support', ink=config.ink)
        if missing := sorted(set(found.classes) - set(support.classes)):
            raise ConfigError(f'no image of the class {missing[0]!r} in --support can be read; put others there')
        known = known_classes(support.embeddings, support.labels, support.names)
        known = calibrated_known_classes(known, support.embeddings, support.labels)
    if config.classifier:
        saved = load_own_classes(config.classifier, weights)
        known = merge_known_classes(saved, known) if known else saved
    return weights, known if threshold is None else dataclasses.replace(known, threshold=threshold), support


def _threshold_to_classify(unknown):
    """The threshold that --unknown says, or None for that of the classes."""
    if unknown == 'auto':
        return None
    try:
        threshold = math.inf if unknown == 'off' else float(unknown)
    except ValueError:
        threshold = -1.0
    if not threshold > 0:
        raise ConfigError(f'--unknown={unknown} must be auto, off or a number above 0')
    return np.float32(threshold)


def _report_classified(config, known, support, embedded, found):
    """Print the answers and write the files."""
    output = Path(config.output).expanduser()
    output.mkdir(parents=True, exist_ok=True)
    told = prediction_summary(found, known.names)
    lines = [_line_about_known_classes(known), *prediction_summary_lines(told)]
    if told:
        matrix = confusion_matrix(found, known.names)
        lines += filter(None, [confusion_line(matrix, known.names)])
        save_drawing(confusion_figure(matrix, known.names, lines[1]), output / 'confusion.png')
    room = {'columns': progress_columns(sys.stdout)} if sys.stdout.isatty() else {}
    print('\n'.join([*predictions_as_lines(found, PRINTED, **room), *lines]), flush=True)
    write_whole(output / 'predictions.csv', predictions_as_csv(found))
    threshold = None if np.isinf(known.threshold) else float(known.threshold)
    facts = {'classes': known.names, 'temperature': float(known.temperature), 'threshold': threshold}
    facts |= {'summary': told, 'skipped': embedded.skipped, 'answers': found}
    write_whole(output / 'predictions.json', json.dumps(facts, indent=1) + '\n')
    if config.page:
        with phase('writing page.html'):
            write_whole(output / 'page.html', _page_of_classified(lines, found, embedded, support))
    print(f'written to {output}')


def _line_about_known_classes(known):
    """The classes in words."""
    least, most = known.counts.min(), known.counts.max()
    examples = f'{least} to {most} examples' if least < most else f'{most} example{"s" if most > 1 else ""}'
    about = f'{len(known.names)} classes of {examples}, temperature {known.temperature:.3g}, '
    if np.isinf(known.threshold):
        return about + 'nothing is unknown'
    nearest, farthest = (f'{limit:.3g}' for limit in (known.limits.min(), known.limits.max()))
    limits = farthest if nearest == farthest else f'{nearest} to {farthest}'
    return about + f'unknown beyond a squared distance of {limits}'


def _page_of_classified(lines, found, embedded, support):
    """page.html, which shows the first queries where there are very many."""
    shown = min(len(found), SHOWN)
    if shown < len(found):
        lines = [*lines, f'The first {shown} of {len(found)} queries are shown.']
    paths, classes = (support.paths, support.classes) if support else ((), ())
    nearest = np.zeros((shown, 0), int)
    if support:
        distances = pairwise(squared_euclidean)
        parts = (distances(embedded.embeddings[part], support.embeddings) for part in _query_batches(shown))
        nearest = np.concatenate([np.argsort(np.asarray(part), 1)[:, :BESIDE] for part in parts])
    return prediction_page('Classified images', lines, found[:shown], embedded.paths[:shown], paths, classes, nearest)


def _query_batches(number):
    """Slices of so many queries, a few at a time, as distances to all classes and examples are kept in memory."""
    return [slice(start, min(start + AT_ONCE, number)) for start in range(0, number, AT_ONCE)]


if __name__ == '__main__':
    launch_command(ClassifyConfig(), run_classify, arguments=True)
