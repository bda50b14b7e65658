"""Speed and memory of protojax beside textbook Flax and PyTorch, on the CPU.

    python -m experiments.benchmark

prints tables in Markdown and writes all figures to a JSON file. It takes about twenty minutes, in which nothing else
should run; --quick takes three. The figures of README come from one such run for each of its sections (omniglot,
miniimagenet, evaluation),

    python -m experiments.benchmark --sections=omniglot --rounds=3 --baseline=PATH \\
        --output=experiments/results/benchmark.json

where --baseline=PATH adds another copy of protojax as a contender, here a git worktree of version 0.1.0. README's table
is `experiments.benchmark.report.report_for_readme` of the file. PyTorch takes part where it is installed
(pip install 'protojax[benchmark]').
"""

import dataclasses
import json
from pathlib import Path

from experiments.benchmark.measuring import measure
from experiments.benchmark.plan import MATMUL_SIZE, QUICK, QUICK_ROUNDS, ROUNDS, SECONDS, plan_matmuls, plan_sections
from experiments.benchmark.report import (
    earlier_sections,
    report_introduction,
    reported_code,
    reported_machine,
    section_report,
    section_summary,
)
from experiments.running.command import launch_command
from experiments.running.config import CommandConfig, ConfigError, option
from protojax.files import write_whole


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(CommandConfig):
    quick: bool = option(False, f'Only {" and ".join(QUICK)}, in {QUICK_ROUNDS} rounds: three minutes.')
    sections: str = option(
        '', f'Sections to measure, with commas between (default: all): {", ".join(plan_sections())}.'
    )
    rounds: int = option(0, f'Turns of each contender; 0: {ROUNDS}, or {QUICK_ROUNDS} if quick.', minimum=0)
    output: str = option('benchmark.json', 'File for all figures; sections that it holds stay in it.')
    baseline: str = option('', 'Root of another copy of protojax, to be measured as a contender.')


def run_benchmark(config):
    """Measure the sections that a config names."""
    known, output = plan_sections(config.baseline or None), Path(config.output)
    names = config.sections.split(',') if config.sections else QUICK if config.quick else list(known)
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f'there is no section {unknown[0]!r}; choose --sections of {",".join(known)}')
    if config.baseline and not (Path(config.baseline) / 'experiments' / 'benchmark').is_dir():
        raise ConfigError(f'--baseline={config.baseline} holds no copy of protojax; give its root')
    try:
        output.touch()  # before minutes are spent
    except OSError as error:
        raise ConfigError(f'cannot write --output={output}: {error.strerror}; choose another') from error
    rounds = config.rounds or (QUICK_ROUNDS if config.quick else ROUNDS)
    if config.quick:
        print(f'Quick: {rounds} rounds of {", ".join(names)} alone.\n')
    chosen, code = [known[name] for name in names], reported_code(config.baseline)
    measure_sections(chosen, plan_matmuls(MATMUL_SIZE), output, rounds=rounds, seconds=SECONDS, code=code)


def measure_sections(sections, yardsticks, output, *, rounds, seconds, code):
    """Measure some sections, print their tables and write all figures -> the figures.

    What has been measured is written after each section, with `code`, which names what was measured. Other sections
    that the file holds already stay in it if they are of the same machine and versions: a run can be made in parts.
    """
    machine = reported_machine()
    figures = {'machine': machine, 'rounds': rounds, 'seconds_per_turn': seconds}
    figures['sections'] = earlier_sections(output, machine)
    print(report_introduction(machine), flush=True)
    for section in sections:
        found = section_summary(section, yardsticks, *measure(section, yardsticks, rounds=rounds, seconds=seconds))
        others = [other for other in figures['sections'] if other['section'] != section.name]
        figures['sections'] = [*others, found | code]
        write_whole(output, json.dumps(figures, indent=2) + '\n')
        print(section_report(found), flush=True)
    return figures


if __name__ == '__main__':
    launch_command(BenchmarkConfig(), run_benchmark)
