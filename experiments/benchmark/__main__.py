"""Speed and memory of protojax, textbook Flax and PyTorch on the CPU.

    python -m experiments.benchmark

prints Markdown tables and writes all results to a JSON file. It takes about twenty minutes on an otherwise idle
machine. The published results come from runs of single sections,

    python -m experiments.benchmark --sections=omniglot --rounds=3 --output=experiments/results/benchmark.json

PyTorch is included if it is installed (pip install 'protojax[benchmark]').

The columns: best round, median round, and spread, the fraction by which the slowest round is behind the best.
Operations are counted as direct convolutions for all implementations and compared with a large float32 matrix product,
measured in the same rounds. Peak memory includes Python, libraries, compilation, the data set and the buffers of a
step. The first step includes tracing and compilation.
"""

import json
from pathlib import Path

from experiments.benchmark import plan, report
from experiments.benchmark.measuring import measure
from experiments.running.cli import launch_command
from experiments.running.config import ConfigError, Part, option
from protojax.files import write_whole


class BenchmarkConfig(Part):
    sections: str = option(','.join(plan.sections()), 'Comma-separated sections to measure.')
    rounds: int = option(7, 'Number of rounds; in each, every implementation runs once.', minimum=1)
    output: str = option('benchmark.json', 'File for all results; sections that it already contains are kept.')


def run(config: BenchmarkConfig) -> None:
    """Measure the sections that a config names."""
    known, output = plan.sections(), Path(config.output)
    names = config.sections.split(',')
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f'unknown section {unknown[0]!r}; choose --sections from {",".join(known)}')
    output.touch()  # fail fast
    chosen, yardstick = [known[name] for name in names], plan.matmul(plan.MATMUL_SIZE)
    measure_sections(chosen, yardstick, output, rounds=config.rounds, seconds=plan.SECONDS, code=report.code())


def measure_sections(
    sections: list[plan.Section], yardstick: plan.Contender, output: Path, *, rounds: int, seconds: float, code: dict
) -> None:
    """Measure sections, print their tables and write all results.

    The results are written after each section, with `code`, the commit that was measured. Other sections of the file
    are kept if they come from the same machine and versions, so a benchmark can be run in parts.
    """
    machine = report.machine()
    kept = {section['section']: section for section in report.earlier(output, machine)}
    versions = ', '.join(f'{name} {version}' for name, version in machine['versions'].items())
    print(f'{machine["processor"]}, load {machine["load_before"]:.1f} at the start; {versions}\n', flush=True)
    for section in sections:
        found = report.summary(section, yardstick, *measure(section, yardstick, rounds=rounds, seconds=seconds))
        kept[section.name] = found | code
        results = {'machine': machine, 'rounds': rounds, 'seconds_per_turn': seconds, 'sections': list(kept.values())}
        write_whole(output, json.dumps(results, indent=2) + '\n')
        print(report.markdown_section(found), flush=True)


if __name__ == '__main__':
    launch_command(BenchmarkConfig, run)
