"""Whole runs under faults: whatever happens, a run goes on to the same end, or stops with one line that says why."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest
import quick_compiler
import tiny
from forks import Forks

from experiments.faults.comparing import compare_workdirs
from experiments.faults.kills import kill_repeatedly, unfinished_when_killed
from experiments.faults.others import FAULTS, failed_in_one_line
from experiments.faults.small_run import small_run_command, small_run_data_dir, start_small_run
from experiments.running import driver
from experiments.running.driver import run_experiment
from experiments.running.fitting import FittingDiverged, fitting_optimizer, fresh_fit
from experiments.running.workdir import WorkdirError, WorkdirMetrics
from protojax.checkpoints import Checkpoints
from protojax.errors import CheckpointError

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def command(tmp_path_factory):
    """A run as a program, on one device; what it compiles is kept for the next."""
    cache = tmp_path_factory.mktemp('compiled')
    return ['env', f'XLA_FLAGS={quick_compiler.flags()}', sys.executable, tiny.__file__, f'--compilation_cache={cache}']


@pytest.fixture(scope='module')
def start(command, tmp_path_factory):
    """A function that starts such a run."""
    forks = Forks(tmp_path_factory.mktemp('programs'))

    def start(workdir, moment=''):
        return forks.start(*command[3:], f'--workdir={workdir}', XLA_FLAGS=quick_compiler.flags(), MOMENT=moment)

    yield start
    forks.end()


@pytest.fixture(scope='module', autouse=True)
def one_device():
    """Of the eight that tests see, for runs in this process too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, 'devices_for', lambda config, task: jax.devices()[:1])
        yield


@pytest.fixture(scope='module')
def peace(start, tmp_path_factory):
    """The workdir of such a run that nothing happened to."""
    workdir = tmp_path_factory.mktemp('peace')
    finish(start(workdir))
    return workdir


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """The workdir of a run in this process."""
    workdir = tmp_path_factory.mktemp('finished')
    run_experiment(config(workdir), tiny.EXPERIMENT)
    return workdir


@pytest.fixture
def unfinished(finished, tmp_path):
    """Its copy, set back to the last but one checkpoint."""
    workdir = tmp_path / 'unfinished'
    shutil.copytree(finished, workdir)
    (workdir / 'results.json').unlink()
    shutil.rmtree(newest(workdir / 'train'))
    return workdir


def config(workdir, **values):
    return dataclasses.replace(tiny.RECIPE, workdir=str(workdir), **values)


def newest(stage):
    return max(stage.glob('[0-9]*'), key=lambda path: int(path.name) if path.name.isdigit() else -1)


def finish(program):
    assert program.wait(300) == 0, program.output


def one_line(command, workdir, *flags, file_size):
    """The error of a run that may write no file of more bytes and fails as it should: without a traceback."""
    limit = f'resource.setrlimit(resource.RLIMIT_FSIZE, ({file_size}, {file_size}))'
    program = f'import os, resource, sys; {limit}; os.execvp(sys.argv[1], sys.argv[1:])'
    arguments = [sys.executable, '-c', program, *command, f'--workdir={workdir}', *flags]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith('error: ')]
    assert 'Traceback' not in ended.stderr
    return line


def test_killed_at_awkward_moments(start, peace, tmp_path):
    for moment in tiny.DEATHS:
        program = start(tmp_path, moment=moment)
        assert program.wait(300) == -signal.SIGKILL, (moment, program.output)
        if 'save' in moment:
            assert unfinished_when_killed(tmp_path), moment
        if moment == 'later save':
            assert any(path.name.isdigit() for path in (tmp_path / 'search').iterdir())
    finish(start(tmp_path))
    assert not compare_workdirs(peace, tmp_path)


def test_killed_while_preparing_data_and_drawing_pictures(tmp_path, monkeypatch):
    """Two of the moments of experiments.faults, which has more time."""
    monkeypatch.setenv('XLA_FLAGS', quick_compiler.flags())
    moments = ('preparing data', 'drawing pictures')
    command, data_dir = [*small_run_command(tmp_path), '--episodes=8'], small_run_data_dir(tmp_path)
    outcomes = list(kill_repeatedly(command, tmp_path, kills=2, seed=1, data_dir=data_dir, moments=moments))
    assert outcomes == [('preparing data', 0, []), ('drawing pictures', 0, []), ('end', 0, [])]


