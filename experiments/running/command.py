"""Commands that are no experiments: a flag for each field of a dataclass, and errors in one line."""

import dataclasses
import signal
import sys
from typing import ClassVar

from experiments.running.config import MACHINE, ConfigError, option
from experiments.running.flags import define_flags, from_flags, help_text, start, with_flags
from experiments.running.startup import quiet_logs, set_compilation_cache
from protojax.errors import DataError, WeightsError, first_line

ERRORS = (ConfigError, DataError, WeightsError)


@dataclasses.dataclass(frozen=True)
class CommandConfig:
    """What all commands share."""

    variants: ClassVar[dict] = {}

    compilation_cache: str = option(
        'auto', 'Folder of compiled programs ("auto": ~/.cache/protojax/xla; "off": none).', group=MACHINE
    )

    def resolved(self):
        """The config with every value filled in that depends on others."""
        return self


def launch_command(defaults, run):
    """Run a function of the config and the arguments that are no flags as a program."""
    if {'--help', '-help', '-h'} & set(sys.argv[1:]):
        print(help_text(sys.modules['__main__'].__doc__, defaults))
        return
    define_flags(defaults)
    start(lambda argv: main(argv, defaults, run))


def main(argv, defaults, run):
    """Exit code 0, or a one-line error and another code."""
    try:
        config = from_flags(defaults)
        quiet_logs()
        set_compilation_cache(config)
        run(config, argv[1:])
    except ERRORS as error:
        print(f'error: {with_flags(error)}', file=sys.stderr)
        return 1
    except OSError as error:
        print(f'error: {first_line(error)}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0
