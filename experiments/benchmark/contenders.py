"""protojax as a contender. Each function builds one and gives `run(n)`, which returns when n steps are done.

Training and evaluation are those of the experiments; only the loop around them is repeated here.
"""

import math
import tempfile
from functools import partial
from itertools import repeat
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmark.workloads import random_images
from protojax.devices import cpu_compiler_options, parallelize, place, usable_devices
from protojax.encoders import Conv4
from protojax.episodes import Dataset
from protojax.evaluation import embedder, episode_scorer
from protojax.hosted import hosted_episodes
from protojax.tasks import few_shot_task
from protojax.training import STEPS_AHEAD, create_state, train_step


def training_contender(workload, *, kernels, dtype='float32', placement='device'):
    """One step: draw an episode and update the parameters; the data lie on the device, the host or in a mapped file."""
    task, devices = contender_task(workload, kernels, dtype), usable_devices(workload.images)
    optimizer = optax.adam(1e-3)
    step = partial(train_step, loss=task.loss, optimizer=optimizer, report_every=100)
    step = parallelize(step, devices, donate=True)
    state = place(create_state(*task.initialize(jax.random.key(0)), optimizer), devices)
    key = jax.random.key(1)
    feed = _contender_feed(workload, placement, key, devices)

    def run(steps):
        nonlocal state
        for i in range(1, steps + 1):
            state = step(state, next(feed), key)
            if i % STEPS_AHEAD == 0:
                jax.block_until_ready(state.step)
        jax.block_until_ready(state)

    return run


def traced_contender(workload, *, kernels):
    """As `training_contender`, under XLA's profiler; `run` gives the share of the time in which no step was at work."""
    train = training_contender(workload, kernels=kernels)

    def run(steps):
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                train(steps)
            trace = next(Path(folder).rglob('*.xplane.pb'))
            return contender_idle_share(jax.profiler.ProfileData.from_file(str(trace)))

    return run


def evaluation_contender(workload, *, kernels, dtype='float32'):
    """One step: embed every image once, then run all episodes on the embeddings."""
    embed = _contender_embedder(workload, kernels, dtype)
    score = _contender_scorer(workload)
    return _repeated_contender(lambda: score(embed()).accuracy)


def embedding_contender(workload, *, kernels):
    """One step: embed every image."""
    embed = _contender_embedder(workload, kernels)
    return _repeated_contender(lambda: embed().items.shape)


def episodes_contender(workload):
    """One step: run all episodes on embeddings."""
    score = _contender_scorer(workload)
    values = np.random.default_rng(0).normal(size=(workload.classes, workload.items, 64)).astype(np.float32)
    return _repeated_contender(lambda: score(Dataset(values, _class_counts(workload))).accuracy)


def matmul_contender(size):
    """One step: the product of two square matrices."""
    x = jnp.ones((size, size))
    product = jax.jit(jnp.matmul, compiler_options=cpu_compiler_options())
    return _repeated_contender(lambda: product(x, x).block_until_ready().shape)


def contender_task(workload, kernels, dtype='float32'):
    sizes = {'way': workload.way, 'shot': workload.shot, 'query': workload.query}
    return few_shot_task(Conv4(kernels=kernels, dtype=jnp.dtype(dtype)), workload.image, **sizes)


def contender_dataset(workload):
    return Dataset(random_images(workload), _class_counts(workload))


def _contender_feed(workload, placement, key, devices):
    """What the steps are given, one after the other: all data, or an episode of those that stay on the host.

    These lie in memory, or in a file that is all holes and takes no room on the disk.
    """
    if placement == 'device':
        return repeat(place(contender_dataset(workload), devices))
    dataset = contender_dataset(workload) if placement == 'host' else Dataset(_zeros(workload), _class_counts(workload))
    return hosted_episodes(dataset, key, 0, way=workload.way, items=workload.shot + workload.query)


def _zeros(workload):
    """A mapped file of zeros in the form of a data set."""
    shape = (workload.classes, workload.items, *workload.image)
    with tempfile.TemporaryFile() as file:
        file.truncate(math.prod(shape))
        return np.memmap(file, np.uint8, 'r', shape=shape)


def _class_counts(workload):
    return np.full(workload.classes, workload.items, np.int32)


def _contender_embedder(workload, kernels, dtype='float32'):
    """A function that embeds the workload's images: () -> Dataset of embeddings."""
    task, devices = contender_task(workload, kernels, dtype), jax.local_devices()
    variables = place(task.initialize(jax.random.key(0)), devices)
    return partial(embedder(task.embed, devices), *variables, place(contender_dataset(workload), devices))


def _contender_scorer(workload):
    """A function that runs the workload's episodes: Dataset of embeddings -> Score."""
    sizes = {'way': workload.way, 'shot': workload.shot, 'query': workload.query, 'episodes': workload.episodes}
    score = episode_scorer(contender_task(workload, kernels=False).classify, jax.local_devices(), **sizes)
    return lambda embedded: score({'classifier': {}}, embedded, jax.random.key(2))


def _repeated_contender(once):
    """`run` of something that waits for its own end; gives the last result."""

    def run(steps):
        for _ in range(steps):
            result = once()
        return result

    return run


def contender_idle_share(profile):
    """Part of the time between the start of the first program and the end of the last in which none was running.

    XLA runs a program as ThunkExecutor::Execute and then waits for its last pieces. None where it has no such names.
    """
    lines = (line for plane in profile.planes for line in plane.lines)
    events = (event for line in lines for event in line.events if event.name.startswith('ThunkExecutor::Execute'))
    spans = sorted((event.start_ns, event.start_ns + event.duration_ns) for event in events)
    if not spans:
        return None
    idle, end = 0, spans[0][1]
    for start, stop in spans:
        idle += max(start - end, 0)
        end = max(end, stop)
    return idle / (end - spans[0][0])
