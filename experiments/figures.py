"""Draws the paper's figures, from published runs and from embeddings of real data, as PNG and PDF.

    python -m experiments.figures --list
    python -m experiments.figures --figure=tengwar
    python -m experiments.figures --figure=tengwar --classes=Tibetan
    python -m experiments.figures --figure=few-shot --folder=MY_IMAGES
    python -m experiments.figures --figure=way --dataset=omniglot

Where real data cannot be had a stand-in is drawn, and the picture says so.
"""

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np

from experiments import cub
from experiments.publishing import records
from experiments.publishing.comparison import comparison_of_page
from experiments.publishing.records import published_records, record_flags
from experiments.reporting import charts
from experiments.reporting.diagrams import (
    diagram_items,
    prototype_diagram,
    query_for_diagram,
    three_for_diagram,
)
from experiments.reporting.drawing import save_drawing
from experiments.reporting.maps import class_map, map_perplexity, nearest_on_map, tsne
from experiments.running.command import launch_command
from experiments.running.config import CompilingConfig, Config, ConfigError, option, same_option
from experiments.running.progress import phase
from experiments.running.shown_classes import LEAST_ITEMS, shown_birds, shown_classes
from protojax.errors import first_line
from protojax.prototypes import prototypes

BENCHMARK = records.PUBLISHED / 'benchmark.json'
SHOT = LEAST_ITEMS - 1  # support points of a class in a diagram, which leaves one to be the query


def _few_shot_figure(config):
    """Three classes that are much alike: support points, their means, a query and the regions of the classifier."""
    classes, title = shown_classes(config)
    every_mean = np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names)))
    chosen = three_for_diagram(every_mean, near=True)
    members = [np.flatnonzero(classes.labels == label) for label in chosen]
    support = diagram_items(classes, np.concatenate([own[:SHOT] for own in members]), chosen)
    means = np.asarray(prototypes(support.points, support.labels, way=3))
    others = diagram_items(classes, np.concatenate([own[SHOT:] for own in members]), chosen)
    remark = (
        f'Prototypes c are means of {SHOT} support points. All is seen on the plane through them: what that leaves\n'
        f'out of {means.shape[1]} dimensions changes no difference of squared distances, so the regions are exact'
    )
    query = query_for_diagram(others, means, share=0.0)  # only just
    return prototype_diagram(support, means, query, title, remark, few_shot=True)


def _zero_shot_figure(config):
    """Three classes of birds: prototypes from their attributes, images, a query and the regions of the classifier."""
    birds, means, title = shown_birds(config, cub.EXPERIMENT)
    chosen = three_for_diagram(means, near=False)
    shown = diagram_items(birds, np.flatnonzero(np.isin(birds.labels, chosen)), chosen)
    remark = (
        'Prototypes c come from the attributes of test classes alone; points are images of these classes. All is seen\n'
        f'on the plane through the prototypes, which keeps the regions of the classifier in {means.shape[1]} dimensions'
    )
    query = query_for_diagram(shown, means[chosen], share=0.5)
    return prototype_diagram(shown, means[chosen], query, f'{title}, zero-shot', remark, few_shot=False)


def _distance_figure(config):
    """Accuracy by distance, way and shot for both models on miniImageNet, ours beside the paper's."""
    return charts.distance_chart(comparison_of_page('distance'))


def _way_figure(config):
    """Accuracy by training way for both shots on miniImageNet, or on --dataset=omniglot, ours beside the paper's."""
    return charts.way_chart(comparison_of_page('omniglot-way' if config.dataset == 'omniglot' else 'way'))


def _tengwar_figure(config):
    """A map of the characters of an alphabet by t-SNE, with their prototypes and those that are misclassified."""
    if importlib.util.find_spec('sklearn') is None:
        raise ConfigError("t-SNE is that of scikit-learn; pip install 'protojax[figures]'")
    classes, title = shown_classes(config)
    means = np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names)))
    with phase('t-SNE'):
        places = tsne(np.concatenate([classes.points, means]))
    items, predicted = len(classes.points), nearest_on_map(classes)
    wrong = int(np.sum(predicted != classes.labels))
    remark = (
        f'{items} items of {len(classes.names)} classes, placed by t-SNE (perplexity {map_perplexity(items)}). '
        'Black: the prototypes, each drawn as the item next to it.\n'
        f'Red: {wrong} items that are nearer to the prototype of another class than to their own, where arrows point.\n'
        "An item's own prototype is here the mean of the other items of its class"
    )
    return class_map(places[:items], places[items:], classes, predicted, title, remark)


