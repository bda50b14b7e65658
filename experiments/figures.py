"""Draws the paper's figures, from published runs and from embeddings of real data, as PNG and PDF.

    python -m experiments.figures --list
    python -m experiments.figures --figure=tengwar
    python -m experiments.figures --figure=tengwar --classes=Tibetan
    python -m experiments.figures --figure=few-shot --folder=MY_IMAGES
    python -m experiments.figures --figure=way --dataset=omniglot

Where real data cannot be had a stand-in is drawn, and the picture says so.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from experiments import cub
from experiments.publish import published_table
from experiments.reporting import charts, diagrams, drawing, maps, records
from experiments.running.command import CommandConfig, launch_command
from experiments.running.config import MAIN, ConfigError, option
from experiments.running.progress import phase
from experiments.running.shown_classes import LEAST_ITEMS, embedded_birds, embedded_classes
from protojax.prototypes import prototypes

BENCHMARK = records.PUBLISHED / 'benchmark.json'
SHOT = LEAST_ITEMS - 1  # support points of a class in a diagram, which leaves one to be the query


def few_shot(config):
    """Three classes that are much alike: support points, their means, a query and the regions of the classifier."""
    classes, title = embedded_classes(config)
    chosen = diagrams.nearest_three(np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names))))
    members = [np.flatnonzero(classes.labels == label) for label in chosen]
    support = diagrams.taken(classes, np.concatenate([own[:SHOT] for own in members]), chosen)
    means = np.asarray(prototypes(support.points, support.labels, way=3))
    others = diagrams.taken(classes, np.concatenate([own[SHOT:] for own in members]), chosen)
    remark = (
        f'Prototypes c are means of {SHOT} support points. All is seen on the plane through them: what that leaves\n'
        f'out of {means.shape[1]} dimensions changes no difference of squared distances, so the regions are exact'
    )
    query = diagrams.rightly_classified(others, means, share=0.0)  # only just
    return diagrams.prototype_diagram(support, means, query, title, remark, few_shot=True)


def zero_shot(config):
    """Three classes of birds: prototypes from their attributes, images, a query and the regions of the classifier."""
    birds, means, title = embedded_birds(config, cub.EXPERIMENT)
    chosen = diagrams.farthest_three(means)
    shown = diagrams.taken(birds, np.flatnonzero(np.isin(birds.labels, chosen)), chosen)
    remark = (
        'Prototypes c come from the attributes of test classes alone; points are images of these classes. All is seen\n'
        f'on the plane through the prototypes, which keeps the regions of the classifier in {means.shape[1]} dimensions'
    )
    query = diagrams.rightly_classified(shown, means[chosen], share=0.5)
    return diagrams.prototype_diagram(shown, means[chosen], query, f'{title}, zero-shot', remark, few_shot=False)


def distance(config):
    """Accuracy by distance, way and shot for both models on miniImageNet, ours beside the paper's."""
    _, found, _ = published_table('distance')
    return charts.distance_chart(found)


def way(config):
    """Accuracy by training way for both shots on miniImageNet, or on --dataset=omniglot, ours beside the paper's."""
    _, found, _ = published_table('omniglot-way' if config.dataset == 'omniglot' else 'way')
    return charts.way_chart(found)


def tengwar(config):
    """A map of the characters of an alphabet by t-SNE, with their prototypes and those that are misclassified."""
    classes, title = embedded_classes(config)
    means = np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names)))
    try:
        with phase('t-SNE'):
            places = maps.tsne(np.concatenate([classes.points, means]))
    except ImportError as error:
        raise ConfigError("t-SNE is that of scikit-learn; pip install 'protojax[figures]'") from error
    items, predicted = len(classes.points), maps.nearest_of_others(classes)
    wrong = int(np.sum(predicted != classes.labels))
    remark = (
        f'{items} items of {len(classes.names)} classes, placed by t-SNE (perplexity {maps.perplexity(items)}). '
        'Black: the prototypes, each drawn as the item next to it.\n'
        f'Red: {wrong} items that are nearer to the prototype of another class than to their own, where arrows point.\n'
        "An item's own prototype is here the mean of the other items of its class"
    )
    return maps.class_map(places[:items], places[items:], classes, predicted, title, remark)


