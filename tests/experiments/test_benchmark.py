"""The benchmark: its counts, and that all contenders compute the same thing and report all there is to report."""

import importlib.util
import json

import jax
import numpy as np
import pytest

from experiments.benchmark import contenders, plan, report, textbook
from experiments.benchmark.__main__ import run
from experiments.benchmark.measuring import Measurement
from experiments.benchmark.workers import Contender, Worker, WorkerError
from experiments.benchmark.workloads import MINIIMAGENET, OMNIGLOT, Workload, training_flops

TINY = Workload(way=4, shot=2, query=2, image=(20, 20, 1), classes=6, items=5, episodes=20)
SIZES = {'way': TINY.way, 'shot': TINY.shot, 'query': TINY.query}
FIELDS = [key for _, key, _ in report.COLUMNS]
HAS_TORCH = importlib.util.find_spec('torch') is not None


def test_operations_of_a_step_are_those_of_its_convolutions():
    assert round(training_flops(OMNIGLOT) / 1e9, 1) == 20.9
    assert round(training_flops(MINIIMAGENET) / 1e9) == 223


def blocks_of(params):
    """protojax's parameters of each block, with scales and shifts that leave nothing out."""
    rng = np.random.default_rng(1)
    for i in range(4):
        block = params[f'ConvBlock_{i}']
        scale, bias = (rng.normal(size=block['scale'].shape).astype(np.float32) for _ in range(2))
        yield {'kernel': np.asarray(block['kernel']), 'scale': scale, 'bias': bias}


@pytest.fixture(scope='module')
def ours():
    """Key, data set, blocks, and protojax's loss and gradients by block."""
    task = contenders.task_of(TINY, kernels=True)
    params, batch_stats = task.initialize(jax.random.key(0))
    blocks = list(blocks_of(params['encoder']))
    params = {**params, 'encoder': {f'ConvBlock_{i}': block for i, block in enumerate(blocks)}}
    dataset, key = contenders.dataset_of(TINY), jax.random.key(3)
    gradient = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (loss, _), gradients = gradient(params, batch_stats, dataset, key)
    return key, dataset, blocks, loss, [gradients['encoder'][f'ConvBlock_{i}'] for i in range(4)]


def assert_same(ours, loss, gradients):
    np.testing.assert_allclose(loss, ours[3], rtol=1e-4)
    for expected, found in zip(ours[4], gradients, strict=True):
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, atol=1e-3 * np.abs(values).max(), err_msg=name)


def test_textbook_flax_computes_what_protojax_does(ours):
    key, dataset, blocks, *_ = ours
    _, params, batch_stats, *_ = textbook.start(TINY)
    for i, block in enumerate(blocks):
        params[f'Conv_{i}'] = {**params[f'Conv_{i}'], 'kernel': block['kernel']}
        params[f'BatchNorm_{i}'] = {'scale': block['scale'], 'bias': block['bias']}
    gradient = jax.value_and_grad(lambda *args: textbook.loss_and_statistics(*args, sizes=SIZES), has_aux=True)
    (loss, _), found = jax.jit(gradient)(params, batch_stats, dataset, key)
    assert_same(ours, loss, [{**found[f'Conv_{i}'], **found[f'BatchNorm_{i}']} for i in range(4)])


@pytest.mark.skipif(not HAS_TORCH, reason='PyTorch is not installed')
@pytest.mark.parametrize('layout', ['contiguous_format', 'channels_last'])
def test_pytorch_computes_what_protojax_does(ours, layout):
    import torch

    from experiments.benchmark import torch_contenders
    from protojax.episodes import sample_episode

    key, dataset, blocks, *_ = ours
    layout = getattr(torch, layout)
    model, _ = torch_contenders.start(TINY, layout)
    layers = [(model[4 * i], model[4 * i + 1]) for i in range(4)]
    with torch.no_grad():
        for block, (convolution, norm) in zip(blocks, layers, strict=True):
            convolution.weight.copy_(torch.tensor(block['kernel'].transpose(3, 2, 0, 1)))
            norm.weight.copy_(torch.tensor(block['scale']))
            norm.bias.copy_(torch.tensor(block['bias']))
    episode = sample_episode(key, jax.device_put(dataset), **SIZES)
    images = [np.asarray(x, np.float32).transpose(0, 3, 1, 2) / 255 for x in (episode.support, episode.query)]
    parts = [torch.tensor(x).unflatten(0, (TINY.way, -1)) for x in images]
    loss, _ = torch_contenders.episode_loss(model, *parts, layout=layout)
    loss.backward()
    found = []
    for convolution, norm in layers:
        kernel = convolution.weight.grad.numpy().transpose(2, 3, 1, 0)
        found.append({'kernel': kernel, 'scale': norm.weight.grad.numpy(), 'bias': norm.bias.grad.numpy()})
    assert_same(ours, loss.item(), found)


