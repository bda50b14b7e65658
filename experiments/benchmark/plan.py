"""Which contenders meet in which section of the benchmark."""

from typing import NamedTuple

from experiments.benchmark.workers import Contender
from experiments.benchmark.workloads import EVALUATION, MINIIMAGENET, OMNIGLOT, embedding_flops, training_flops

ROUNDS, QUICK_ROUNDS = 7, 2
SECONDS = 1.0  # of a turn
QUICK = ('omniglot', 'evaluation')  # sections
MATMUL_SIZE = 4096


class Entry(NamedTuple):
    """A contender and what one of its steps is."""

    contender: Contender
    images: int = 0  # embedded in a step
    flops: int = 0  # of a step
    scale: int = 1  # steps in the unit that the section reports


class Section(NamedTuple):
    """Contenders that are measured in turn; ratios are to the first of them."""

    name: str
    title: str
    unit: str  # whose seconds the table shows
    entries: tuple
    traced: Contender | None = None  # gives the share of time between steps


def sections():
    """All sections by name."""
    found = [
        training_section('omniglot', 'Training, Omniglot', OMNIGLOT),
        training_section('miniimagenet', 'Training, miniImageNet', MINIIMAGENET),
        evaluation_section('evaluation', EVALUATION),
        episodes_section('episodes', EVALUATION._replace(episodes=10_000)),
        growth_section('way', [OMNIGLOT._replace(way=way) for way in (5, 20, 60)]),
        growth_section('size', [OMNIGLOT._replace(image=(size, size, 1)) for size in (28, 56, 84)]),
        growth_section('classes', [OMNIGLOT._replace(classes=classes) for classes in (500, 5000, 50_000)]),
    ]
    return {section.name: section for section in found}


def contenders(function, workload):
    """The five who do the same work in their own way."""
    return (
        Contender('protojax', 'contenders', function, (workload,), {'kernels': True}),
        Contender('protojax, kernels off', 'contenders', function, (workload,), {'kernels': False}),
        Contender('textbook Flax', 'textbook', function, (workload,)),
        Contender('PyTorch NCHW', 'torch_contenders', function, (workload,), {'layout': 'contiguous_format'}),
        Contender('PyTorch channels_last', 'torch_contenders', function, (workload,), {'layout': 'channels_last'}),
    )


def matmuls(size):
    """A large float32 matrix product, in both libraries: what the machine can do at best."""
    of_jax = Contender('matmul in JAX', 'contenders', 'matmul', (size,))
    of_torch = Contender('matmul in PyTorch', 'torch_contenders', 'matmul', (size,))
    return Entry(of_jax, flops=2 * size**3), Entry(of_torch, flops=2 * size**3)


def training_section(name, title, workload):
    flops = training_flops(workload)
    entries = tuple(Entry(contender, workload.images, flops) for contender in contenders('training', workload))
    traced = Contender('protojax, traced', 'contenders', 'traced_training', (workload,), {'kernels': True})
    return Section(name, f'{title}: {describe(workload)}', 'step', entries, traced)


def evaluation_section(name, workload):
    """protojax embeds every image once; the others embed each episode, of which some are run and the time scaled."""
    per_image, total = sum(embedding_flops(workload.image)), workload.classes * workload.items
    *ours, textbook, nchw, channels_last = contenders('evaluation', workload)
    entries = [Entry(contender, total, per_image * total) for contender in ours]
    for contender in (textbook, nchw, channels_last):
        named = contender._replace(name=f'{contender.name}, each episode embedded (scaled)')
        entries.append(Entry(named, workload.images, per_image * workload.images, workload.episodes))
    title = f'Evaluation, {workload.episodes:,} episodes: {describe(workload)}, {total:,} images'
    return Section(name, title, f'{workload.episodes:,} episodes', tuple(entries))


def episodes_section(name, workload):
    """What episodes cost once everything is embedded, beside the embedding."""
    images = workload.classes * workload.items
    embedding = Contender(f'embedding {images:,} images', 'contenders', 'embedding', (workload,), {'kernels': True})
    entries = [Entry(embedding, images, images * sum(embedding_flops(workload.image)))]
    for way, shot in ((5, 1), (5, 5), (20, 1), (20, 5)):
        label = f'{workload.episodes:,} episodes, {way}-way {shot}-shot'
        setting = workload._replace(way=way, shot=shot)
        entries.append(Entry(Contender(label, 'contenders', 'episodes', (setting,))))
    return Section(name, 'protojax: embedding, and episodes on the embeddings', 'row', tuple(entries))


def growth_section(name, workloads):
    """How the training step of protojax grows with one size."""
    what = {'way': 'way', 'size': 'the size of images', 'classes': 'the number of classes in the data set'}[name]
    entries = []
    for workload in workloads:
        contender = Contender(describe(workload), 'contenders', 'training', (workload,), {'kernels': True})
        entries.append(Entry(contender, workload.images, training_flops(workload)))
    return Section(name, f'protojax: the training step and {what}', 'step', tuple(entries))


def describe(workload):
    height, width, channels = workload.image
    sizes = f'{workload.way}-way {workload.shot}-shot {workload.query}-query, {height}x{width}x{channels}'
    return f'{sizes}, {workload.classes:,} classes'
