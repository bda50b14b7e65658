"""Commands: `python -m experiments.NAME`."""

import sys

if sys.argv[0] == '-m' and sys.stderr.isatty():  # a command is being started; loading its libraries takes seconds
    print('starting ...', end='\r', file=sys.stderr, flush=True)
