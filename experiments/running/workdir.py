"""The folder of one run: its lock, its configuration, its metrics and its results.

config.json          the configuration; another one is refused
classes.json         the names of the classes in each split
metrics.jsonl        a line per report, the same bytes however often the run was interrupted
tensorboard/         the same for TensorBoard, and the pictures
search/, train/      checkpoints of the stages (and pretrain/, with --pretrain)
results.json         the final table
weights.safetensors  what was learned, for protojax.load_pretrained
timing.json          how long it took, on what hardware, with which commit of the code
curves.png           loss and accuracy by episode
episode.png          a test episode with its mistakes, where the items are images
mistakes.png         the classes that are confused most
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.running.hardware import commit, processor
from experiments.running.identity import (
    config_differences,
    config_identity,
    config_to_json,
    differences_text,
    name_of_config,
)
from experiments.running.workdir_files import read_reports, read_workdir_file
from protojax.errors import first_line
from protojax.files import write_whole


class WorkdirError(RuntimeError):
    """A workdir that cannot be used, in one line with the way out."""


class Workdir:
    """An open, locked workdir. In a job of several processes only the first one writes."""

    def __init__(self, path, config, dataset):
        self.path = Path(path).expanduser().absolute()
        self.writes = jax.process_index() == 0
        self._lock = None
        refusal = self._claim(config, dataset) if self.writes else None
        if multihost_utils.broadcast_one_to_all(np.array(refusal is not None)):
            raise refusal or WorkdirError(f'process 0 cannot use {self.path}; see its error')
        seen = multihost_utils.process_allgather(np.array((self.path / 'config.json').exists()))
        if not seen.all():
            raise WorkdirError(f'not all hosts see {self.path}; choose a --workdir on a file system that they share')

    def write_json(self, name, value):
        """Write a file whole or not at all."""
        if self.writes:
            with writing_workdir(self.path / name):
                self.check_presence()
                write_whole(self.path / name, json.dumps(value, indent=2) + '\n')

    def read_json(self, name, default=None):
        file = self.path / name
        if not file.exists():
            return default
        with _reading_workdir(file):
            value = json.loads(read_workdir_file(file))
            if not isinstance(value, dict):
                raise ValueError(f'a {type(value).__name__} instead of named values')
            return value

    def metrics(self):
        """The lines of metrics.jsonl so far."""
        file = self.path / 'metrics.jsonl'
        with _reading_workdir(file):
            return read_reports(file)

    def add_seconds(self, seconds):
        """Add to the time that the run has taken, over all its starts but those that were killed.

        Never an error of its own: the run may be ending because of another, which that would hide.
        """
        with contextlib.suppress(WorkdirError), _reading_workdir(self.path / 'timing.json'):
            seconds += self.read_json('timing.json', {'seconds': 0.0})['seconds']
            devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
            machine = {'devices': devices, 'processor': processor(), 'commit': commit()}
            self.write_json('timing.json', {'seconds': round(seconds, 1), **machine})

    def check_presence(self):
        """WorkdirError if the folder is not the one any more that this run has locked."""
        try:
            there = os.path.samestat(os.stat(self.path / '.lock'), os.fstat(self._lock.fileno()))
        except FileNotFoundError:
            there = False
        if not there:
            raise WorkdirError(f'{self.path} was deleted or moved during the run; start again')

    def _claim(self, config, dataset):
        """Lock the folder and compare configurations -> None, or the error that all processes must raise."""
        try:
            with writing_workdir(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = self._acquire_lock()
                self._check_config(config, dataset)
        except WorkdirError as error:
            if self._lock:
                self._lock.close()  # a folder that this run may not use is left to others
            return error

    def _acquire_lock(self):
        # Held until the process ends, however it ends. Neither a link is followed nor a pipe waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.fdopen(os.open(self.path / '.lock', flags, 0o644), 'w')
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkdirError(f'another run is using {self.path}; wait for it or choose another --workdir') from None
        return lock

    def _check_config(self, config, dataset):
        saved = self.read_json('config.json')
        now = {**config_to_json(config), 'dataset': dataset}
        if saved is None:
            return write_whole(self.path / 'config.json', json.dumps(now, indent=2) + '\n')
        differing = config_differences(config, saved)
        if saved.get('dataset') != dataset:
            differing['dataset'] = (saved.get('dataset'), dataset)
        if differing:
            raise WorkdirError(f'{self.path} {differences_text(differing)}; choose another --workdir')


class WorkdirMetrics:
    """Metrics of one stage as JSON lines and TensorBoard events, taken up again at the episode of a checkpoint."""

    def __init__(self, workdir, stage, episode):
        self.stage, self.workdir, self.writes = stage, workdir, workdir.writes
        if self.writes:
            self.path = workdir.path / 'metrics.jsonl'
            with writing_workdir(self.path):
                self._rewind(self.path, episode)
                self._file = open(self.path, 'a')  # noqa: SIM115 - open as long as the stage
                from experiments.running.board import Board  # only now: it loads PyTorch where that is installed

                self._board = Board(workdir.path / 'tensorboard' / stage, episode)

    def write(self, episode, split, **values):
        """Report values of a split at an episode; on the disk when this returns."""
        if not self.writes:
            return
        with writing_workdir(self.path):
            self.workdir.check_presence()
            self._file.write(json.dumps({'stage': self.stage, 'episode': episode, 'split': split, **values}) + '\n')
            self._file.flush()
            os.fsync(self._file.fileno())
            for name, value in values.items():
                self._board.write_number(f'{split}/{name}', episode, value)
            self._board.flush()

    def close(self):
        if self.writes:
            self._file.close()
            self._board.close()

    def _rewind(self, path, episode):
        """Drop the lines that come after the checkpoint: they will be written again."""
        if path.exists():
            with _reading_workdir(path):
                complete = [line for line in read_workdir_file(path).splitlines(keepends=True) if line.endswith('\n')]
                kept = [line for line in complete if self._is_before(json.loads(line), episode)]
            write_whole(path, ''.join(kept))

    def _is_before(self, line, episode):
        return line['stage'] != self.stage or line['episode'] <= episode


def default_workdir(config, experiment, data):
    """A name that tells runs apart, and stand-ins from real data."""
    if config.weights:
        name = '-'.join(part for part in Path(config.weights).with_suffix('').parts[-2:] if part != os.sep)
        return f'runs/evaluation-of-{name}'
    kind = 'synthetic-not-' if data.synthetic else ''
    recipe = dataclasses.replace(experiment.recipe, data=config.data)  # the name says which data there are
    return f'runs/{kind}{name_of_config(experiment.name, recipe, config_identity(config))}'


@contextlib.contextmanager
def writing_workdir(path):
    """Turns an error of the file system into one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise WorkdirError(
            f'cannot write {path} ({reason}); make room or choose another --workdir. Checkpoints are intact'
        ) from error


@contextlib.contextmanager
def _reading_workdir(path):
    """Turns whatever is wrong with a file into one line."""
    try:
        yield
    except WorkdirError:
        raise
    except Exception as error:  # damage takes many forms
        raise WorkdirError(
            f'{path} is damaged ({first_line(error)}); restore it from a backup or choose another --workdir'
        ) from error
