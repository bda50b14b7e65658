"""The plan of the benchmark: workloads, and which implementations are measured in which section.

Imports neither JAX nor PyTorch, because each measured process must only contain the libraries that it uses.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

SECONDS = 1.0  # duration of a turn
MATMUL_SIZE = 4096
FILTERS = 64
TUNED_MALLOC = {
    'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=8000000000:'
    'glibc.malloc.trim_threshold=16000000000:glibc.malloc.top_pad=268435456'
}
Run = Callable[[int], Any]  # runs a number of steps and blocks until they are done


class Workload(NamedTuple):
    """Sizes of an episode and of the data set that it is sampled from."""

    way: int
    shot: int
    query: int
    image: tuple[int, int, int]  # height, width, channels
    classes: int
    items: int  # images per class
    episodes: int = 1  # per evaluation

    @property
    def sizes(self) -> dict[str, int]:
        return {'way': self.way, 'shot': self.shot, 'query': self.query}

    @property
    def images(self) -> int:
        """Return the number of images in one episode."""
        return self.way * (self.shot + self.query)

    def __str__(self) -> str:
        sizes = f'{self.way}-way {self.shot}-shot {self.query}-query, {"x".join(map(str, self.image))}'
        return f'{sizes}, {self.classes:,} classes'


class Photos(NamedTuple):
    """A batch of photographs for an encoder that several libraries have."""

    encoder: str  # class in protojax
    timm: str  # name in timm
    options: Mapping  # in timm
    batch: int = 1

    @property
    def images(self) -> np.ndarray:
        """Noise: uint8 [batch, 224, 224, 3]."""
        return np.random.default_rng(0).integers(0, 256, (self.batch, 224, 224, 3), np.uint8)


ENCODERS = {  # vit has the size of dinov2-small
    'photos': Photos('EfficientNetLite', 'tf_efficientnet_lite0', {}),
    'vit': Photos('VisionTransformer', 'vit_small_patch14_dinov2', {'img_size': 224}),
}
OMNIGLOT = Workload(way=60, shot=1, query=5, image=(28, 28, 1), classes=4112, items=20)
# A tenth of miniImageNet's images: the time of a step does not depend on it, and each process has a separate copy.
MINIIMAGENET = Workload(way=20, shot=5, query=15, image=(84, 84, 3), classes=64, items=60)
EVALUATION = Workload(way=20, shot=5, query=15, image=(28, 28, 1), classes=1692, items=20, episodes=1000)


def random_images(workload: Workload) -> np.ndarray:
    """Return a data set of noise: uint8 [classes, items, *image]."""
    shape = (workload.classes, workload.items, *workload.image)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def repeated(once: Callable[[], Any]) -> Run:
    """Return `run` for a blocking function; it returns the last result."""

    def run(steps):
        for _ in range(steps):
            result = once()
        return result

    return run


class Contender(NamedTuple):
    """An implementation: its process calls `function(workload, **options)` of a module."""

    name: str
    module: str  # '.name' in this package
    function: str
    workload: Workload | Photos | int  # or the size of a matrix
    options: Mapping = {}
    environment: Mapping = {}  # variables set at the start of the process
    scale: float = 1  # steps per reported unit


class Section(NamedTuple):
    """Implementations that are measured in turn; ratios are relative to the first."""

    name: str
    title: str
    unit: str  # unit of work whose seconds are reported
    contenders: list[Contender]
    fits_memory: bool = True  # whether all processes fit into memory at once


def sections() -> dict[str, Section]:
    """Return all sections by name."""
    found = [
        _training('omniglot', 'Omniglot', OMNIGLOT),
        _training('miniimagenet', 'miniImageNet', MINIIMAGENET)._replace(fits_memory=False),
        evaluation(EVALUATION),
        _placement(MINIIMAGENET),
        _growth('way', 'way', [OMNIGLOT._replace(way=way) for way in (5, 20, 60)]),
        _growth('size', 'image size', [OMNIGLOT._replace(image=(size, size, 1)) for size in (28, 56, 84)]),
        _growth('classes', 'number of classes', [OMNIGLOT._replace(classes=n) for n in (500, 5000, 50_000)]),
        *(_encoding(name, batch) for name in ENCODERS for batch in (1, 16, 64)),
    ]
    return {section.name: section for section in found}


def _ours(name: str, function: str, workload: Workload, **options) -> Contender:
    return Contender(name, '.contenders', function, workload, {'kernels': True, **options})


def _variants(function: str, workload: Workload) -> list[Contender]:
    """Return the variants of protojax."""
    slower = _ours('protojax, kernels off', function, workload, kernels=False)
    low = _ours('protojax, bfloat16', function, workload, dtype='bfloat16')
    return [_ours('protojax', function, workload), low, slower]


def _torch(name: str, function: str, workload: Workload, *, tuned: bool = False, **options) -> Contender:
    """Return a PyTorch variant; tuned, with an allocator that keeps its memory, the best that users can set."""
    name, environment = (f'{name}, tuned malloc', TUNED_MALLOC) if tuned else (name, {})
    options = {'layout': 'channels_last', **options}
    return Contender(f'PyTorch {name}', '.torch_contenders', function, workload, options, environment)


def matmul(size: int) -> Contender:
    """Return a large float32 matrix product, as a measure of the machine."""
    return Contender('matmul', '.contenders', 'matmul', size)


def _training(name: str, title: str, workload: Workload) -> Section:
    """Compare training steps."""
    contenders = [
        *_variants('training', workload),
        Contender('textbook Flax', '.textbook', 'training', workload),
        _torch('NCHW', 'training', workload, layout='contiguous_format'),
        _torch('channels_last', 'training', workload),
        _torch('channels_last', 'training', workload, tuned=True),
        _torch('bfloat16 autocast', 'training', workload, tuned=True, autocast=True),
        _torch('compiled', 'training', workload, tuned=True, compiled=True),
    ]
    return Section(name, f'Training, {title}: {workload}', 'step', contenders)


def evaluation(workload: Workload) -> Section:
    """Compare evaluations: every image embedded once, or every episode (a sample of episodes, scaled)."""
    each = 'each episode embedded (scaled)'
    sampled = [
        Contender(f'textbook Flax, {each}', '.textbook', 'evaluation', workload),
        _torch(f'NCHW, {each}', 'evaluation', workload, layout='contiguous_format'),
        _torch(f'channels_last, {each}', 'evaluation', workload),
    ]
    contenders = [
        *_variants('evaluation', workload),
        _torch('channels_last', 'stored_evaluation', workload),
        _torch('channels_last', 'stored_evaluation', workload, tuned=True),
        *(one._replace(scale=workload.episodes) for one in sampled),
    ]
    images = workload.classes * workload.items
    title = f'Evaluation, {workload.episodes:,} episodes: {workload}, {images:,} images'
    return Section('evaluation', title, f'{workload.episodes:,} episodes', contenders)


def _placement(workload: Workload) -> Section:
    """Compare training steps with data on the device and on the host."""
    contenders = [
        _ours('data on the device', 'training', workload),
        _ours('data on the host', 'training', workload, placement='host'),
    ]
    return Section('placement', f'protojax: location of the data, {workload}', 'step', contenders)


def _growth(name: str, growing: str, workloads: list[Workload]) -> Section:
    """Compare training steps of several sizes."""
    contenders = [_ours(str(workload), 'training', workload) for workload in workloads]
    return Section(name, f'protojax: training step by {growing}', 'step', contenders)


def _encoding(name: str, batch: int) -> Section:
    """Compare encoders of photographs."""
    workload = ENCODERS[name]._replace(batch=batch)
    contenders = [
        Contender('protojax', '.contenders', 'encoding', workload),
        Contender('onnxruntime', '.contenders', 'exported_encoding', workload),
        *(_torch('channels_last', 'encoding', workload, tuned=tuned) for tuned in (False, True)),
    ]
    title = f'Encoder of photographs, {name}: 224x224 pixels, batches of {batch}'
    return Section(f'{name}-{batch}', title, 'image', [one._replace(scale=1 / batch) for one in contenders])
