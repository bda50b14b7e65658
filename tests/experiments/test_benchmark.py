"""The benchmark: its counts, and that all contenders compute the same thing and report all there is to report."""

import importlib.util
import json
import os
import pathlib

import jax
import numpy as np
import pytest
import quick_compiler

from experiments.benchmark import contenders, textbook
from experiments.benchmark.__main__ import measure_sections
from experiments.benchmark.contenders import contender_dataset, contender_task
from experiments.benchmark.measuring import Measurement
from experiments.benchmark.plan import (
    PlannedContender,
    PlannedEntry,
    plan_evaluation_section,
    plan_matmuls,
    plan_training_section,
)
from experiments.benchmark.report import (
    COLUMNS,
    MOST_SWING,
    earlier_sections,
    report_for_readme,
    reported_code,
    section_report,
    section_summary,
)
from experiments.benchmark.textbook import start_textbook, textbook_loss
from experiments.benchmark.workers import Worker, WorkerError
from experiments.benchmark.workloads import MINIIMAGENET, OMNIGLOT, Workload

TINY = Workload(way=4, shot=2, query=2, image=(20, 20, 1), classes=6, items=5, episodes=20)
SIZES = {'way': TINY.way, 'shot': TINY.shot, 'query': TINY.query}
FIELDS = [key for _, key, _ in COLUMNS]
ROOT = pathlib.Path(__file__).parents[2]
HAS_TORCH = importlib.util.find_spec('torch') is not None


def test_operations_of_a_step_are_those_of_its_convolutions():
    assert round(OMNIGLOT.training_flops / 1e9, 1) == 20.9
    assert round(MINIIMAGENET.training_flops / 1e9) == 223


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
    task = contender_task(TINY, kernels=True)
    params, batch_stats = task.initialize(jax.random.key(0))
    blocks = list(blocks_of(params['encoder']))
    params = {**params, 'encoder': {f'ConvBlock_{i}': block for i, block in enumerate(blocks)}}
    dataset, key = contender_dataset(TINY), jax.random.key(3)
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
    _, params, batch_stats, *_ = start_textbook(TINY)
    for i, block in enumerate(blocks):
        params[f'Conv_{i}'] = {**params[f'Conv_{i}'], 'kernel': block['kernel']}
        params[f'BatchNorm_{i}'] = {'scale': block['scale'], 'bias': block['bias']}
    gradient = jax.value_and_grad(lambda *args: textbook_loss(*args, sizes=SIZES), has_aux=True)
    (loss, _), found = jax.jit(gradient)(params, batch_stats, dataset, key)
    assert_same(ours, loss, [{**found[f'Conv_{i}'], **found[f'BatchNorm_{i}']} for i in range(4)])


@pytest.mark.skipif(not HAS_TORCH, reason='PyTorch is not installed')
@pytest.mark.parametrize('layout', ['contiguous_format', 'channels_last'])
def test_pytorch_computes_what_protojax_does(ours, layout):
    import torch

    from experiments.benchmark.torch_contenders import start_torch, torch_episode_loss
    from protojax.episodes import sample_episode

    key, dataset, blocks, *_ = ours
    layout = getattr(torch, layout)
    model, _ = start_torch(TINY, layout)
    layers = [(model[4 * i], model[4 * i + 1]) for i in range(4)]
    with torch.no_grad():
        for block, (convolution, norm) in zip(blocks, layers, strict=True):
            convolution.weight.copy_(torch.tensor(block['kernel'].transpose(3, 2, 0, 1)))
            norm.weight.copy_(torch.tensor(block['scale']))
            norm.bias.copy_(torch.tensor(block['bias']))
    episode = sample_episode(key, jax.device_put(dataset), **SIZES)
    images = [np.asarray(x, np.float32).transpose(0, 3, 1, 2) / 255 for x in (episode.support, episode.query)]
    parts = [torch.tensor(x).unflatten(0, (TINY.way, -1)) for x in images]
    loss, _ = torch_episode_loss(model, *parts, layout=layout)
    loss.backward()
    found = []
    for convolution, norm in layers:
        kernel = convolution.weight.grad.numpy().transpose(2, 3, 1, 0)
        found.append({'kernel': kernel, 'scale': norm.weight.grad.numpy(), 'bias': norm.bias.grad.numpy()})
    assert_same(ours, loss.item(), found)


