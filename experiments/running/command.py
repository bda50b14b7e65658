"""Commands that are no experiments: a flag for each field of a dataclass, and errors in one line."""

import signal
import sys

from experiments.running.config import ConfigError
from experiments.running.flags import config_from_flags, define_flags, flags_help, message_with_flags, start_with_flags
from experiments.running.startup import set_compilation_cache, start_logging
from protojax.errors import DataError, WeightsError, first_line

ERRORS = (ConfigError, DataError, WeightsError)


def launch_command(defaults, run, *, arguments=False):
    """Run a function of the config as a program; with `arguments` also of those that are no flags."""
    if {'--help', '-help', '-h'} & set(sys.argv[1:]):
        print(flags_help(sys.modules['__main__'].__doc__, defaults))
        return
    define_flags(defaults)
    start_with_flags(lambda argv: _main(argv, defaults, run, arguments))


def _main(argv, defaults, run, arguments):
    """Exit code 0, or a one-line error and another code."""
    try:
        if argv[1:] and not arguments:
            raise ConfigError(f'{argv[1]!r} is no flag; flags begin with --, see --help')
        config = config_from_flags(defaults)
        start_logging()
        set_compilation_cache(config)
        run(config, *([argv[1:]] if arguments else []))
    except ERRORS as error:
        print(f'error: {message_with_flags(error)}', file=sys.stderr)
        return 1
    except OSError as error:
        print(f'error: {message_with_flags(first_line(error))}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0