def curves(config):
    """Learning curves of the published runs, on Omniglot or another --dataset."""
    name = config.dataset or 'omniglot'
    runs = [run for run in records.published(name) if len(run['curve']) > 1]
    if not runs:
        raise ConfigError(f'no published run has a learning curve on --dataset={name}; choose another')
    given, found = [records.flags(run['command']) for run in runs], {}
    for run, own in zip(runs, given, strict=True):
        changed = [n for n in own if n not in records.LENGTHS and any(other.get(n) != own[n] for other in given)]
        label = ' '.join(f'--{n}={own[n]}' for n in changed) or 'without these flags'
        found[label] = [(int(episode), look['accuracy'], look['loss']) for episode, look in run['curve'].items()]
    values = runs[0]['config']
    setting = f'{values["validation_way"]}-way {values["shot"]}-shot' if 'validation_way' in values else 'zero-shot'
    return charts.learning_curves(found, f'{runs[0]["dataset"]}: {setting} episodes of the validation classes')


def speed(config):
    """How long training and evaluation take beside textbook Flax and PyTorch, as experiments.benchmark measured."""
    file = Path(config.benchmark or BENCHMARK)
    try:
        return charts.speed_chart(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f'there is no benchmark in {file} ({error}); give the file of one with --benchmark'
        ) from error


FIGURES = {
    'few-shot': few_shot,
    'zero-shot': zero_shot,
    'distance': distance,
    'way': way,
    'tengwar': tengwar,
    'curves': curves,
    'speed': speed,
}


@dataclasses.dataclass(frozen=True)
class FiguresConfig(CommandConfig):
    figure: str = option('', f'What to draw: {", ".join(FIGURES)}.', group=MAIN)
    list: bool = option(False, 'Only say what the figures show.', group=MAIN)
    output: str = option('figures', 'Folder for the figure.', group=MAIN)
    weights: str = option(
        '',
        'Whose embeddings are drawn: a name that comes with protojax, or the weights.safetensors of a run. Default: '
        'omniglot-60way-1shot; for --folder as its images are; for zero-shot those of experiments.cub.',
        group=MAIN,
    )
    dataset: str = option('', 'Data set: omniglot, miniimagenet or cub.', group=MAIN)
    classes: str = option('', 'How the names of the classes begin: an alphabet of Omniglot.', group=MAIN)
    folder: str = option('', 'Own images instead of a data set: a folder with a folder for each class.', group=MAIN)
    data: str = option('auto', 'Real data, or a stand-in.', group=MAIN, choices=('auto', 'real', 'synthetic'))
    source: str = option('', 'Folder or archive with the original data files, to prepare them from.', group=MAIN)
    data_dir: str = option('', 'Folder of the prepared data (default: ~/tensorflow_datasets).', group=MAIN)
    dpi: int = option(200, 'Dots per inch of the PNG file.', group=MAIN, minimum=50)
    benchmark: str = option('', 'File of experiments.benchmark (default: the published one).', group=MAIN)


def run(config, arguments):
    """Draw a figure, or list them all."""
    if arguments:
        raise ConfigError(f'{arguments[0]!r} is no flag; flags begin with --, see --help')
    if config.list:
        print('\n'.join(f'--figure={name}\n    {draw.__doc__}' for name, draw in FIGURES.items()))
        return
    if config.figure not in FIGURES:
        raise ConfigError(f'--figure={config.figure} is unknown; choose {", ".join(FIGURES)}')
    figure, folder = FIGURES[config.figure](config), Path(config.output)
    folder.mkdir(parents=True, exist_ok=True)
    figure.set_dpi(config.dpi)
    for form in ('png', 'pdf'):
        drawing.save(figure, folder / f'{config.figure}.{form}')
    print(f'written to {folder}: {config.figure}.png, {config.figure}.pdf')


if __name__ == '__main__':
    launch_command(FiguresConfig(), run)
