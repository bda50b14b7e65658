"""Fuzzing: feeds corrupted files to every reader, and corrupted requests to the server of the browser demo.

    python -m tests.fuzz --files=1000
    python -m tests.fuzz --files=1000 --formats=pkl,mat --seed=1

Each input must be read, or rejected with an error of one line. Anything else (another exception, a crash, much
computing) is a defect, and its files are kept. Format, seed and number determine an input.
"""

import argparse
import pathlib
import sys

from tests.fuzz import pool
from tests.fuzz.formats import FORMATS


def main() -> int:
    parser = argparse.ArgumentParser('python -m tests.fuzz', description=__doc__.splitlines()[0])
    parser.add_argument('--files', type=int, default=1000, help='Number of inputs per format.')
    parser.add_argument('--formats', default=','.join(FORMATS), help='Formats, separated by commas (default: all).')
    parser.add_argument('--seed', type=int, default=0, help='Random seed of the inputs.')
    parser.add_argument('--keep', type=pathlib.Path, default='fuzz', help='Folder for inputs that are defects.')
    options = parser.parse_args()
    chosen = options.formats.split(',')
    if unknown := sorted(set(chosen) - set(FORMATS)):
        parser.error(f'unknown format {unknown[0]!r}; choose some of {", ".join(FORMATS)}')
    found = False
    print('| format | rejected | read | defects |\n| --- | ---: | ---: | ---: |')
    for name in chosen:
        jobs = [pool.Job(name, options.seed, number) for number in range(options.files)]
        outcomes = dict(pool.attack(jobs, options.keep))
        defects = {job: outcome for job, outcome in outcomes.items() if outcome not in pool.EXPECTED}
        rejected = list(outcomes.values()).count('rejected')
        print(f'| {name} | {rejected:,} | {len(jobs) - rejected - len(defects):,} | {len(defects):,} |', flush=True)
        for job, outcome in defects.items():
            print(f'{options.keep / str(job)}: {outcome}', file=sys.stderr, flush=True)
        found |= bool(defects)
    return int(found)


if __name__ == '__main__':
    sys.exit(main())
