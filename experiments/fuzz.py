"""Attacks every reader with mutated files, and the page with mutated requests: each is read or refused in one line.

    python -m experiments.fuzz --files=10000
    python -m experiments.fuzz --files=1000 --formats=pkl,mat --seed=1

A mutant is a whole file with a few changes of its bytes or of its structure. A mutant is determined by its format, seed
and number. Whatever else happens to the reader (another exception, a crash, more than 2 GiB or 5 seconds) is a defect,
and its file is kept.
"""

import collections
import concurrent.futures
import dataclasses
import pathlib
import time

from experiments.fuzzing.formats import FORMATS
from experiments.fuzzing.pool import MutantJob, attack
from experiments.reporting.markdown import markdown_table
from experiments.running.command import launch_command
from experiments.running.config import CommandConfig, ConfigError, option


@dataclasses.dataclass(frozen=True)
class FuzzConfig(CommandConfig):
    files: int = option(1000, 'Mutants of each format.', minimum=1)
    formats: str = option('', f'Some of {", ".join(FORMATS)}, with commas between (default: all).')
    seed: int = option(0, 'Random seed of the mutants.')
    processes: int = option(2, 'Processes that read at the same time.', minimum=1)
    keep: str = option('fuzz', 'Folder for the files that are defects.')


def run_fuzz(config):
    chosen = config.formats.split(',') if config.formats else FORMATS
    if unknown := [name for name in chosen if name not in FORMATS]:
        raise ConfigError(f'{unknown[0]!r} is no format; choose some of {", ".join(FORMATS)}')
    pathlib.Path(config.keep).mkdir(parents=True, exist_ok=True)
    rows, defects = [], []
    for name in chosen:
        began, counts = time.monotonic(), collections.Counter()
        print(f'{name}: {config.files:,} mutants', flush=True)
        for job, outcome in _attack_together(name, config):
            counts[outcome if outcome in ('read', 'refused') else 'defect'] += 1
            defects += [f'{config.keep}/{job}: {outcome}'] if outcome not in ('read', 'refused') else []
        numbers = [f'{number:,}' for number in (counts.total(), *(counts[k] for k in ('refused', 'read', 'defect')))]
        rows.append([name, *numbers, f'{(time.monotonic() - began) / 60:.1f}'])
    print('\n'.join(markdown_table(('format', 'tried', 'refused', 'read', 'defects', 'minutes'), rows)))
    if defects:
        print('\n'.join(defects))
        raise ConfigError(f'{len(defects)} files are neither read nor refused; they are in {config.keep}')


def _attack_together(name, config):
    """The mutants of a format, shared by some processes -> [(job, outcome)]."""
    keep, jobs = pathlib.Path(config.keep).absolute(), [MutantJob(name, config.seed, n) for n in range(config.files)]
    shares = [jobs[start :: config.processes] for start in range(config.processes)]
    with concurrent.futures.ThreadPoolExecutor(config.processes) as pool:
        return sum(pool.map(lambda share: list(attack(share, keep)), shares), [])


if __name__ == '__main__':
    launch_command(FuzzConfig(), run_fuzz)
