"""Which contenders meet in which section of the benchmark."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from experiments.benchmark.workloads import EVALUATION, MINIIMAGENET, OMNIGLOT

ROUNDS, QUICK_ROUNDS = 7, 2
SECONDS = 1.0  # of a turn
QUICK = ('omniglot', 'evaluation')  # sections
MATMUL_SIZE = 4096
TUNED_MALLOC = {
    'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=8000000000:'
    'glibc.malloc.trim_threshold=16000000000:glibc.malloc.top_pad=268435456'
}


class PlannedContender(NamedTuple):
    """What the process of a contender builds: `function(*arguments, **options)` of a module of this package.

    With `checkout` the package is that of another copy of protojax, whose function takes the same arguments.
    """

    name: str
    module: str
    function: str
    arguments: tuple
    options: Mapping = {}
    environment: Mapping = {}  # variables that the process starts with
    checkout: str | None = None


class PlannedEntry(NamedTuple):
    """A contender and what one of its steps is."""

    contender: PlannedContender
    images: int = 0  # embedded in a step
    flops: int = 0  # of a step
    scale: int = 1  # steps in the unit that the section reports


class PlannedSection(NamedTuple):
    """Contenders that are measured in turn; ratios are to the first of them."""

    name: str
    title: str
    unit: str  # whose seconds the table shows
    entries: tuple
    traced: PlannedContender | None = None  # gives the share of time between steps
    fits_memory: bool = True  # whether all contenders may wait for their turns in memory


def plan_sections(baseline=None):
    """All sections by name; with a path to another copy of protojax, that one is a contender."""
    found = [
        plan_training_section('omniglot', 'Training, Omniglot', OMNIGLOT, baseline),
        plan_training_section('miniimagenet', 'Training, miniImageNet', MINIIMAGENET, baseline)._replace(
            fits_memory=False
        ),
        plan_evaluation_section('evaluation', EVALUATION, baseline),
        _plan_placement('placement', MINIIMAGENET),
        _plan_episodes('episodes', EVALUATION._replace(episodes=10_000), baseline),
        _plan_growth('way', [OMNIGLOT._replace(way=way) for way in (5, 20, 60)]),
        _plan_growth('size', [OMNIGLOT._replace(image=(size, size, 1)) for size in (28, 56, 84)]),
        _plan_growth('classes', [OMNIGLOT._replace(classes=classes) for classes in (500, 5000, 50_000)]),
    ]
    return {section.name: section for section in found}


def _plan_ours(function, workload, baseline):
    """protojax in its forms; with a path to another copy of it, that one too."""
    found = [
        PlannedContender('protojax', 'contenders', function, (workload,), {'kernels': True}),
        PlannedContender(
            'protojax, bfloat16', 'contenders', function, (workload,), {'kernels': True, 'dtype': 'bfloat16'}
        ),
        PlannedContender('protojax, kernels off', 'contenders', function, (workload,), {'kernels': False}),
    ]
    if baseline:
        found.append(found[0]._replace(name='protojax, baseline', checkout=baseline))
    return found


def _plan_torch(name, function, workload, *, tuned=False, **options):
    """PyTorch; tuned, with an allocator that gives no memory back, which is the best that its users can set."""
    return PlannedContender(name, 'torch_contenders', function, (workload,), options, TUNED_MALLOC if tuned else {})


def plan_matmuls(size):
    """A large float32 matrix product, in both libraries: what the machine can do at best."""
    of_jax = PlannedContender('matmul in JAX', 'contenders', 'matmul_contender', (size,))
    of_torch = PlannedContender('matmul in PyTorch', 'torch_contenders', 'torch_matmul', (size,))
    return PlannedEntry(of_jax, flops=2 * size**3), PlannedEntry(of_torch, flops=2 * size**3)


def plan_training_section(name, title, workload, baseline=None):
    last = {'layout': 'channels_last'}
    contenders = [
        *_plan_ours('training_contender', workload, baseline),
        PlannedContender('textbook Flax', 'textbook', 'textbook_training', (workload,)),
        _plan_torch('PyTorch NCHW', 'torch_training', workload, layout='contiguous_format'),
        _plan_torch('PyTorch channels_last', 'torch_training', workload, **last),
        _plan_torch('PyTorch channels_last, tuned malloc', 'torch_training', workload, tuned=True, **last),
        _plan_torch(
            'PyTorch bfloat16 autocast, tuned malloc', 'torch_training', workload, tuned=True, autocast=True, **last
        ),
        _plan_torch('PyTorch compiled, tuned malloc', 'torch_training', workload, tuned=True, compiled=True, **last),
    ]
    flops = workload.training_flops
    entries = tuple(PlannedEntry(contender, workload.images, flops) for contender in contenders)
    traced = PlannedContender('protojax, traced', 'contenders', 'traced_contender', (workload,), {'kernels': True})
    return PlannedSection(name, f'{title}: {_describe_plan(workload)}', 'step', entries, traced)


def plan_evaluation_section(name, workload, baseline=None):
    """Every image embedded once, or, as is usual, each episode, of which some are run and the time scaled."""
    per_image, total = sum(workload.embedding_flops), workload.classes * workload.items
    last = {'layout': 'channels_last'}
    once = [
        *_plan_ours('evaluation_contender', workload, baseline),
        _plan_torch('PyTorch channels_last, images embedded once', 'torch_stored_evaluation', workload, **last),
        _plan_torch(
            'PyTorch channels_last, tuned malloc, images embedded once',
            'torch_stored_evaluation',
            workload,
            tuned=True,
            **last,
        ),
    ]
    each = [
        PlannedContender('textbook Flax', 'textbook', 'textbook_evaluation', (workload,)),
        _plan_torch('PyTorch NCHW', 'torch_evaluation', workload, layout='contiguous_format'),
        _plan_torch('PyTorch channels_last', 'torch_evaluation', workload, **last),
    ]
    entries = [PlannedEntry(contender, total, per_image * total) for contender in once]
    for contender in each:
        named = contender._replace(name=f'{contender.name}, each episode embedded (scaled)')
        entries.append(PlannedEntry(named, workload.images, per_image * workload.images, workload.episodes))
    title = f'Evaluation, {workload.episodes:,} episodes: {_describe_plan(workload)}, {total:,} images'
    return PlannedSection(name, title, f'{workload.episodes:,} episodes', tuple(entries))


def _plan_episodes(name, workload, baseline=None):
    """What episodes cost once everything is embedded, beside the embedding."""
    images = workload.classes * workload.items
    label = f'embedding {images:,} images'
    embedding = [PlannedContender(label, 'contenders', 'embedding_contender', (workload,), {'kernels': True})]
    if baseline:
        embedding.append(embedding[0]._replace(name=f'{label}, baseline', checkout=baseline))
    flops = images * sum(workload.embedding_flops)
    entries = [PlannedEntry(contender, images, flops) for contender in embedding]
    for way, shot in ((5, 1), (5, 5), (20, 1), (20, 5)):
        label = f'{workload.episodes:,} episodes, {way}-way {shot}-shot'
        setting = workload._replace(way=way, shot=shot)
        entries.append(PlannedEntry(PlannedContender(label, 'contenders', 'episodes_contender', (setting,))))
    return PlannedSection(name, 'protojax: embedding, and episodes on the embeddings', 'row', tuple(entries))


def _plan_placement(name, workload):
    """What it costs a training step that the data lie on the host or in a file larger than memory."""
    large = workload._replace(classes=1600, items=600)
    size = round(math.prod((large.classes, large.items, *large.image)) / 1e9)
    forms = (('device', workload, 'device'), ('host', workload, 'host'), (f'host, a file of {size} GB', large, 'file'))
    entries = [_plan_step(f'data on the {label}', data, placement=placement) for label, data, placement in forms]
    return PlannedSection(name, f'protojax: where the data lie, {_describe_plan(workload)}', 'step', tuple(entries))


def _plan_growth(name, workloads):
    """How the training step of protojax grows with one size."""
    what = {'way': 'way', 'size': 'the size of images', 'classes': 'the number of classes in the data set'}[name]
    entries = [_plan_step(_describe_plan(workload), workload) for workload in workloads]
    return PlannedSection(name, f'protojax: the training step and {what}', 'step', tuple(entries))


def _plan_step(label, workload, **options):
    """A training step of protojax."""
    options = {'kernels': True, **options}
    contender = PlannedContender(label, 'contenders', 'training_contender', (workload,), options)
    return PlannedEntry(contender, workload.images, workload.training_flops)


def _describe_plan(workload):
    height, width, channels = workload.image
    sizes = f'{workload.way}-way {workload.shot}-shot {workload.query}-query, {height}x{width}x{channels}'
    return f'{sizes}, {workload.classes:,} classes'
