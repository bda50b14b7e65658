"""Measured functions of protojax. Each returns `run(n)`, which blocks until n steps are done.

Training and evaluation are the same as in the experiments; only the loop around them is repeated here.
"""

from collections.abc import Iterator
from functools import partial
from itertools import repeat

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmark.plan import Photos, Run, Workload, random_images, repeated
from protojax import encoders, export, hosted, pretrained
from protojax.devices import cpu_compiler_options, parallelize, place, usable_devices
from protojax.encoders import Conv4
from protojax.episodes import Dataset
from protojax.evaluation import embedder, episode_scorer
from protojax.learners import Learner, few_shot_learner
from protojax.pretrained import Pretrained
from protojax.training import STEPS_AHEAD, create_state, train_step


def training(workload: Workload, *, kernels: bool, dtype: str = 'float32', placement: str = 'device') -> Run:
    """Step: sample an episode and update the parameters. The data are on the device or the host."""
    task, devices = learner(workload, kernels, dtype), usable_devices(workload.images)
    optimizer = optax.adam(1e-3)
    step = partial(train_step, loss=task.loss, optimizer=optimizer, report_every=100)
    step = parallelize(step, devices, donate=True)
    state = place(create_state(*task.init(jax.random.key(0)), optimizer), devices)
    key = jax.random.key(1)
    feed = _feed(workload, placement, key, devices)

    def run(steps):
        nonlocal state
        for i in range(1, steps + 1):
            state = step(state, next(feed), key)
            if i % STEPS_AHEAD == 0:
                jax.block_until_ready(state.step)
        jax.block_until_ready(state)

    return run


def evaluation(workload: Workload, *, kernels: bool, dtype: str = 'float32') -> Run:
    """Step: embed every image once, then run all episodes on the embeddings."""
    task, devices = learner(workload, kernels, dtype), jax.local_devices()
    variables = place(task.init(jax.random.key(0)), devices)
    embed = partial(embedder(task.embed, devices), *variables, place(dataset(workload), devices))
    score = episode_scorer(task.classify, devices, **workload.sizes, episodes=workload.episodes)
    return repeated(lambda: score(*variables, embed(), jax.random.key(2)).accuracy)


def encoding(workload: Photos) -> Run:
    """Step: embed a batch of photographs."""
    embed, images = _weights(workload).embed, workload.images
    return repeated(lambda: np.asarray(embed(images)).shape)


def exported_encoding(workload: Photos) -> Run:
    """Step: embed a batch of photographs by the exported encoder in onnxruntime."""
    import onnxruntime

    session, images = onnxruntime.InferenceSession(export.to_onnx(_weights(workload))), workload.images
    return repeated(lambda: session.run(None, {'images': images})[0].shape)


def _weights(workload: Photos) -> Pretrained:
    encoder = pretrained.ENCODERS[workload.encoder]()
    return Pretrained(encoder, encoders.init(encoder, jax.random.key(0), encoder.item_shape)[0], {}, {'digest': ''})


def matmul(size: int) -> Run:
    """Step: multiply two square matrices."""
    x = jnp.ones((size, size))
    product = jax.jit(jnp.matmul, compiler_options=cpu_compiler_options())
    return repeated(lambda: product(x, x).block_until_ready().shape)


def learner(workload: Workload, kernels: bool, dtype: str = 'float32') -> Learner:
    return few_shot_learner(Conv4(kernels=kernels, dtype=jnp.dtype(dtype)), workload.image, **workload.sizes)


def dataset(workload: Workload) -> Dataset:
    return Dataset(random_images(workload), np.full(workload.classes, workload.items, np.int32))


def _feed(workload: Workload, placement: str, key: jax.Array, devices: list) -> Iterator:
    """Yield the data of each step: the whole data set, or an episode of data on the host."""
    if placement == 'device':
        return repeat(place(dataset(workload), devices))
    return hosted.episodes(dataset(workload), key, 0, way=workload.way, items=workload.shot + workload.query)
