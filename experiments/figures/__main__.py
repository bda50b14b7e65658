"""Draw the paper's figures from published runs and from embeddings of real data, as PNG and PDF.

    python -m experiments.figures --list
    python -m experiments.figures --figure=tengwar
    python -m experiments.figures --figure=tengwar --classes=Tibetan
    python -m experiments.figures --figure=few-shot --folder=MY_IMAGES
    python -m experiments.figures --figure=way --dataset=omniglot

If real data are unavailable, synthetic data are drawn and named in the picture.
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments import cub
from experiments.drawing import charts, diagrams, maps, style
from experiments.figures import classes as shown
from experiments.paper import comparison, records
from experiments.running import cli, progress
from experiments.running.config import CompilingConfig, ConfigError, DataOptions, flags_text, option
from protojax import errors, prototypes

SHOT = shown.MIN_ITEMS - 1  # support points per class in a diagram; one item is left for the query


def few_shot(config: 'FiguresConfig') -> Figure:
    """Three similar classes: support points, their means, a query and the decision regions."""
    classes, title = shown.images(config)
    every_mean = np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names)))
    chosen = diagrams.three_classes(every_mean, near=True)
    members = [np.flatnonzero(classes.labels == label) for label in chosen]
    support = diagrams.subset(classes, np.concatenate([own[:SHOT] for own in members]), chosen)
    means = np.asarray(prototypes(support.points, support.labels, way=3))
    others = diagrams.subset(classes, np.concatenate([own[SHOT:] for own in members]), chosen)
    remark = (
        f'Prototypes c are means of {SHOT} support points. Everything is projected onto the plane through them, which\n'
        f'preserves differences of squared distances in {means.shape[1]} dimensions, so the regions are exact'
    )
    query = diagrams.pick_query(others, means, quantile=0.0)  # the narrowest margin
    return diagrams.draw(support, means, query, title, remark, few_shot=True)


def zero_shot(config: 'FiguresConfig') -> Figure:
    """Three classes of birds: prototypes from their attributes, images, a query and the decision regions."""
    birds, means, title = shown.birds(config, cub.EXPERIMENT)
    chosen = diagrams.three_classes(means, near=False)
    classes = diagrams.subset(birds, np.flatnonzero(np.isin(birds.labels, chosen)), chosen)
    remark = (
        'Prototypes c are computed from attributes of test classes; points are images of these classes. Everything\n'
        f'is projected onto the plane through them, which preserves the regions in {means.shape[1]} dimensions'
    )
    query = diagrams.pick_query(classes, means[chosen], quantile=0.5)
    return diagrams.draw(classes, means[chosen], query, f'{title}, zero-shot', remark, few_shot=False)


def distance(config: 'FiguresConfig') -> Figure:
    """Accuracy by distance, way and shot for both models on miniImageNet, ours beside the paper's."""
    return charts.CHARTS['distance'](comparison.published('distance'))


def way(config: 'FiguresConfig') -> Figure:
    """Accuracy by training way for both shots on miniImageNet, or on --dataset=omniglot, ours beside the paper's."""
    return charts.CHARTS['way'](comparison.published('omniglot-way' if config.dataset == 'omniglot' else 'way'))


def tengwar(config: 'FiguresConfig') -> Figure:
    """A t-SNE map of the characters of an alphabet, with prototypes and misclassified characters."""
    if importlib.util.find_spec('sklearn') is None:
        raise ConfigError("t-SNE requires scikit-learn; pip install 'protojax[figures]'")
    classes, title = shown.images(config)
    means = np.asarray(prototypes(classes.points, classes.labels, way=len(classes.names)))
    with progress.phase('t-SNE'):
        positions = maps.tsne(np.concatenate([classes.points, means]))
    items, predicted = len(classes.points), maps.nearest(classes)
    wrong = int(np.sum(predicted != classes.labels))
    remark = (
        f'{items} items of {len(classes.names)} classes, t-SNE with perplexity {maps.perplexity(items)}. '
        'Black: prototypes, each drawn as the nearest item of its class.\n'
        f'Red: {wrong} items that are nearer to the prototype of another class; arrows point to their own.\n'
        'Each item is left out of its own prototype'
    )
    return maps.draw(positions[:items], positions[items:], classes, predicted, title, remark)


