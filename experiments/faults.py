"""Shows that a run may be killed at any moment: it goes on when started again and ends as if nothing had happened.

    python -m experiments.faults --kills=25

Runs a small experiment once in peace. Then it starts the same one again and again and kills each start with SIGKILL:
every other time at a random moment, else in the middle of writing a checkpoint. Whenever a run has come to its end, its
parameters, metrics and results must be those of the first, bit for bit.
"""

import contextlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from absl import flags

from experiments.running.flags import start

COMMAND = (
    [sys.executable, '-m', 'experiments.omniglot', '--data=synthetic', '--episodes=60', '--noretrain', '--kernels=off']
    + ['--way=5', '--shot=1', '--query=3', '--validation_way=5', '--validation_episodes=50', '--test_episodes=50']
    + ['--test_way=5', '--test_shot=1', '--log_every=5', '--validate_every=30', '--checkpoint_every=10']
)


def main(argv):
    with tempfile.TemporaryDirectory() as folder:
        command = [*COMMAND, f'--compilation_cache={folder}/compiled']  # which kills may damage too
        print('a run in peace:', ' '.join(command), flush=True)
        problems = torment(command, pathlib.Path(folder), kills=flags.FLAGS.kills, seed=flags.FLAGS.seed)
    print('\n'.join(problems) or 'every run ended with the same parameters, metrics and results, bit for bit')
    return 1 if problems else 0


def torment(command, folder, *, kills, seed):
    """Kill runs of a command that many times, let the last one end -> what differs from a run in peace, if anything."""
    rng = random.Random(seed)
    began = time.monotonic()
    finish(command, folder / 'peace')
    seconds = time.monotonic() - began
    problems, number, killed = [], 0, 0
    while killed < kills:
        workdir = folder / f'run{number}'
        moment = kill_in_save(command, workdir) if killed % 2 else kill_after(command, workdir, rng.uniform(0, seconds))
        if moment is None:  # the run was over before
            problems += differences(folder / 'peace', workdir)
            number += 1
        else:
            killed += 1
            print(f'kill {killed} of {kills}: run {number}, {moment}, {progress(workdir)}', flush=True)
    finish(command, workdir)
    return problems + differences(folder / 'peace', workdir)


def finish(command, workdir):
    """Start a run and let it end."""
    subprocess.run([*command, f'--workdir={workdir}'], check=True, capture_output=True)


def kill_after(command, workdir, seconds):
    """Start a run and kill it after some seconds -> when that was, or None where it had ended."""
    run = subprocess.Popen([*command, f'--workdir={workdir}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        run.wait(seconds)
        return None
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return f'after {seconds:.1f} s'


def kill_in_save(command, workdir):
    """Start a run and kill it as soon as a checkpoint appears under its temporary name -> a note, or None as above."""
    before = unfinished(workdir)
    run = subprocess.Popen([*command, f'--workdir={workdir}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while run.poll() is None:
        if unfinished(workdir) - before:
            run.kill()
            run.wait()
            return f'in a save ({len(unfinished(workdir))} unfinished)'
        time.sleep(0.001)
    return None


def unfinished(workdir):
    """Checkpoints that are being written, or were when the run was killed."""
    found = set()
    for path in workdir.glob('*/*.orbax-checkpoint-tmp*'):
        with contextlib.suppress(FileNotFoundError):  # it has just got its final name
            found.add((path, path.stat().st_ctime_ns))
    return found


def progress(workdir):
    """How far a run has come, by its metrics."""
    metrics = workdir / 'metrics.jsonl'
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith('\n')]
    return f'{whole[-1]["stage"]} at episode {whole[-1]["episode"]}' if whole else 'before the first metrics'


def differences(expected, found):
    """What is not the same in two workdirs of finished runs: names of files and stages."""
    files = [name for name in ('metrics.jsonl', 'results.json') if different(expected / name, found / name)]
    stages = [stage for stage in ('search', 'train') if last_digest(expected / stage) != last_digest(found / stage)]
    return [f'{found}: {name} is not as after a run in peace' for name in files + stages]


def different(expected, found):
    return not found.exists() or expected.read_bytes() != found.read_bytes()


def last_digest(stage):
    """Step and digest of all arrays of a stage's last checkpoint, or None."""
    steps = [int(path.name) for path in stage.glob('*') if path.name.isdigit()]
    if not steps:
        return None
    return max(steps), json.loads((stage / str(max(steps)) / 'record' / 'metadata').read_text())['digest']


if __name__ == '__main__':
    flags.DEFINE_integer('kills', 25, 'How often to kill.', lower_bound=1)
    flags.DEFINE_integer('seed', 0, 'Of the random moments.')
    start(main)
