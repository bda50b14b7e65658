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

import json
import sys
from pathlib import Path

from absl import flags

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
from experiments.running.flags import start_with_flags


def run_benchmark(sections, yardsticks, output, *, rounds, seconds, code=None):
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
        figures['sections'] = [*others, found | (code or {})]
        output.write_text(json.dumps(figures, indent=2) + '\n')
        print(section_report(found), flush=True)
    return figures


def _main(argv):
    """Exit code 0, or a one-line error and another code."""
    values = flags.FLAGS
    known = plan_sections(values.baseline or None)
    names = values.sections or (QUICK if values.quick else list(known))
    unknown = [*argv[1:], *(name for name in names if name not in known)]
    output = Path(values.output)
    if unknown:
        print(f'error: there is no section {unknown[0]!r}; choose --sections of {",".join(known)}', file=sys.stderr)
        return 1
    if values.baseline and not (Path(values.baseline) / 'experiments' / 'benchmark').is_dir():
        print(f'error: --baseline={values.baseline} holds no copy of protojax; give its root', file=sys.stderr)
        return 1
    try:
        output.touch()  # before minutes are spent
    except OSError as error:
        print(f'error: cannot write --output={output}: {error.strerror}; choose another', file=sys.stderr)
        return 1
    rounds = values.rounds or (QUICK_ROUNDS if values.quick else ROUNDS)
    if values.quick:
        print(f'Quick: {rounds} rounds of {", ".join(names)} alone.\n')
    chosen, code = [known[name] for name in names], reported_code(values.baseline)
    run_benchmark(chosen, plan_matmuls(MATMUL_SIZE), output, rounds=rounds, seconds=SECONDS, code=code)
    return 0


def _define_benchmark_flags():
    sections, quick = ', '.join(plan_sections()), ' and '.join(QUICK)
    flags.DEFINE_boolean('quick', False, f'Only {quick}, in {QUICK_ROUNDS} rounds: three minutes.')
    flags.DEFINE_list('sections', [], f'Sections to measure, with commas between (default: all): {sections}.')
    flags.DEFINE_integer('rounds', 0, f'Turns of each contender; 0: {ROUNDS}, or {QUICK_ROUNDS} if quick.', 0)
    flags.DEFINE_string('output', 'benchmark.json', 'File for all figures; sections that it holds stay in it.')
    flags.DEFINE_string('baseline', '', 'Root of another copy of protojax, to be measured as a contender.')


if __name__ == '__main__':
    _define_benchmark_flags()
    start_with_flags(_main)
