"""An experiment of a second or two for tests of entire runs: both stages, on data of a few numbers.

    python -m tests.helpers.tiny --workdir=... [any flag of an experiment]

trains linear maps, which compile quickly. MOMENT in the environment names a moment at which the run kills or stops
itself.
"""

import contextlib
import os
import pathlib
import resource
import signal
import sys
import threading
import time

import jax
import numpy as np
import pytest

from experiments import methods
from experiments.running import cli, driver, metrics, multihost, placement, workdir
from experiments.running.config import Experiment, ZeroShot
from protojax import files
from protojax.datasets import Splits
from protojax.episodes import Dataset
from tests.faults.runs import unfinished_saves

DEFAULTS = {'way': 4, 'query': 4, 'dimensions': 8, 'learning_rate': 0.1, 'pictures': 'off'}
DEFAULTS |= {'log_every': 4, 'validate_every': 8, 'checkpoint_every': 4, 'patience': 1}


def load(config):
    """Items are the attributes of their class, with noise."""
    rng = np.random.default_rng(0)
    return Splits('tiny', False, *(split(rng, classes) for classes in (8, 4, 4)))


def split(rng, classes):
    attributes = rng.normal(size=(classes, 5)).astype(np.float32)
    items = attributes[:, None, None] + rng.normal(size=(classes, 6, 2, 5)).astype(np.float32)
    return Dataset(items, np.full(classes, 6, np.int32), attributes, tuple(f'class{k}' for k in range(classes)))


EXPERIMENT = Experiment('tiny', methods.ZERO_SHOT, load, defaults=DEFAULTS, episodes=ZeroShot)


def run(path, **options):
    """Run the experiment in this process."""
    return driver.run(EXPERIMENT.config(workdir=str(path), **options), EXPERIMENT)


@contextlib.contextmanager
def on_devices(count):
    """Let runs in this process use this number of the eight devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, 'usable_devices', lambda _: jax.devices()[:count])
        yield


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def halt():
    os.kill(os.getpid(), signal.SIGSTOP)  # like Ctrl-Z


def before(owner, name, action):
    """Call action(*args, **options) before each call of a function or method."""
    original = getattr(owner, name)

    def called(*args, **options):
        action(*args, **options)
        return original(*args, **options)

    setattr(owner, name, called)


def die_in_save(stage):
    """Die as soon as a save has written something that does not have its final name yet."""
    (folder,) = (pathlib.Path(flag.split('=')[1]) for flag in sys.argv if flag.startswith('--workdir='))
    earlier = unfinished_saves(folder)

    def watch():
        while not any(path.parent.name == stage for path, _ in unfinished_saves(folder) - earlier):
            time.sleep(0.0005)
        die()

    threading.Thread(target=watch, daemon=True).start()


def limit_files():
    """Simulate a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(os.environ['FILE_SIZE']),))


def limit_waiting():
    multihost.SECONDS_TO_LIVE, multihost.SECONDS_TO_START = 2, int(os.environ['SECONDS_TO_START'])


DEATHS = {
    'first save': lambda: die_in_save('search'),
    'between stages': lambda: before(metrics.Writer, '__init__', lambda *args: args[2] == 'train' and die()),
    'save of the second stage': lambda: die_in_save('train'),
}
MOMENTS = {
    **DEATHS,
    'training': lambda: before(metrics.Writer, 'write', lambda _, episode, *__, **values: episode == 4 and halt()),
    'slow': lambda: before(workdir.Workdir, '__init__', lambda *_: time.sleep(35)),  # JAX waits 30 s at first
    'full disk': limit_files,
    'impatient': limit_waiting,
    '': lambda: None,
}


def main():
    MOMENTS[os.environ.get('MOMENT', '')]()
    files.cache_programs = lambda _: None  # programs are in the cache of the tests
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
    cli.launch(EXPERIMENT)


if __name__ == '__main__':
    main()
