"""Fault injection: shows that killed runs finish with identical output.

    python -m tests.faults --kills=100

Runs a small experiment once without interruption. Then runs of it are killed with SIGKILL, at each stage and at random
times, and restarted until they finish: parameters, metrics, results and weights must be the same, bit for bit. Prints a
table in Markdown.
"""

import argparse
import collections
import pathlib
import random
import sys
import tempfile
import time

from tests.faults import runs
from tests.helpers import compiler
from tests.helpers.forks import Program

STAGES = {  # in the order in which a run reaches them: workdir, output, files at the start -> whether it is there
    'search': lambda workdir, output, before: _trains(workdir, 'search', before),
    'saving a checkpoint': lambda workdir, output, before: runs.unfinished_saves(workdir) - before[1],
    'training': lambda workdir, output, before: _trains(workdir, 'train', before),
    'evaluating': lambda workdir, output, before: 'evaluating' in output,
    'drawing plots': lambda workdir, output, before: 'drawing' in output,
    'any': lambda workdir, output, before: True,  # at a random time after the start
}


def _trains(workdir, stage, before):
    return any(line['stage'] == stage for line in runs.metrics(workdir)[before[0] :])


def start(workdir: pathlib.Path) -> Program:
    return Program('tests.helpers.tiny', f'--workdir={workdir}', '--pictures=on', XLA_FLAGS=compiler.flags())


def kill(workdir: pathlib.Path, stage: str, delay: float) -> bool:
    """Start a run and kill it `delay` seconds after it reaches a stage. Returns whether it was still running."""
    before = len(runs.metrics(workdir)), runs.unfinished_saves(workdir)
    run = start(workdir)
    while run.process.is_alive() and not STAGES[stage](workdir, run.output, before):
        time.sleep(0.0005)
    time.sleep(delay)
    alive = run.process.is_alive()
    run.process.kill()
    run.wait()
    return alive


def main() -> int:
    parser = argparse.ArgumentParser('python -m tests.faults', description=__doc__.splitlines()[0])
    parser.add_argument('--kills', type=int, default=25, help='Number of kills.')
    parser.add_argument('--seed', type=int, default=0, help='Random seed for the times of the kills.')
    options = parser.parse_args()
    rng, problems, finished, counts = random.Random(options.seed), [], 0, collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        whole, began = pathlib.Path(folder, 'uninterrupted'), time.monotonic()
        assert start(whole).wait() == 0
        seconds = time.monotonic() - began
        while counts.total() < options.kills:
            workdir = pathlib.Path(folder, f'run{finished}')
            for stage in list(STAGES)[: options.kills - counts.total()]:
                longest = seconds if stage == 'any' else rng.choice((0, 0.02, 0.3))
                counts[stage] += kill(workdir, stage, rng.uniform(0, longest))
                print(stage, counts[stage], flush=True)
            run = start(workdir)
            problems += runs.differences(whole, workdir) if run.wait() == 0 else [run.output]
            finished += 1
    print('\n| killed while | times |\n| --- | ---: |')
    print(*(f'| {stage} | {counts[stage]} |' for stage in STAGES), sep='\n')
    print(f'\n{counts.total()} kills of {finished} runs; {len(problems)} differences from the uninterrupted run.')
    print(*problems, sep='\n')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
