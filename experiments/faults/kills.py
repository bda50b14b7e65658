"""Kills runs by SIGKILL in each of their stages, and at random, until each has come to its end in spite of it."""

import contextlib
import pathlib
import random
import shutil
import time
from collections.abc import Iterator

from experiments.faults.comparing import compare_workdirs
from experiments.faults.small_run import finish_small_run, small_run_log, small_run_metrics, start_small_run

PATIENCE = 600  # seconds that a run may take to get to the moment at which it is to be killed


class _KillWatch:
    """What a run has done since it was started, seen from outside."""

    def __init__(self, workdir: pathlib.Path, data_dir: pathlib.Path):
        self.workdir, self.data_dir, self.began = workdir, data_dir, time.time()
        self.lines, self.saves = len(small_run_metrics(workdir)), unfinished_when_killed(workdir)

    def is_preparing(self):
        return any(self.data_dir.rglob('preparing-*'))

    def is_training(self, stage):
        return any(line['stage'] == stage for line in small_run_metrics(self.workdir)[self.lines :])

    def is_saving(self):
        return bool(unfinished_when_killed(self.workdir) - self.saves)

    def has_said(self, words):
        return words in small_run_log(self.workdir).read_text(errors='replace')

    def is_writing_results(self):
        if (self.workdir / '.results.json.tmp').exists():
            return True
        results = self.workdir / 'results.json'
        return results.exists() and results.stat().st_mtime > self.began


MOMENTS = {  # in the order in which a run comes to them
    'preparing data': _KillWatch.is_preparing,
    'search': lambda watch: watch.is_training('search'),
    'saving a checkpoint': _KillWatch.is_saving,
    'training': lambda watch: watch.is_training('train'),
    'evaluating': lambda watch: watch.has_said('evaluating'),
    'writing results': _KillWatch.is_writing_results,
    'drawing pictures': lambda watch: watch.has_said('drawing pictures'),
    'any': lambda watch: True,  # a random time after the start
}


def kill_repeatedly(
    command, folder, *, kills, seed, data_dir=None, moments=tuple(MOMENTS)
) -> Iterator[tuple[str, int, list]]:
    """Kill runs of a command in one stage after the other, let each come to its end -> (moment, run, what differs).

    What differs is told of a run's end, which is a moment too: 'end'.
    """
    rng, number, done = random.Random(seed), 0, 0
    began = time.monotonic()
    finish_small_run(command, folder / 'peace')
    seconds = time.monotonic() - began
    while done < kills:
        workdir = folder / f'run{number}'
        for moment in moments[: kills - done]:
            if moment == 'preparing data':
                shutil.rmtree(data_dir, ignore_errors=True)
            delay = rng.uniform(0, seconds if moment == 'any' else rng.choice((0, 0.02, 0.3)))
            if _kill_once(command, workdir, data_dir or folder, MOMENTS[moment], delay):
                done += 1
                yield moment, number, []
        finish_small_run(command, workdir)
        yield 'end', number, compare_workdirs(folder / 'peace', workdir)
        number += 1


def _kill_once(command, workdir, data_dir, is_moment, delay) -> bool:
    """Start a run and kill it some seconds after a moment -> whether it was still there."""
    watch = _KillWatch(workdir, data_dir)
    run = start_small_run(command, workdir)
    try:
        while run.poll() is None and not is_moment(watch) and time.time() < watch.began + PATIENCE:
            time.sleep(0.0005)
        time.sleep(delay)
        return run.poll() is None
    finally:
        run.kill()
        run.wait()


def unfinished_when_killed(workdir) -> set:
    """Checkpoints that are being written, or were when the run was killed."""
    found = set()
    for path in workdir.glob('*/*.orbax-checkpoint-tmp*'):
        with contextlib.suppress(FileNotFoundError):  # it has just got its final name
            found.add((path, path.stat().st_ctime_ns))
    return found