def _curves_figure(config):
    """Learning curves of the published runs, on Omniglot or another --dataset."""
    name = config.dataset or 'omniglot'
    runs = [run for run in published_records(name) if len(run['curve']) > 1]
    if not runs:
        raise ConfigError(f'no published run has a learning curve on --dataset={name}; choose another')
    given, found = [record_flags(run['command']) for run in runs], {}
    given = [{n: value for n, value in own.items() if n not in records.LENGTHS} for own in given]
    shared = set.intersection(*(set(own.items()) for own in given))
    for run, own in zip(runs, given, strict=True):
        label = ' '.join(f'--{n}={own[n]}' for n in own if (n, own[n]) not in shared) or 'no further flags'
        found[label] = [(int(episode), look['accuracy'], look['loss']) for episode, look in run['curve'].items()]
    settings = [(run['config'].get('validation_way'), run['config'].get('shot')) for run in runs]
    setting = ' and '.join(f'{way}-way {shot}-shot' if way else 'zero-shot' for way, shot in dict.fromkeys(settings))
    shown = ' '.join(f'--{n}={given[0][n]}' for n in given[0] if (n, given[0][n]) in shared)
    remark = f'{setting} episodes of the validation classes; python -m experiments.{name} {shown}'
    return charts.learning_curves(found, f'{runs[0]["dataset"]}: {remark}')


def _speed_figure(config):
    """How long training and evaluation take beside textbook Flax and PyTorch, as experiments.benchmark measured."""
    file = Path(config.benchmark or BENCHMARK)
    try:
        return charts.speed_chart(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f'there is no benchmark in {file} ({first_line(error)}); give the file of one with --benchmark'
        ) from error


FIGURES = {
    'few-shot': _few_shot_figure,
    'zero-shot': _zero_shot_figure,
    'distance': _distance_figure,
    'way': _way_figure,
    'tengwar': _tengwar_figure,
    'curves': _curves_figure,
    'speed': _speed_figure,
}


@dataclasses.dataclass(frozen=True)
class FiguresConfig(CompilingConfig):
    figure: str = option('', f'What to draw: {", ".join(FIGURES)}.')
    list: bool = option(False, 'Only say what the figures show.')
    output: str = option('figures', 'Folder for the figure.')
    weights: str = option(
        '',
        'Whose embeddings are drawn: a name that comes with protojax, or the weights.safetensors of a run. Default: '
        'omniglot-60way-1shot; for --folder as its images are; for zero-shot those of experiments.cub.',
    )
    dataset: str = option(
        '', 'Data set, where a figure can be of several.', choices=('', 'omniglot', 'miniimagenet', 'cub')
    )
    classes: str = option('', 'How the names of the classes begin: an alphabet of Omniglot.')
    folder: str = option('', 'Own images instead of a data set: a folder with a folder for each class.')
    data: str = same_option(Config, 'data')
    source: str = same_option(Config, 'source')
    data_dir: str = same_option(Config, 'data_dir')
    dpi: int = option(200, 'Dots per inch of the PNG file.', minimum=50)
    benchmark: str = option('', 'File of experiments.benchmark (default: the published one).')


def run_figures(config):
    """Draw a figure, or list them all."""
    if config.list:
        print('\n'.join(f'--figure={name}\n    {draw.__doc__}' for name, draw in FIGURES.items()))
        return
    if config.figure not in FIGURES:
        raise ConfigError(f'--figure={config.figure} is unknown; choose {", ".join(FIGURES)}')
    if config.dataset == 'cub' and config.figure not in ('zero-shot', 'curves'):
        raise ConfigError(f'--figure={config.figure} is not of --dataset=cub; leave it out')
    figure, folder = FIGURES[config.figure](config), Path(config.output)
    name = f'{config.dataset}-{config.figure}' if config.dataset else config.figure
    folder.mkdir(parents=True, exist_ok=True)
    figure.set_dpi(config.dpi)
    for form in ('png', 'pdf'):
        with phase(f'drawing {name}.{form}'):
            save_drawing(figure, folder / f'{name}.{form}')
    print(f'written to {folder}: {name}.png, {name}.pdf')


if __name__ == '__main__':
    launch_command(FiguresConfig(), run_figures)
