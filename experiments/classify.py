"""Classify images from a few examples per class.

    python -m experiments.classify --support=examples --query=photo.jpg
    python -m experiments.classify --support=examples --query=folder --page
    python -m experiments.classify --support=examples --estimate=5

examples/ has one subfolder per class with one or more images of any size. Queries are files or folders of images; if
their subfolders are named like classes, accuracy and a confusion matrix are reported. All output is written to
--output: predictions.csv, predictions.json, confusion.png and, with --page, page.html. --estimate=N predicts without
queries how accurate the classifier is with N examples per class, and how many images of unseen classes it rejects.

An image is unknown if its squared distance to the prototype of every class exceeds the threshold times 1 + 1/n, n being
the number of examples of the class. --unknown=auto fits the threshold so that at most about a tenth of the
examples is rejected; with one example per class, it rejects nothing.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from experiments.drawing.style import save_drawing
from experiments.own_images import answers, confusion, estimate, html, loading, logistic
from experiments.own_images.loading import Embedded
from experiments.running import cli, progress
from experiments.running.config import CompilingConfig, ConfigError, option
from protojax import Pretrained, PrototypeClassifier, files

PRINTED = 30  # answers printed to the terminal; the files contain all


class Config(CompilingConfig):
    support: str = option('', 'Folder with one subfolder of examples per class.')
    query: str = option('', 'Image or folder to classify; more may follow, separated by spaces.')
    weights: str = option('', 'Encoder: photos, photos-large, bundled, hub or a file. Default: by the examples.')
    output: str = option('classified', 'Folder for the predictions.')
    estimate: int = option(0, 'Estimate accuracy and rejection with N examples per class; 0 disables.', minimum=0)
    page: bool = option(False, 'Write page.html: each query beside the nearest examples of --support.')
    classifier: str = option('', 'File of an earlier --save; the classes of --support, if set, are added to it.')
    save: str = option('', 'File to save the classifier to (.safetensors).')
    head: str = option(
        'prototypes', 'Classifier of the embeddings; rejection uses prototypes.', choices=('prototypes', 'logistic')
    )
    ink: str = loading.ink_option()
    unknown: str = option('auto', 'Rejection threshold: a number, off, or auto (estimated from the examples).')


def run(config: Config, more_queries: list[str]) -> list[dict]:
    """Fit or load the classifier, classify the queries, and write and return the answers."""
    paths = [path for path in (config.query, *more_queries) if path]
    threshold = _check(config, paths)
    queries = loading.find_images(paths, 'query') if paths else None
    weights, classifier, support = _fit(config)
    if threshold is not None:
        classifier = dataclasses.replace(classifier, threshold=threshold)
    if config.save:
        classifier.save(config.save, encoder=weights.description['digest'])
        print(f'classifier of {len(classifier.names)} classes saved to {config.save}')
    if config.estimate:
        print('\n'.join(estimate.lines(support, config.estimate, config.head)))
    if not queries:
        return []
    embedded = loading.embed(weights, queries, label='query', ink=config.ink)
    if not embedded.paths:
        raise ConfigError('--query: none of the images can be read')
    prediction = classifier.predict(embedded.embeddings)
    if config.head == 'logistic':
        labels = np.unique(support.classes, return_inverse=True)[1]
        probabilities = logistic.probabilities(support.embeddings, labels, embedded.embeddings)
        prediction = dataclasses.replace(prediction, labels=probabilities.argmax(1), probabilities=probabilities)
    found = answers.rows(embedded.paths, embedded.classes, prediction)
    _report(config, classifier, support, embedded, found)
    return found


def _check(config: Config, paths: list[str]) -> np.float32 | None:
    """Raise ConfigError for invalid flags before any work; return the threshold of --unknown, or None for auto."""
    if not (paths or config.save or config.estimate):
        raise ConfigError('nothing to do; set --support and --query (see --help), --save or --estimate')
    if not (config.support or (config.classifier and not config.estimate)):
        raise ConfigError('no examples; set --support=DIR to a folder with one subfolder per class')
    if config.head == 'logistic' and (config.classifier or config.save):
        raise ConfigError('--head=logistic is fitted to the examples of all classes; remove --classifier and --save')
    if config.save and not (config.save.endswith('.safetensors') and Path(config.save).absolute().parent.is_dir()):
        raise ConfigError(f'--save={config.save} must end in .safetensors and be in an existing folder')
    if paths:
        Path(config.output).expanduser().mkdir(parents=True, exist_ok=True)
    try:
        threshold = np.inf if config.unknown in ('auto', 'off') else float(config.unknown)
    except ValueError:
        threshold = -1.0
    if not threshold > 0:
        raise ConfigError(f'--unknown={config.unknown} must be auto, off or a number above 0')
    return None if config.unknown == 'auto' else np.float32(threshold)


def _fit(config: Config) -> tuple[Pretrained, PrototypeClassifier, Embedded | None]:
    """Load the encoder; fit the classes of --support and add them to --classifier."""
    minimum = 1 if config.classifier else 2
    found = loading.find_classes(config.support, 'support', minimum) if config.support else None
    with progress.phase('loading the encoder'):
        if found and not (config.weights or config.classifier):
            name = loading.choose_weights(found.paths, len(found.paths) / len(set(found.classes)))
        else:
            name = config.weights or loading.name_encoder(config.classifier)
        weights = loading.load_weights(name)
    print(f'encoder: {name}')
    saved = loading.load_classifier(config.classifier, weights) if config.classifier else None
    if not found:
        return weights, saved, None
    support = loading.embed(weights, found, label='support', ink=config.ink)
    if missing := sorted(set(found.classes) - set(support.classes)):
        raise ConfigError(f'--support: no image of class {missing[0]!r} can be read; add others')
    names, labels = np.unique(support.classes, return_inverse=True)
    classifier = PrototypeClassifier.fit(support.embeddings, labels, names.tolist())
    classifier = saved.merge(classifier) if saved else classifier.calibrate(support.embeddings, labels)
    return weights, classifier, support


def _report(config, classifier, support, embedded, found):
    """Print the answers and write the files."""
    output = Path(config.output).expanduser()
    for name in ('confusion.png', 'page.html'):  # of an earlier run
        (output / name).unlink(missing_ok=True)
    summary = answers.summarize(found, classifier.names)
    lines = [_describe(config, classifier), *answers.summary_lines(summary, found)]
    if summary:
        counts = confusion.matrix(found, classifier.names)
        lines += filter(None, [confusion.worst_line(counts, classifier.names)])
        correct = f'{summary["accuracy_with_rejection"]:.1f} % of the queries of known classes'
        diagonal = f'diagonal: correct and not rejected, {correct}'
        save_drawing(confusion.figure(counts, classifier.names, diagonal), output / 'confusion.png')
    columns = {'columns': shutil.get_terminal_size().columns - 1} if sys.stdout.isatty() else {}
    print('\n'.join([*answers.as_lines(found, PRINTED, **columns), *lines]), flush=True)
    files.write_whole(output / 'predictions.csv', answers.as_csv(found))
    facts = {'classes': classifier.names, 'temperature': float(classifier.temperature)}
    facts |= {'threshold': _threshold(classifier), 'summary': summary}
    facts |= {'skipped': [*(support.skipped if support else ()), *embedded.skipped], 'answers': found}
    files.write_whole(output / 'predictions.json', json.dumps(facts, indent=1) + '\n')
    if config.page:
        with progress.phase('writing page.html'):
            files.write_whole(output / 'page.html', html.report(lines, found, embedded, support))
    print(f'written to {output}')


def _threshold(classifier):
    """Return the threshold as the shortest number that --unknown reads back unchanged, None if rejection is off."""
    return None if np.isinf(classifier.threshold) else float(str(classifier.threshold))


def _describe(config, classifier):
    """Describe the classifier in one line."""
    fewest, most = classifier.counts.min(), classifier.counts.max()
    examples = f'{fewest} to {most} examples' if fewest < most else loading.counted(most, 'example')
    about = f'{len(classifier.names)} classes with {examples} each, temperature {classifier.temperature:.3g}; '
    if threshold := _threshold(classifier):
        radii = dict.fromkeys(f'{radius:.3g}' for radius in (classifier.radii.min(), classifier.radii.max()))
        return (
            about + f'threshold {threshold} (--unknown), so unknown beyond a squared distance of {" to ".join(radii)}'
        )
    if config.unknown == 'auto' and most == 1:
        return about + 'rejection is off because a threshold needs two examples of a class; set --unknown=NUMBER'
    return about + 'rejection is off'


if __name__ == '__main__':
    cli.launch_command(Config, run, arguments=True)
