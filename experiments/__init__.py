"""Commands: `protojax NAME` or `python -m experiments.NAME`."""

import pathlib
import sys

if pathlib.Path(sys.argv[0]).name in ('-m', 'protojax') and sys.stderr.isatty():  # importing libraries takes seconds
    print('starting ...', end='\r', file=sys.stderr, flush=True)
