"""Entire runs under faults: a run finishes with identical output, or stops with one line that gives the cause."""

import errno
import os
import shutil
import signal

import pytest

from experiments.running import fit, metrics
from experiments.running.workdir import WorkdirError
from protojax.checkpoints import Checkpoints
from protojax.errors import CheckpointError
from tests.faults import runs
from tests.helpers import compiler, tiny
from tests.helpers.forks import Program

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', autouse=True)
def one_device():
    with tiny.on_devices(1):
        yield


@pytest.fixture
def unfinished(finished_run, tmp_path):
    """A copy of a finished run without its second stage."""
    workdir = shutil.copytree(finished_run, tmp_path / 'unfinished')
    (workdir / 'results.json').unlink()
    shutil.rmtree(workdir / 'train')
    return workdir


def start(workdir, moment='', **environment):
    """Start a run as a program on one device."""
    environment |= {'XLA_FLAGS': compiler.flags(), 'MOMENT': moment}
    return Program('tests.helpers.tiny', f'--workdir={workdir}', **environment)


def newest(stage):
    return max(stage.glob('[0-9]*'), key=lambda path: int(path.name) if path.name.isdigit() else -1)


def test_killed_while_saving_and_between_stages(finished_run, tmp_path):
    for moment in tiny.DEATHS:
        program = start(tmp_path, moment)
        assert program.wait() == -signal.SIGKILL, (moment, program.output)
        assert runs.unfinished_saves(tmp_path) or 'save' not in moment
    program = start(tmp_path)
    assert program.wait() == 0, program.output
    assert not runs.differences(finished_run, tmp_path)


def test_differences_are_found(finished_run, tmp_path):
    other = shutil.copytree(finished_run, tmp_path / 'other')
    lines = (other / 'metrics.jsonl').read_text().splitlines(keepends=True)
    (other / 'metrics.jsonl').write_text(''.join(lines[:3] + lines[2:]))
    (other / 'results.json').unlink()
    shutil.rmtree(newest(other / 'train'))
    found = [line.split()[1] for line in runs.differences(finished_run, other)]
    assert found == ['metrics.jsonl', 'results.json', 'train']


def test_a_stopped_run_is_left_alone_by_others_and_resumes(finished_run, tmp_path):
    first = start(tmp_path, 'training')
    first.wait_until_halted()
    with pytest.raises(WorkdirError, match=f'another run is using {tmp_path}'):
        tiny.run(tmp_path)
    for number in (signal.SIGTERM, signal.SIGCONT):
        os.kill(first.process.pid, number)
    assert first.wait() == 128 + signal.SIGINT
    assert 'stopped at episode 4' in first.output
    assert f'python -m tests.helpers.tiny --workdir={tmp_path}' in first.output
    tiny.run(tmp_path)
    assert not runs.differences(finished_run, tmp_path)


def test_resumes_from_the_checkpoint_before_a_corrupted_one(finished_run, tmp_path, caplog):
    workdir = shutil.copytree(finished_run, tmp_path / 'corrupted')
    checkpoint = newest(workdir / 'train')
    file = max((path for path in checkpoint.rglob('*') if path.is_file()), key=lambda path: path.stat().st_size)
    file.write_bytes(bytes(byte ^ 0xFF for byte in file.read_bytes()))
    tiny.run(workdir)
    assert f'checkpoint {checkpoint.name} is' in caplog.text
    assert not runs.differences(finished_run, workdir)


def test_a_full_disk_during_a_save(finished_run, unfinished):
    program = start(unfinished, 'full disk', FILE_SIZE='8000')  # metrics fit, a checkpoint does not
    assert program.wait() == 1, program.output
    (line,) = [line for line in program.output.splitlines() if line.startswith('error: ')]
    assert 'cannot save step 4 in' in line and 'File too large' in line and 'Traceback' not in program.output
    tiny.run(unfinished)
    assert not runs.differences(finished_run, unfinished)


def test_of_several_failures_to_write_the_first_is_reported(unfinished, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_):
        monkeypatch.setattr('protojax.files.write_whole', full)
        raise CheckpointError('cannot save step 4')

    monkeypatch.setattr(Checkpoints, 'save', fail)
    with pytest.raises(CheckpointError, match='cannot save step 4'):
        tiny.run(unfinished)


def test_a_workdir_that_is_deleted_during_the_run(tmp_path, monkeypatch):
    write = metrics.Writer.write

    def write_and_delete(self, *args, **values):
        write(self, *args, **values)
        shutil.rmtree(tmp_path / 'run')

    monkeypatch.setattr(metrics.Writer, 'write', write_and_delete)
    with pytest.raises(WorkdirError, match=f'{tmp_path}/run was deleted or moved during the run'):
        tiny.run(tmp_path / 'run', checkpoint_every=100)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(fit.Diverged, match=r'episode \d+ is not finite') as failure:
        tiny.run(tmp_path, learning_rate=2e17, checkpoint_every=1, log_every=100, validate_every=100)
    last = newest(tmp_path / 'search').name
    assert int(last) > 0
    assert f'the loss of episode {last} ' in str(failure.value) and str(failure.value).endswith(f' {last})')
