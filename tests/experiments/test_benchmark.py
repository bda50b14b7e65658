"""The benchmark: operation counts, equal computations, and complete reports."""

import importlib.util
import json
import os
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.benchmark import contenders, plan, report, textbook
from experiments.benchmark.__main__ import measure_sections
from experiments.benchmark.plan import Contender, Section, Workload
from protojax.encoders import EfficientNetLite

TINY = Workload(way=4, shot=2, query=2, image=(20, 20, 1), classes=6, items=5, episodes=20)


@pytest.fixture(scope='module')
def ours():
    """Key, data set, parameters by block, and protojax's loss."""
    learner, rng = contenders.learner(TINY, kernels=True), np.random.default_rng(1)
    params, batch_stats = jax.jit(learner.init)(jax.random.key(0))
    blocks = {}
    for name, block in params['encoder'].items():
        scale, bias = (rng.normal(size=block['scale'].shape).astype(np.float32) for _ in range(2))
        blocks[name] = {'kernel': np.asarray(block['kernel']), 'scale': scale, 'bias': bias}
    dataset, key = contenders.dataset(TINY), jax.random.key(3)
    loss, _ = jax.jit(learner.loss)({**params, 'encoder': blocks}, batch_stats, dataset, key)
    return key, dataset, [blocks[f'ConvBlock_{i}'] for i in range(4)], loss


def test_textbook_flax_computes_the_same_as_protojax(ours):
    key, dataset, blocks, expected = ours
    params, batch_stats, *_ = textbook.start(TINY)
    for i, block in enumerate(blocks):
        params[f'Conv_{i}'] = {**params[f'Conv_{i}'], 'kernel': block['kernel']}
        params[f'BatchNorm_{i}'] = {'scale': block['scale'], 'bias': block['bias']}
    loss, _ = jax.jit(partial(textbook.episode_loss, sizes=TINY.sizes))(params, batch_stats, dataset, key)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)


@pytest.mark.skipif(importlib.util.find_spec('torch') is None, reason='PyTorch is not installed')
def test_pytorch_computes_the_same_as_protojax(ours):
    import torch

    from experiments.benchmark import torch_contenders
    from protojax.episodes import sample_episode

    key, dataset, blocks, expected = ours
    layout, model, _ = torch_contenders.start(TINY, 'channels_last')
    with torch.no_grad():
        for i, block in enumerate(blocks):
            model[4 * i].weight.copy_(torch.tensor(block['kernel'].transpose(3, 2, 0, 1)))
            model[4 * i + 1].weight.copy_(torch.tensor(block['scale']))
            model[4 * i + 1].bias.copy_(torch.tensor(block['bias']))
    episode = sample_episode(key, jax.device_put(dataset), **TINY.sizes)
    images = [np.asarray(x, np.float32).transpose(0, 3, 1, 2) / 255 for x in (episode.support, episode.query)]
    parts = [torch.tensor(x).unflatten(0, (TINY.way, -1)) for x in images]
    loss, _ = torch_contenders.episode_loss(model, *parts, layout=layout)
    np.testing.assert_allclose(loss.item(), expected, rtol=1e-4)
    torch_contenders.training(TINY, layout='channels_last', autocast=True)(1)
    assert 0 <= torch_contenders.stored_evaluation(TINY, layout='channels_last', batch=7)(1) <= 1


SLEEPING = """\
import os, signal, sys, time

assert 'jax' not in sys.modules  # a process only contains the libraries that it uses

def training(workload, seconds):
    return lambda steps: time.sleep(seconds * steps * float(os.environ['FACTOR']))

def killed(workload):
    return lambda steps: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_reports_everything_and_leaves_out_failures(tmp_path, capsys, monkeypatch):
    """With contenders that only sleep, and with an environment variable."""
    (tmp_path / 'sleeping.py').write_text(SLEEPING)
    monkeypatch.syspath_prepend(tmp_path)
    one = Contender('a', 'sleeping', 'training', TINY, {'seconds': 0.001}, {'FACTOR': '2'})
    others = one._replace(name='wrong', environment={}), one._replace(name='killed', function='killed', options={})
    section, output = Section('tiny', 'Tiny', 'step', [one, *others]), tmp_path / 'results.json'
    yardstick = one._replace(name='matmul', workload=10)
    measure_sections([section], yardstick, output, rounds=2, seconds=0.002, code={'commit': 'abc'})
    results = json.loads(output.read_text())
    (found,) = results['sections']
    (row,) = found['rows']
    assert all(row[key] > 0 for _, key, _ in report.COLUMNS if key not in ('ratio_to_first', 'swing'))
    assert len(row['turns']) == 2 and row['seconds'] == min(row['turns']) >= 0.002
    assert found['left_out']['wrong'] == "KeyError: 'FACTOR'" and 'BrokenProcessPool' in found['left_out']['killed']
    assert found['commit'] == 'abc' and results['machine']['versions']['jax'] == jax.__version__
    assert '| a ' in capsys.readouterr().out and 'FACTOR' not in os.environ


def test_seconds_are_scaled_to_the_unit_and_compared_with_the_first():
    turns = {'protojax': [2.4, 2, 2.8], 'PyTorch NCHW, each episode embedded (scaled)': [0.6, 0.5, 0.7]}
    turns['matmul'] = [1.2, 1, 1.4]
    measured = {name: SimpleNamespace(turns=own, first_step=9.0, peak_memory=2**20) for name, own in turns.items()}
    first, other = report.summary(plan.evaluation(TINY), plan.matmul(100), measured, {})['rows']
    assert (first['seconds'], first['median_seconds']) == (2, 2.4)
    assert (other['seconds'], other['median_seconds'], other['ratio_to_first']) == (10, 12, 5)
    assert other['swing'] == pytest.approx(2 / 7)


def test_results_name_the_code_and_no_path(monkeypatch):
    monkeypatch.setattr('sys.argv', ['x', '--rounds=2', '--output=/a/b.json'])
    assert report.code()['command'] == 'python -m experiments.benchmark --rounds=2'


def test_protojax_and_textbook_flax_evaluate_noise():
    assert 0 < contenders.evaluation(TINY, kernels=False)(1) < 100
    assert 0 < textbook.evaluation(TINY)(2) < 100


def test_encoders_embed_the_same_photographs(monkeypatch):
    monkeypatch.setattr(contenders.pretrained, 'ENCODERS', {'EfficientNetLite': partial(EfficientNetLite, width=0.3)})
    workload = plan.ENCODERS['photos']._replace(batch=2)
    assert contenders.encoding(workload)(1) == (2, 1280)
    assert {f'{name}-{batch}' for name in plan.ENCODERS for batch in (1, 16, 64)} <= plan.sections().keys()


def test_the_published_table_has_encoders_once_they_are_measured():
    row = {'contender': 'protojax', 'seconds': 0.0123, 'ratio_to_first': 1, 'peak_memory_mb': 1}
    other = {**row, 'contender': 'PyTorch', 'seconds': 0.02, 'ratio_to_first': 1.626}
    names = ('omniglot', 'miniimagenet', 'evaluation', 'photos-16')
    results = {'sections': [{'section': name, 'unit': '9 episodes', 'rows': [row, other]} for name in names]}
    assert report.speed_table(results)[-4:] == [
        *('| encoding an image | photos, batch 16 |', '| --- | --- |'),
        *('| protojax | 0.012 s |', '| PyTorch | 0.02 s (1.63x) |'),
    ]
