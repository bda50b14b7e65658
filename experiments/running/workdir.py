"""The folder of one run, locked while the run lasts.

config.json          the configuration; a run with another one is rejected
classes.json         the names of the classes in each split
metrics.jsonl        one line per report, with the same bytes however often the run was interrupted
tensorboard/         the same reports for TensorBoard, and the plots
search/, train/      checkpoints of the stages (and pretrain/, with --pretrain)
results.json         the final table
weights.safetensors  the trained weights, for protojax.load_pretrained
timing.json          duration, hardware and commit of the run
curves.png           loss and accuracy by episode
episode.png          a test episode with its misclassified queries, if the items are images
mistakes.png         the most confused classes
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from experiments.running import config as configuration
from experiments.running import provenance
from experiments.running.config import Config, Experiment
from protojax import Splits, errors, files


class WorkdirError(RuntimeError):
    """A workdir that cannot be used, in one line with a hint."""


class Workdir:
    """An open, locked workdir. In a distributed run only process 0 writes.

    Raises:
        WorkdirError: In all processes, if the folder cannot be written, is in use, belongs to another configuration, or
            is not shared.
    """

    def __init__(self, path: str | os.PathLike, config: Config, dataset: str):
        self.path = Path(path).expanduser().absolute()
        self.writes = jax.process_index() == 0
        self._lock: IO | None = None
        problem = self._claim(config, dataset) if self.writes else None
        if multihost_utils.broadcast_one_to_all(np.array(problem is not None)):
            raise problem or WorkdirError(f'process 0 cannot use {self.path}; see its error')
        if not multihost_utils.process_allgather(np.array((self.path / 'config.json').exists())).all():
            raise WorkdirError(f'not all hosts see {self.path}; choose a --workdir on a shared file system')

    def write_json(self, name: str, value: dict) -> None:
        """Replace a file atomically."""
        if self.writes:
            with writing(self.path / name):
                self.check_presence()
                files.write_whole(self.path / name, json.dumps(value, indent=2) + '\n')

    def add_seconds(self, seconds: float) -> None:
        """Add to the time in timing.json, which covers all starts of the run except killed ones.

        Raises nothing: the run may be ending because of another error, which a second one would hide.
        """
        with contextlib.suppress(WorkdirError), reading(self.path / 'timing.json'):
            seconds += read_json(self.path / 'timing.json', {'seconds': 0.0})['seconds']
            self.write_json('timing.json', {'seconds': round(seconds, 1), **provenance.machine()})

    def check_presence(self) -> None:
        """Raise WorkdirError if the folder at `path` is no longer the one that this run has locked."""
        assert self._lock is not None
        try:
            present = os.path.samestat(os.stat(self.path / '.lock'), os.fstat(self._lock.fileno()))
        except FileNotFoundError:
            present = False
        if not present:
            raise WorkdirError(f'{self.path} was deleted or moved during the run; start again')

    def _claim(self, config: Config, dataset: str) -> WorkdirError | None:
        """Lock the folder and compare configurations. Returns the error that all processes must raise, or None."""
        try:
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                # Held until the process ends, however it ends. The flags prevent following links and waiting for pipes.
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
                self._lock = os.fdopen(os.open(self.path / '.lock', flags, 0o644), 'w')
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                saved = read_json(self.path / 'config.json')
                if saved is None:
                    self.write_json('config.json', {**config.flat, 'dataset': dataset})
                elif mismatch := config.mismatch(saved, dataset=dataset):
                    raise WorkdirError(f'{self.path} {mismatch}; choose another --workdir')
        except WorkdirError as error:
            if self._lock:
                self._lock.close()  # other runs may use the folder
            return error
        return None


def default_path(config: Config, experiment: Experiment, data: Splits) -> str:
    """Return a path under runs/ that is unique to the configuration and marks synthetic data."""
    if config.run.weights:
        title = re.sub(r'\W+', '-', data.title).strip('-')
        parts = ['evaluation-on', title, 'of', *Path(config.run.weights).with_suffix('').parts[-2:]]
        return f'runs/{"-".join(part for part in parts if part != os.sep)}'
    return f'runs/{"synthetic-not-" if data.synthetic else ""}{configuration.name(experiment, config)}'


def read_json(path: Path, default: Any = None) -> Any:
    """Return the dictionary in a file, or `default` if the file does not exist; WorkdirError if it is corrupted."""
    if not path.exists():
        return default
    with reading(path):
        value = json.loads(files.read_whole(path))
        if not isinstance(value, dict):
            raise ValueError(f'expected a dictionary, got a {type(value).__name__}')
        return value


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system into a WorkdirError."""
    try:
        yield
    except BlockingIOError:  # of the lock
        raise WorkdirError(f'another run is using {path}; wait for it or choose another --workdir') from None
    except OSError as error:
        reason = error.strerror or error
        raise WorkdirError(
            f'cannot write {path} ({reason}); free some space or choose another --workdir. Checkpoints are intact'
        ) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error, because corrupted files cause many kinds, into a WorkdirError."""
    try:
        yield
    except (WorkdirError, configuration.ConfigError):
        raise
    except Exception as error:
        raise WorkdirError(
            f'{path} is corrupted ({errors.first_line(error)}); restore it from a backup or choose another --workdir'
        ) from error
