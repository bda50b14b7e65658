"""How every binary begins and ends: flags, devices, caches, and errors in one line."""

import logging as python_logging
import os
import signal
import sys
from pathlib import Path

import jax
from absl import logging

from experiments.running import job
from experiments.running.config import ConfigError, FewShotConfig, ZeroShotConfig
from experiments.running.driver import Experiment, run
from experiments.running.fitting import Diverged, Interrupted
from experiments.running.flags import define_flags, from_flags, help_text, start, with_flags
from experiments.running.workdir import WorkdirError
from protojax.errors import CheckpointError, DataError, WeightsError, first_line

__all__ = ['Experiment', 'FewShotConfig', 'ZeroShotConfig', 'launch']

ERRORS = (ConfigError, DataError, WorkdirError, WeightsError, CheckpointError, Diverged)


def launch(experiment):
    """Run an experiment as a program whose flags change the recipe."""
    if {'--help', '-help', '-h', '--helpshort', '--helpfull'} & set(sys.argv[1:]):
        print(help_text(sys.modules['__main__'].__doc__, experiment.recipe))
        return
    define_flags(experiment.recipe)
    start(lambda argv: main(argv, experiment))


class Formatter(python_logging.Formatter):
    """Log lines that look like our own: 'warning: ...'."""

    def format(self, record):
        return f'{record.levelname.lower()}: {record.getMessage()}'


def main(argv, experiment):
    """Exit code 0, or a one-line error and another code."""
    try:
        if len(argv) > 1:
            raise ConfigError(f'{argv[1]!r} is no flag; flags begin with --, see --help')
        config = from_flags(experiment.recipe)
        quiet_logs()
        set_compilation_cache(config)
        job.join(config)
        run(config, experiment)
    except Interrupted as interruption:
        print(f'\n{interruption}:\n  {command()}', file=sys.stderr)
        return 128 + signal.SIGINT
    except KeyboardInterrupt:  # before training or after it, or for the second time
        print(f'\nstopped at once; the same command goes on from the last checkpoint:\n  {command()}', file=sys.stderr)
        return job.leave(128 + signal.SIGINT)
    except ERRORS as error:
        print(f'error: {with_flags(error)}', file=sys.stderr)
        return job.leave(1)
    except jax.errors.JaxRuntimeError as error:
        if not jax.distributed.is_initialized():
            raise
        reason = first_line(error)
        print(f'error: a process of the job is gone or failed ({reason}); start all again to go on', file=sys.stderr)
        return job.leave(1)
    return 0


def quiet_logs():
    """Libraries report each save and load at level INFO; users want warnings only."""
    logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(Formatter())
    sys.unraisablehook = lambda _: None  # after a failed save each array that is still being written would report


def set_compilation_cache(config):
    """Keep compiled programs between runs, so that the second start is quick."""
    if config.compilation_cache == 'off':
        return
    cache = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache')
    folder = cache / 'protojax' / 'xla' if config.compilation_cache == 'auto' else Path(config.compilation_cache)
    jax.config.update('jax_compilation_cache_dir', str(folder.expanduser()))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.2)


def command():
    """The command line that started this program."""
    module = sys.modules['__main__'].__spec__
    program = f'python -m {module.name}' if module else f'python {sys.argv[0]}'
    return ' '.join([program, *sys.argv[1:]])