def curves(config: 'FiguresConfig') -> Figure:
    """Learning curves of the published runs, on Omniglot or another --dataset."""
    name = config.dataset or 'omniglot'
    runs = [run for run in records.published(name) if len(run['curve']) > 1]
    if not runs:
        raise ConfigError(f'no published run on --dataset={name} has a learning curve; choose another')
    given = [records.flags_of(run['command']).items() for run in runs]
    given = [{flag for flag in own if flag[0] not in records.LENGTHS} for own in given]
    shared, found = set.intersection(*given), {}
    for run, own in sorted(zip(runs, given, strict=True), key=lambda pair: len(pair[0]['curve'])):  # the longest counts
        label = flags_text(dict(sorted(own - shared))) or 'no further flags'
        found[label] = [(int(episode), look['accuracy'], look['loss']) for episode, look in run['curve'].items()]
    settings = [(run['config'].get('validation_way'), run['config'].get('shot')) for run in runs]
    setting = ' and '.join(f'{way}-way {shot}-shot' if way else 'zero-shot' for way, shot in dict.fromkeys(settings))
    command = f'python -m experiments.{name} {flags_text(dict(sorted(shared)))}'
    remark = f'{runs[0]["dataset"]}: {setting} episodes of the validation classes; {command}'
    return charts.learning_curves(found, remark)


def speed(config: 'FiguresConfig') -> Figure:
    """Time of training and evaluation beside textbook Flax and PyTorch, measured by experiments.benchmark."""
    try:
        return charts.speed(json.loads(Path(config.benchmark).read_text()))
    except Exception as error:  # a file of another program may contain anything
        raise ConfigError(f'--benchmark={config.benchmark} cannot be read ({errors.first_line(error)})') from error


DRAWN = (few_shot, zero_shot, distance, way, tengwar, curves, speed)
FIGURES = {draw.__name__.replace('_', '-'): draw for draw in DRAWN}


class FiguresConfig(DataOptions, CompilingConfig):
    figure: str = option('', 'Figure to draw.', choices=('', *FIGURES))
    list: bool = option(False, 'Only describe the figures.')
    output: str = option('figures', 'Output directory.')
    weights: str = option('', 'Bundled weights or weights.safetensors of a run. Default: chosen by the figure.')
    dataset: str = option('', 'Data set of a figure that has several.', choices=('', 'omniglot', 'miniimagenet', 'cub'))
    classes: str = option('', 'Only draw classes whose names start with this prefix, e.g. an Omniglot alphabet.')
    folder: str = option('', 'Custom images instead of a data set: a folder with one subfolder per class.')
    dpi: int = option(200, 'Resolution of the PNG file.', minimum=50)
    benchmark: str = option(str(records.PUBLISHED / 'benchmark.json'), 'File of experiments.benchmark.')


def run(config: FiguresConfig) -> None:
    """Draw a figure or list all figures."""
    if config.list or not config.figure:
        print('\n'.join(f'--figure={name}\n    {draw.__doc__}' for name, draw in FIGURES.items()))
        return
    if config.dataset == 'cub' and config.figure not in ('zero-shot', 'curves'):
        raise ConfigError(f'--figure={config.figure} does not support --dataset=cub; remove it')
    drawn, folder = FIGURES[config.figure](config), Path(config.output)
    name = f'{config.dataset}-{config.figure}' if config.dataset else config.figure
    folder.mkdir(parents=True, exist_ok=True)
    drawn.set_dpi(config.dpi)
    for form in ('png', 'pdf'):
        with progress.phase(f'drawing {name}.{form}'):
            style.save_drawing(drawn, folder / f'{name}.{form}')
    print(f'written to {folder}: {name}.png, {name}.pdf')


if __name__ == '__main__':
    cli.launch_command(FiguresConfig, run)