@pytest.mark.skipif(not HAS_TORCH, reason='PyTorch is not installed')
def test_pytorch_draws_different_images_of_different_classes():
    import torch

    from experiments.benchmark.torch_contenders import draw_torch_episode

    numbers = torch.arange(TINY.classes * TINY.items, dtype=torch.uint8).view(TINY.classes, TINY.items, 1, 1, 1)
    support, query = draw_torch_episode(numbers, TINY)
    drawn = torch.cat([support, query], 1).mul(255).round().int().view(TINY.way, -1)
    assert drawn.unique().numel() == TINY.images
    assert (drawn // TINY.items == drawn[:, :1] // TINY.items).all()
    assert (drawn[:, 0] // TINY.items).unique().numel() == TINY.way


def test_a_run_reports_everything_and_leaves_out_who_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv('XLA_FLAGS', quick_compiler.flags())  # one device compiles quicker, and what is compiled is kept
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', str(tmp_path / 'compiled'))
    monkeypatch.setenv('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
    section = plan_training_section('tiny', 'Tiny training', TINY)
    wrong = PlannedEntry(PlannedContender('wrong', 'workloads', 'no_such_function', ()))
    section = section._replace(entries=(section.entries[0], wrong), fits_memory=False)
    yardsticks = plan_matmuls(64)[:1]
    measure_sections([section], yardsticks, tmp_path / 'figures.json', rounds=2, seconds=0.01, code={'commit': 'abc'})
    figures = json.loads((tmp_path / 'figures.json').read_text())
    (found,) = figures['sections']
    (row,) = found['rows']
    assert all(row[field] > 0 for field in FIELDS if field != 'ratio_to_first')
    assert row['ratio_to_first'] == (1 if found['matmul_swing'] <= MOST_SWING else None)  # a busy machine
    assert len(row['turns']) == 2 and row['seconds'] == min(row['turns'])
    assert found['matmul_gflops']['matmul in JAX'] > 0
    assert 'no_such_function' in found['left_out']['wrong']
    assert 0 <= found['idle_share'] < 1
    assert found['commit'] == 'abc'
    assert figures['machine']['versions']['jax'] == jax.__version__
    assert '| protojax ' in capsys.readouterr().out


def evaluated(turns):
    """A section whose contenders took some multiples of these seconds in their rounds."""
    seconds = {'protojax': 2.0, 'PyTorch NCHW, each episode embedded (scaled)': 0.5, 'matmul in JAX': 1.0}
    measured = {name: Measurement(9.0, [value * t for t in turns], 2**20) for name, value in seconds.items()}
    return section_summary(plan_evaluation_section('evaluation', TINY), plan_matmuls(100), measured, None, {})


def test_seconds_are_scaled_to_the_unit_and_compared_with_the_first():
    first, other = evaluated([1.2, 1, 1.4])['rows']
    assert (first['seconds'], first['median_seconds'], first['images_per_second']) == (2, 2.4, 15)
    assert (other['seconds'], other['median_seconds'], other['ratio_to_first']) == (10, 12, 5)
    assert other['swing'] == pytest.approx(2 / 7)
    assert other['images_per_second'] == TINY.images / 0.5
    assert other['gflops'] == pytest.approx(other['share_of_matmul'] * 2e6 / 1e9)


def test_an_uneven_machine_gives_no_ratios():
    even, uneven = evaluated([1.2, 1, 1.4]), evaluated([1, 1.6])
    assert all(row['ratio_to_first'] is not None for row in even['rows'])
    assert all(row['ratio_to_first'] is None for row in uneven['rows'])
    assert uneven['matmul_swing'] == pytest.approx(0.375)
    assert 'No ratios' in section_report(uneven)
    assert 'No ratios' not in section_report(even)


def test_figures_name_the_code_and_no_path(monkeypatch):
    monkeypatch.setattr('sys.argv', ['x', '--quick', '--output=/a/b.json', f'--baseline={ROOT}'])
    code = reported_code(str(ROOT))
    assert code['command'] == 'python -m experiments.benchmark --quick --baseline=PATH'
    assert code['commit'] == code['baseline']
    assert str(ROOT) not in json.dumps(code)


def test_sections_of_earlier_runs_on_this_machine_stay(tmp_path):
    output, machine = tmp_path / 'figures.json', {'processor': 'one', 'versions': {'jax': '1'}, 'load_before': 3}
    assert earlier_sections(output, machine) == []
    output.write_text(json.dumps({'machine': machine, 'sections': [{'section': 'omniglot'}]}))
    assert earlier_sections(output, machine | {'load_before': 0}) == [{'section': 'omniglot'}]
    assert earlier_sections(output, machine | {'versions': {'jax': '2'}}) == []
    output.write_text('{"machine"')
    assert earlier_sections(output, machine) == []


def test_a_contender_has_its_own_environment_and_another_checkout(tmp_path):
    package = tmp_path / 'experiments' / 'benchmark'
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / '__init__.py').touch()
    (package / 'contenders.py').write_text(
        'import os\ndef training(workload, *, kernels):\n    return lambda steps: (workload.way, os.environ["COLOUR"])'
    )
    contender = PlannedContender(
        'other', 'contenders', 'training_contender', (TINY,), {'kernels': True}, {'COLOUR': 'red'}, str(tmp_path)
    )
    worker = Worker(contender)
    assert worker.run(1).value == (TINY.way, 'red')
    worker.stop()
    assert 'COLOUR' not in os.environ


def readme_figures():
    """Figures of the three sections of README, of two contenders each."""
    sections = []
    for name, unit, other in (('omniglot', 'step', 'PyTorch NCHW'), ('miniimagenet', 'step', 'PyTorch NCHW')):
        rows = [('protojax', 0.05, None, 600), (other, 0.4, 8.0, 800)]
        sections.append({'section': name, 'unit': unit, 'rows': [readme_row(*row) for row in rows]})
    rows = [('protojax', 2.0, 1.0, 400), ('textbook Flax, each episode embedded (scaled)', 106.4, 53.2, 900)]
    sections.append({'section': 'evaluation', 'unit': '1,000 episodes', 'rows': [readme_row(*row) for row in rows]})
    return {'sections': sections}


def readme_row(contender, seconds, ratio, memory):
    return {'contender': contender, 'seconds': seconds, 'ratio_to_first': ratio, 'peak_memory_mb': memory}


def test_table_of_the_readme_by_hand():
    lines = [
        [cell.strip() for cell in line.split('|')[1:-1]] for line in report_for_readme(readme_figures()).splitlines()
    ]
    assert lines[0] == ['', 'Omniglot, training step', 'miniImageNet, training step', '1,000 test episodes']
    assert lines[2:] == [
        ['protojax', '0.05 s', '0.05 s', '2 s'],
        ['PyTorch, NCHW', '0.4 s (8.0x)', '0.4 s (8.0x)', ''],
        ['textbook Flax, embedding each episode', '', '', '106 s (53.2x)'],
        ['peak memory: protojax / the lowest of PyTorch', '600 / 800 MB', '600 / 800 MB', '400 MB'],
    ]


FIGURES = ROOT / 'experiments' / 'results' / 'benchmark.json'


@pytest.mark.skipif(not FIGURES.exists(), reason='no figures are published')
def test_readme_shows_the_published_figures():
    assert report_for_readme(json.loads(FIGURES.read_text())) in (ROOT / 'README.md').read_text()


def test_a_process_that_ends_is_not_waited_for():
    worker = Worker(PlannedContender('built, never run', 'plan', 'plan_sections', ()))
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
    assert contenders.contender_idle_share(profile) == 0.2
    assert contenders.contender_idle_share(Holder(planes=[])) is None


@pytest.mark.skipif(not HAS_TORCH, reason='PyTorch is not installed')
def test_pytorch_trains_in_bfloat16_and_evaluates_stored_embeddings():
    from experiments.benchmark import torch_contenders

    torch_contenders.torch_training(TINY, layout='channels_last', autocast=True)(1)
    assert 0 <= torch_contenders.torch_stored_evaluation(TINY, layout='channels_last', batch=7)(1) <= 1


@pytest.mark.parametrize('placement', ['host', 'file'])
def test_protojax_trains_from_the_host(placement, monkeypatch):
    monkeypatch.delenv('XLA_FLAGS')
    seen = []

    def step(state, drawn, key):
        seen.append(drawn)
        return state

    monkeypatch.setattr(contenders, 'parallelize', lambda *_, **__: step)
    contenders.training_contender(TINY, kernels=False, placement=placement)(2)
    assert [drawn.items.shape for drawn in seen] == 2 * [(TINY.way, TINY.shot + TINY.query, *TINY.image)]
    assert any(drawn.items.any() for drawn in seen) == (placement == 'host')


def test_protojax_and_textbook_flax_evaluate_noise():
    assert 0 < contenders.evaluation_contender(TINY, kernels=False)(1) < 100
    assert 0 < textbook.textbook_evaluation(TINY)(2) < 100