def test_another_fault_that_experiments_faults_tries(command, peace, tmp_path):
    """One of them; all the others are in tests here or of jobs."""
    shutil.copytree(peace, tmp_path / 'peace')
    _, damage_metrics = FAULTS['broken line in metrics.jsonl']
    assert damage_metrics(command, tmp_path) == []
    fails = start_small_run([sys.executable, '-c', "raise SystemExit('error: one')"], tmp_path / 'peace')
    assert failed_in_one_line(fails, tmp_path / 'peace', 'other words')


def test_differences_are_seen(peace, tmp_path):
    other = tmp_path / 'other'
    shutil.copytree(peace, other)
    metrics = (other / 'metrics.jsonl').read_text().splitlines(keepends=True)
    (other / 'metrics.jsonl').write_text(''.join(metrics[:3] + metrics[2:]))
    (other / 'results.json').unlink()
    shutil.rmtree(newest(other / 'train'))
    assert [problem.split()[1] for problem in compare_workdirs(peace, other)] == [
        'metrics.jsonl',
        'results.json',
        'train',
    ]


def test_stopped_by_signals_while_another_run_is_refused(start, peace, tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        first = start(tmp_path, moment='training')
        first.wait_until_halted(300)
        with pytest.raises(WorkdirError, match=f'another run is using {tmp_path}'):
            run_experiment(config(tmp_path), tiny.EXPERIMENT)
        for sent in (number, signal.SIGCONT):
            os.kill(first.number, sent)
        assert first.wait(60) > 0
        assert 'stopped at episode' in first.output
        (how_to_go_on,) = [line for line in first.output.splitlines() if line.endswith(f' --workdir={tmp_path}')]
        assert f'{tiny.__file__} --compilation_cache=' in how_to_go_on
    finish(start(tmp_path))
    assert not compare_workdirs(peace, tmp_path)


def truncate(checkpoint):
    file = largest(checkpoint)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(checkpoint):
    file = largest(checkpoint)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


def lose_a_file(checkpoint):
    largest(checkpoint).unlink()


def empty(checkpoint):
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def largest(checkpoint):
    return max((path for path in checkpoint.rglob('*') if path.is_file()), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize('damage', [truncate, flip, lose_a_file, empty])
def test_goes_on_from_the_checkpoint_before_a_damaged_one(finished, tmp_path, caplog, damage):
    workdir = tmp_path / 'damaged'
    shutil.copytree(finished, workdir)
    damaged = newest(workdir / 'train')
    damage(damaged)
    run_experiment(config(workdir), tiny.EXPERIMENT)
    assert f'checkpoint {damaged.name} is damaged' in caplog.text
    assert not compare_workdirs(finished, workdir)


def test_no_fresh_start_where_all_checkpoints_are_damaged(finished, tmp_path):
    workdir = tmp_path / 'damaged'
    shutil.copytree(finished, workdir)
    for checkpoint in (workdir / 'train').iterdir():
        flip(checkpoint)
    with pytest.raises(CheckpointError, match='all checkpoints in .*train are damaged'):
        run_experiment(config(workdir), tiny.EXPERIMENT)


def test_disk_full_during_a_save(command, start, peace, tmp_path):
    workdir = tmp_path / 'full'
    shutil.copytree(peace, workdir)
    shutil.rmtree(workdir / 'train')
    before = sorted((workdir / 'search').iterdir())
    line = one_line(command, workdir, file_size=8000)  # metrics fit, the description of a checkpoint does not
    assert 'cannot save step 8 in' in line and 'File too large' in line
    assert sorted((workdir / 'search').iterdir()) == before
    finish(start(workdir))
    assert not compare_workdirs(peace, workdir)


def test_where_nothing_can_be_written_any_more_the_first_failure_is_told(finished, tmp_path, monkeypatch):
    workdir = tmp_path / 'full'
    shutil.copytree(finished, workdir)
    shutil.rmtree(workdir / 'train')

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_):
        monkeypatch.setattr('experiments.running.workdir.write_whole', full)
        raise CheckpointError('cannot save step 4')

    monkeypatch.setattr(Checkpoints, 'save', fail)
    with pytest.raises(CheckpointError, match='cannot save step 4'):
        run_experiment(config(workdir), tiny.EXPERIMENT)


@pytest.mark.parametrize('reports', [1, 8])  # of eight
def test_a_workdir_that_is_deleted_during_the_run(tmp_path, monkeypatch, reports):
    workdir, write, written = tmp_path / 'run', WorkdirMetrics.write, []

    def write_and_delete(self, *args, **values):
        write(self, *args, **values)
        written.append(args)
        if len(written) == reports:
            shutil.rmtree(workdir)

    monkeypatch.setattr(WorkdirMetrics, 'write', write_and_delete)
    with pytest.raises(WorkdirError, match=f'{workdir} was deleted or moved during the run'):
        run_experiment(config(workdir, episodes=32, checkpoint_every=100), tiny.EXPERIMENT)
    assert len(written) == reports


@pytest.mark.parametrize('name', ['config.json', 'metrics.jsonl'])
@pytest.mark.parametrize('content', [b'', b'{', b'[]', b'7', b'\xff', b'[' * 100_000])
def test_damaged_files_of_a_workdir_are_named(unfinished, name, content):
    (unfinished / name).write_bytes(content + b'\n')
    with pytest.raises(WorkdirError, match=f'{name} is damaged .*; restore it'):
        run_experiment(config(unfinished), tiny.EXPERIMENT)


@pytest.mark.parametrize('name', ['config.json', 'metrics.jsonl'])
def test_a_device_in_a_workdir_is_not_read(unfinished, name):
    (unfinished / name).unlink()
    (unfinished / name).symlink_to('/dev/null')
    with pytest.raises(WorkdirError, match=f'{name} is damaged .it is no ordinary file'):
        run_experiment(config(unfinished), tiny.EXPERIMENT)


@pytest.mark.parametrize('content', ['', '[]', '{}', '{"seconds": "1"}'])
def test_a_damaged_note_of_the_time_is_no_error(unfinished, content):
    (unfinished / 'timing.json').write_text(content)
    run_experiment(config(unfinished), tiny.EXPERIMENT)
    assert (unfinished / 'results.json').exists()


def test_disk_full_when_writing_metrics(command, peace, tmp_path):
    workdir = tmp_path / 'full'
    shutil.copytree(peace, workdir)
    line = one_line(command, workdir, file_size=300)
    assert 'metrics.jsonl' in line and 'File too large' in line


def test_disk_full_when_writing_results(command, peace, tmp_path):
    workdir = tmp_path / 'full'
    shutil.copytree(peace, workdir)
    room = (workdir / 'classes.json').stat().st_size  # which is written before, and is the smaller file
    assert 'results.json' in one_line(command, workdir, '--evaluate_only', file_size=room)
    assert not compare_workdirs(peace, workdir)


def test_a_workdir_that_cannot_be_written():
    with pytest.raises(WorkdirError, match='cannot write /proc/protojax'):
        run_experiment(config('/proc/protojax'), tiny.EXPERIMENT)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    wild = config(tmp_path, learning_rate=2e17, checkpoint_every=1, log_every=100, validate_every=100)
    with pytest.raises(FittingDiverged, match=r'episode \d+ is not finite') as failure:
        run_experiment(wild, tiny.EXPERIMENT)
    task = tiny.EXPERIMENT.build(wild, tiny.load(wild))
    step, fit = Checkpoints(tmp_path / 'search').restore(fresh_fit(task, fitting_optimizer(wild, 0), jax.random.key(0)))
    assert step > 0
    assert f'the loss of episode {step}' in str(failure.value)
    assert f'checkpoint is that of episode {step}' in str(failure.value)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(fit.state))


def test_another_configuration_is_refused_by_name(finished):
    with pytest.raises(WorkdirError, match=r'learning_rate \(0.1 there, 0.2 now\)'):
        run_experiment(config(finished, learning_rate=0.2), tiny.EXPERIMENT)


def test_checkpoints_of_other_shapes_are_refused_by_name(unfinished):
    saved = json.loads((unfinished / 'config.json').read_text())
    (unfinished / 'config.json').write_text(json.dumps({**saved, 'dimensions': 16}))
    with pytest.raises(CheckpointError, match=r'float32\[5, 8\] there, float32\[5, 16\] here'):
        run_experiment(config(unfinished, dimensions=16), tiny.EXPERIMENT)
