"""How every binary begins and ends: flags, devices, caches, and errors in one line."""

import logging as python_logging
import signal
import sys
from pathlib import Path

import jax
from absl import logging

import protojax
from experiments.running.config import ConfigError, FewShotConfig, ZeroShotConfig
from experiments.running.driver import Experiment, run_experiment
from experiments.running.fitting import FittingDiverged, FittingInterrupted
from experiments.running.flags import config_from_flags, define_flags, flags_help, message_with_flags, start_with_flags
from experiments.running.job import join_job, leave_job
from experiments.running.progress import show_above_progress
from experiments.running.workdir import WorkdirError
from protojax.datasets import sources
from protojax.errors import CheckpointError, DataError, WeightsError, first_line
from protojax.files import cache_folder

__all__ = ['Experiment', 'FewShotConfig', 'ZeroShotConfig', 'launch']

LIBRARY = Path(protojax.__file__).parent
ERRORS = (ConfigError, DataError, WorkdirError, WeightsError, CheckpointError, FittingDiverged)


def launch(experiment):
    """Run an experiment as a program whose flags change the recipe."""
    if {'--help', '-help', '-h', '--helpshort', '--helpfull'} & set(sys.argv[1:]):
        print(flags_help(sys.modules['__main__'].__doc__, experiment.recipe))
        return
    define_flags(experiment.recipe)
    start_with_flags(lambda argv: _main(argv, experiment))


class _StartupLog(python_logging.Handler):
    """Lines of the log that look like our own, 'warning: ...', without those that libraries write about their work."""

    def filter(self, record):
        return record.levelno > python_logging.INFO or Path(record.pathname).is_relative_to(LIBRARY)

    def emit(self, record):
        level = '' if record.levelno == python_logging.INFO else f'{record.levelname.lower()}: '
        show_above_progress(f'{level}{record.getMessage()}')


LOG = _StartupLog()


def _main(argv, experiment):
    """Exit code 0, or a one-line error and another code."""
    try:
        if len(argv) > 1:
            raise ConfigError(f'{argv[1]!r} is no flag; flags begin with --, see --help')
        config = config_from_flags(experiment.recipe)
        start_logging()
        set_compilation_cache(config)
        join_job(config)
        run_experiment(config, experiment)
    except FittingInterrupted as interruption:
        print(f'\n{interruption}:\n  {_command_line()}', file=sys.stderr)
        return 128 + signal.SIGINT
    except KeyboardInterrupt:  # before training or after it, or for the second time
        resuming = 'the same command goes on from the last checkpoint'
        print(f'\nstopped at once; {resuming}:\n  {_command_line()}', file=sys.stderr)
        return leave_job(128 + signal.SIGINT)
    except ERRORS as error:
        print(f'error: {message_with_flags(error)}', file=sys.stderr)
        return leave_job(1)
    except jax.errors.JaxRuntimeError as error:
        if not jax.distributed.is_initialized():
            raise
        reason = first_line(error)
        print(f'error: a process of the job is gone or failed ({reason}); start all again to go on', file=sys.stderr)
        return leave_job(1)
    return 0


def start_logging():
    """Show what the library announces and logs in lines like our own, above whatever bar there is."""
    sources.listener = lambda line: show_above_progress(message_with_flags(line))
    logging.set_verbosity(logging.INFO)
    python_logging.root.removeHandler(logging.get_absl_handler())
    python_logging.root.addHandler(LOG)
    sys.unraisablehook = lambda _: None  # after a failed save each array that is still being written would report


def set_compilation_cache(config):
    """Keep compiled programs between runs, so that the second start is quick."""
    if getattr(config, 'compilation_cache', 'off') == 'off':
        return
    folder = cache_folder('xla') if config.compilation_cache == 'auto' else Path(config.compilation_cache)
    jax.config.update('jax_compilation_cache_dir', str(folder.expanduser()))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.2)


def _command_line():
    """The command line that started this program."""
    module = sys.modules['__main__'].__spec__
    program = f'python -m {module.name}' if module else f'python {sys.argv[0]}'
    return ' '.join([program, *sys.argv[1:]])
