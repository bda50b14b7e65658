"""Start of every command: flags, logging, compilation cache, and errors as one line."""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from absl import logging as absl_logging

import protojax
from experiments.methods.options import ConfigError, Part
from experiments.running import driver, fit, flags, multihost, progress
from experiments.running.config import CompilingConfig, Experiment
from experiments.running.workdir import WorkdirError
from protojax import errors, files

LIBRARY = Path(protojax.__file__).parent
ERRORS = (ConfigError, errors.DataError, WorkdirError, errors.WeightsError, errors.CheckpointError, fit.Diverged)
HELP = {'--help', '-help', '-h', '--helpshort', '--helpfull'}


def launch(experiment: Experiment) -> None:
    """Run an experiment as a program."""

    def run(arguments):
        config = experiment.parse(arguments)
        start(config.run.compilation_cache)
        multihost.join(config.run.coordinator_address, config.run.num_processes, config.run.process_id)
        driver.run(config, experiment)

    _exit_with(run, experiment.selected)


def launch_command(part: type[Part], run: Callable[..., Any], *, arguments: bool = False) -> None:
    """Run a function of options as a program; with `arguments` it also gets the arguments that are not flags."""

    def run_command(given):
        (options,), rest = flags.parse([part], {}, given, positional=arguments)
        start(options.compilation_cache if isinstance(options, CompilingConfig) else 'off')
        run(options, *([rest] if arguments else []))

    _exit_with(run_command, lambda _: ([part], {}))


def _exit_with(run, selected):
    """Print help or run a function of the arguments, and exit with code 0 or with a one-line error."""
    given = sys.argv[1:]
    listen()
    sys.stdout.reconfigure(errors='backslashreplace')  # type: ignore[union-attr] # names of files may not be text
    try:
        if HELP & set(given):
            description = sys.modules['__main__'].__doc__ or ''
            print(flags.help(description, *selected(given), full='--helpfull' in given))
        else:
            run(given)
        sys.stdout.flush()
    except fit.Interrupted as interruption:
        print(f'\n{interruption}:\n  {_command_line()}', file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except KeyboardInterrupt:  # not in the training loop, or for the second time
        print(f'\nstopped; rerun the same command to resume:\n  {_command_line()}', file=sys.stderr)
        sys.exit(multihost.leave(128 + signal.SIGINT))
    except BrokenPipeError:  # the reader of the output, such as head, has ended
        os._exit(128 + signal.SIGPIPE)
    except (*ERRORS, OSError, MemoryError) as error:
        sys.unraisablehook = lambda _: None  # after a failed save, each unfinished array would print a traceback
        reason = errors.first_line(error) if isinstance(error, OSError | MemoryError) else error
        print(f'error: {flags.message(reason)}', file=sys.stderr)
        sys.exit(multihost.leave(1))
    except jax.errors.JaxRuntimeError as error:
        if not jax.distributed.is_initialized():
            raise
        reason = errors.first_line(error)
        print(f'error: a process stopped or failed ({reason}); restart all processes to resume', file=sys.stderr)
        sys.exit(multihost.leave(1))
    sys.exit(0)


class _Log(logging.Handler):
    """Print log messages of protojax, and warnings of all libraries, once, as lines above the progress bar."""

    printed = ''

    def filter(self, record: logging.LogRecord) -> bool:
        path = Path(record.pathname)  # a failed save of Orbax is raised as CheckpointError, so its log is left out
        return path.is_relative_to(LIBRARY) or (record.levelno > logging.INFO and 'orbax' not in path.parts)

    def emit(self, record: logging.LogRecord) -> None:
        level = '' if record.levelno == logging.INFO else f'{record.levelname.lower()}: '
        message = level + flags.message(record.getMessage())
        if message != self.printed:  # the files of a folder are looked at twice
            progress.print_above(message)
        self.printed = message


def listen() -> None:
    """Send log messages to the terminal."""
    absl_logging.set_verbosity(absl_logging.INFO)
    logging.root.setLevel(logging.INFO)
    logging.root.handlers = [_Log()]


def start(compilation_cache: str) -> None:
    """Keep compiled programs in a folder: 'auto' selects it, 'off' disables."""
    if compilation_cache == 'off':
        jax.config.update('jax_enable_compilation_cache', False)
    else:
        files.cache_programs(None if compilation_cache == 'auto' else compilation_cache)


def _command_line():
    """Return the command line of this process."""
    module = sys.modules['__main__'].__spec__
    program = ['python', '-m', module.name] if module else ['python', sys.argv[0]]
    return shlex.join([*program, *sys.argv[1:]])
