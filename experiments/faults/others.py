"""Faults that are no kills: each must end with one line that tells the cause, or not matter at all."""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

from experiments.faults.comparing import compare_workdirs
from experiments.faults.small_run import (
    finish_small_run,
    small_run_data_dir,
    small_run_log,
    small_run_metrics,
    start_small_run,
)

PATIENCE = 900  # seconds for a run


def _full_disk(command, folder):
    """A limit on the size of files stands for the end of the disk; then there is room again."""
    workdir = folder / 'full'
    program = f'import os, resource, sys; resource.setrlimit({resource.RLIMIT_FSIZE}, (8000, 8000)); '
    limited = [sys.executable, '-c', f'{program}os.execvp(sys.argv[1], sys.argv[1:])', *command]
    problem = failed_in_one_line(start_small_run(limited, workdir), workdir, 'cannot save step 4')
    finish_small_run(command, workdir)
    return problem or compare_workdirs(folder / 'peace', workdir)


def _deleted_workdir(command, folder):
    workdir = folder / 'deleted'
    run = start_small_run(command, workdir)
    _wait_for(run, lambda: small_run_metrics(workdir))
    shutil.rmtree(workdir)
    return failed_in_one_line(run, workdir, 'was deleted or moved during the run')


def _shrinking_source(command, folder):
    """A file is cut in half while data are prepared from it: it has been read before, or is found to be damaged."""
    workdir, features = folder / 'shrinking', folder / 'source' / 'features.npy'
    content = features.read_bytes()
    shutil.rmtree(small_run_data_dir(folder), ignore_errors=True)
    run = start_small_run(command, workdir)
    _wait_for(run, lambda: any(small_run_data_dir(folder).rglob('preparing-*')))
    os.truncate(features, len(content) // 2)
    code = run.wait(PATIENCE)
    problem = failed_in_one_line(run, workdir, 'features.npy') if code else compare_workdirs(folder / 'peace', workdir)
    features.write_bytes(content)
    return problem


def _damaged_config(command, folder):
    workdir = shutil.copytree(folder / 'peace', folder / 'config')
    (workdir / 'config.json').write_text('')
    return failed_in_one_line(start_small_run(command, workdir), workdir, 'config.json is damaged')


def _damaged_metrics(command, folder):
    workdir = shutil.copytree(folder / 'peace', folder / 'metrics')
    lines = (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
    (workdir / 'metrics.jsonl').write_text(''.join([lines[0][:20] + '\n', *lines[1:]]))
    return failed_in_one_line(start_small_run(command, workdir), workdir, 'metrics.jsonl is damaged')


def _damaged_checkpoint(command, folder):
    """The newest one is cut in half; the run goes on from the one before."""
    workdir = shutil.copytree(folder / 'peace', folder / 'checkpoint')
    newest = max((workdir / 'train').glob('[0-9]*'), key=lambda path: int(path.name))
    for file in (path for path in newest.rglob('*') if path.is_file()):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    finish_small_run(command, workdir)
    return compare_workdirs(folder / 'peace', workdir)


def _second_run(command, folder):
    """In the workdir of a run that is halted."""
    workdir = folder / 'second'
    first = start_small_run(command, workdir)
    _wait_for(first, lambda: small_run_metrics(workdir))
    first.send_signal(signal.SIGSTOP)
    copy = folder / 'second.log'
    said = copy.read_bytes()
    problem = failed_in_one_line(start_small_run(command, workdir), workdir, 'another run is using')
    copy.write_bytes(said)
    first.send_signal(signal.SIGCONT)
    first.wait(PATIENCE)
    return problem or compare_workdirs(folder / 'peace', workdir)


def _preemption(command, folder):
    """SIGTERM saves; the same command goes on."""
    workdir = folder / 'preempted'
    run = start_small_run(command, workdir)
    _wait_for(run, lambda: small_run_metrics(workdir))
    run.terminate()
    run.wait(PATIENCE)
    stopped = 'stopped at episode' in small_run_log(workdir).read_text()
    finish_small_run(command, workdir)
    return compare_workdirs(folder / 'peace', workdir) if stopped else ['it did not say where it stopped']


def _mad_learning_rate(command, folder):
    """Ends, but not as if all were well."""
    workdir = folder / 'mad'
    run = start_small_run([*command, '--learning_rate=1e9'], workdir)
    run.wait(PATIENCE)
    said = small_run_log(workdir).read_text()
    return [] if 'has not learned' in said or 'is not finite' in said else ['it said nothing']


def _process_0_dies(command, folder):
    """Killed in its first seconds: the other process, which must have had the time to see it, ends by itself."""
    workdir = folder / 'job'
    job = [*command, '--num_processes=2', f'--coordinator_address=localhost:{_free_port()}']
    second = start_small_run([*job, '--process_id=1'], workdir)
    first = subprocess.Popen(
        [*job, '--process_id=0', f'--workdir={workdir}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _wait_for(first, lambda: _listens(int(job[-1].rpartition(':')[2])))
    time.sleep(2)
    first.kill()
    first.wait()
    began = time.monotonic()
    code = second.wait(PATIENCE)
    seconds = time.monotonic() - began
    return [] if code != 0 and seconds < 60 else [f'the other ended with {code} after {seconds:.0f} s']


FAULTS = {  # what happens, and what has to come of it
    'disk full while saving': ('the cause in one line; goes on once there is room', _full_disk),
    'workdir deleted during the run': ('one line', _deleted_workdir),
    'features.npy cut in half while it is prepared': ('one line, or the same end', _shrinking_source),
    'empty config.json': ('one line', _damaged_config),
    'broken line in metrics.jsonl': ('one line', _damaged_metrics),
    'newest checkpoint cut in half': ('goes on from the one before, to the same end', _damaged_checkpoint),
    'second run in the same workdir': ('is refused; the first comes to the same end', _second_run),
    'SIGTERM (preemption)': ('saves; the same command goes on, to the same end', _preemption),
    '--learning_rate=1e9': ('says that nothing was learned', _mad_learning_rate),
    'process 0 of a job dies two seconds after it listens': ('the other ends within a minute', _process_0_dies),
}


def failed_in_one_line(run: subprocess.Popen, workdir: pathlib.Path, words: str) -> list[str]:
    """What is wrong with the end of a run that should fail: with one line of error, in which the words stand."""
    code = run.wait(PATIENCE)
    said = small_run_log(workdir).read_text()
    errors = [line for line in said.splitlines() if line.startswith('error: ')]
    if code == 0 or 'Traceback' in said or len(errors) != 1 or words not in errors[0]:
        return [f'it ended with {code} and said {json.dumps(said[-400:])}']
    return []


def _wait_for(run: subprocess.Popen, condition) -> None:
    while run.poll() is None and not condition():
        time.sleep(0.001)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return probe.getsockname()[1]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(('localhost', port)) == 0