@pytest.mark.skipif(not HAS_TORCH, reason='PyTorch is not installed')
def test_pytorch_draws_different_images_of_different_classes():
    import torch

    from experiments.benchmark import torch_contenders

    numbers = torch.arange(TINY.classes * TINY.items, dtype=torch.uint8).view(TINY.classes, TINY.items, 1, 1, 1)
    support, query = torch_contenders.draw_episode(numbers, TINY)
    drawn = torch.cat([support, query], 1).mul(255).round().int().view(TINY.way, -1)
    assert drawn.unique().numel() == TINY.images
    assert (drawn // TINY.items == drawn[:, :1] // TINY.items).all()
    assert (drawn[:, 0] // TINY.items).unique().numel() == TINY.way


def test_a_run_reports_everything_and_leaves_out_who_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv('XLA_FLAGS')  # one device compiles quicker
    section = plan.training_section('tiny', 'Tiny training', TINY)
    wrong = plan.Entry(Contender('wrong', 'workloads', 'no_such_function', ()))
    section = section._replace(entries=(section.entries[0], wrong))
    yardsticks = plan.matmuls(64)[:1]
    run([section], yardsticks, tmp_path / 'figures.json', rounds=2, seconds=0.01)
    figures = json.loads((tmp_path / 'figures.json').read_text())
    (found,) = figures['sections']
    (row,) = found['rows']
    assert all(row[field] > 0 for field in FIELDS)
    assert len(row['turns']) == 2 and row['seconds'] == min(row['turns'])
    assert found['matmul_gflops']['matmul in JAX'] > 0
    assert 'no_such_function' in found['left_out']['wrong']
    assert 0 <= found['idle_share'] < 1
    assert figures['machine']['versions']['jax'] == jax.__version__
    assert '| protojax |' in capsys.readouterr().out


def test_seconds_are_scaled_to_the_unit_and_compared_with_the_first():
    yardsticks = plan.matmuls(100)
    section = plan.evaluation_section('evaluation', TINY)
    seconds = {'protojax': 2.0, 'PyTorch NCHW, each episode embedded (scaled)': 0.5, 'matmul in JAX': 1.0}
    measured = {name: Measurement(9.0, [value + 1, value, value + 3], 2**20) for name, value in seconds.items()}
    first, other = report.summary(section, yardsticks, measured, None, {})['rows']
    assert (first['seconds'], first['median_seconds'], first['images_per_second']) == (2, 3, 15)
    assert (other['seconds'], other['median_seconds'], other['ratio_to_first']) == (10, 30, 5)
    assert other['images_per_second'] == TINY.images / 0.5
    assert other['gflops'] == pytest.approx(other['share_of_matmul'] * 2e6 / 1e9)


def test_a_process_that_ends_is_not_waited_for():
    worker = Worker(Contender('built, never run', 'plan', 'sections', ()))
    worker._process.kill()
    with pytest.raises(WorkerError, match='its process ended with code -9'):
        worker.run(1)


def test_time_between_programs_is_idle():
    class Event:
        def __init__(self, start, stop, name='ThunkExecutor::Execute'):
            self.start_ns, self.duration_ns, self.name = start, stop - start, name

    class Holder:
        def __init__(self, **parts):
            self.__dict__.update(parts)

    events = [Event(0, 10), Event(5, 40), Event(60, 100), Event(40, 60, 'something else')]
    profile = Holder(planes=[Holder(lines=[Holder(events=events)])])
    assert contenders.idle_share(profile) == 0.2
    assert contenders.idle_share(Holder(planes=[])) is None


def test_protojax_and_textbook_flax_evaluate_noise():
    assert 0 < contenders.evaluation(TINY, kernels=False)(1) < 100
    assert 0 < textbook.evaluation(TINY)(2) < 100
