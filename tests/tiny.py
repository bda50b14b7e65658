"""An experiment of a second or two for tests of whole runs: both stages, on data made of a few numbers.

    python tests/tiny.py --workdir=... [any flag of an experiment]

trains linear maps, which compile quickly. MOMENT in the environment names one at which the run is killed or halts.
"""

import os
import pathlib
import signal
import sys
import threading
import time

import jax
import numpy as np

REPOSITORY = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from experiments.faults.kills import unfinished_when_killed  # noqa: E402
from experiments.running import driver, startup, workdir  # noqa: E402
from experiments.running.building import build_zero_shot_task  # noqa: E402
from experiments.running.config import ZeroShotConfig  # noqa: E402
from protojax.datasets import Data, Split  # noqa: E402

RECIPE = ZeroShotConfig(
    way=4,
    query=4,
    dimensions=8,
    learning_rate=0.1,
    log_every=4,
    validate_every=8,
    checkpoint_every=8,
    patience=1,
    compilation_cache='off',
    pictures='off',
)


def load(config):
    """Items that are their class's attributes with noise."""
    rng = np.random.default_rng(0)
    return Data('tiny', False, *(split(rng, classes) for classes in (8, 4, 4)))


def split(rng, classes):
    attributes = rng.normal(size=(classes, 5)).astype(np.float32)
    items = attributes[:, None, None] + rng.normal(size=(classes, 6, 2, 5)).astype(np.float32)
    return Split(items, np.full(classes, 6, np.int32), tuple(f'class{k}' for k in range(classes)), attributes)


EXPERIMENT = driver.Experiment('tiny', RECIPE, load, build_zero_shot_task)


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_save(stage, after=0):
    """Die as soon as a save has put something into the stage's folder, before it can give it its final name.

    So many saves of the stage are completed first.
    """
    (folder,) = (pathlib.Path(flag.split('=')[1]) for flag in sys.argv if flag.startswith('--workdir='))
    before = unfinished_when_killed(folder)

    def watch():
        def saving():
            # In this order: a save that gets its final name in between must not count as both.
            finished = [path for path in (folder / stage).glob('*') if path.name.isdigit()]
            unfinished = [path for path, _ in unfinished_when_killed(folder) - before if path.parent.name == stage]
            return len(finished) >= after and unfinished

        while not saving():
            time.sleep(0.0005)
        die()

    threading.Thread(target=watch, daemon=True).start()


def die_after(name):
    """Die when a file of the workdir has been written."""
    write = workdir.Workdir.write_json

    def write_and_die(self, file, value):
        write(self, file, value)
        if file == name:
            die()

    workdir.Workdir.write_json = write_and_die


def halt_in_training():
    """Stop like a program that is put to sleep with Ctrl-Z, when the first metrics are written."""
    write = workdir.WorkdirMetrics.write

    def write_and_halt(self, *args, **values):
        workdir.WorkdirMetrics.write = write
        write(self, *args, **values)
        os.kill(os.getpid(), signal.SIGSTOP)

    workdir.WorkdirMetrics.write = write_and_halt


def dawdle():
    """Come late to where the devices of all processes first work together, by more than JAX waits for that."""
    claim = workdir.Workdir.__init__

    def claim_late(self, *args):
        time.sleep(35)
        claim(self, *args)

    workdir.Workdir.__init__ = claim_late


def die_before_stage(name):
    fit = driver.fit_stage

    def die_or_fit(*args, stage, **options):
        return die() if stage == name else fit(*args, stage=stage, **options)

    driver.fit_stage = die_or_fit


def keep_all_that_is_compiled():
    """Not only what takes a while to compile, as a user's run does."""
    choose = startup.set_compilation_cache

    def choose_and_keep_all(config):
        choose(config)
        jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)

    startup.set_compilation_cache = choose_and_keep_all


DEATHS = {
    'data': lambda: EXPERIMENT._replace(load=die),
    'first save': lambda: die_in_save('search'),
    'later save': lambda: die_in_save('search', after=1),
    'between stages': lambda: die_before_stage('train'),
    'save of the second stage': lambda: die_in_save('train'),
    'between results and timing': lambda: die_after('results.json'),
}


def main(moment):
    moments = {**DEATHS, 'training': halt_in_training, 'slow': dawdle, '': lambda: None}
    experiment = moments[moment]() or EXPERIMENT
    keep_all_that_is_compiled()
    startup.launch(experiment)


if __name__ == '__main__':
    main(os.environ.get('MOMENT', ''))
