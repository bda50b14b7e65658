"""Speed and memory of protojax beside textbook Flax and PyTorch, on the CPU.

    python -m experiments.benchmark

prints tables in Markdown and writes all figures to a JSON file. It takes about twelve minutes, in which nothing else
should run; --quick takes two. PyTorch takes part where it is installed (pip install 'protojax[benchmark]').
"""

import json
import sys
from pathlib import Path

from absl import flags

from experiments.benchmark import plan, report
from experiments.benchmark.measuring import measure
from experiments.running.flags import start


def run(sections, yardsticks, output, *, rounds, seconds):
    """Measure some sections, print their tables and write all figures -> the figures.

    What has been measured is written after each section.
    """
    figures = {'machine': report.machine(), 'rounds': rounds, 'seconds_per_turn': seconds, 'sections': []}
    print(report.introduction(figures['machine']), flush=True)
    for section in sections:
        found = report.summary(section, yardsticks, *measure(section, yardsticks, rounds=rounds, seconds=seconds))
        figures['sections'].append(found)
        output.write_text(json.dumps(figures, indent=2) + '\n')
        print(report.markdown(found), flush=True)
    return figures


def main(argv):
    """Exit code 0, or a one-line error and another code."""
    values, known = flags.FLAGS, plan.sections()
    names = values.sections or (plan.QUICK if values.quick else list(known))
    unknown = [*argv[1:], *(name for name in names if name not in known)]
    output = Path(values.output)
    if unknown:
        print(f'error: there is no section {unknown[0]!r}; choose --sections of {",".join(known)}', file=sys.stderr)
        return 1
    try:
        output.touch()  # before minutes are spent
    except OSError as error:
        print(f'error: cannot write --output={output}: {error.strerror}; choose another', file=sys.stderr)
        return 1
    rounds = values.rounds or (plan.QUICK_ROUNDS if values.quick else plan.ROUNDS)
    if values.quick:
        print(f'Quick: {rounds} rounds of {", ".join(names)} alone.\n')
    run([known[name] for name in names], plan.matmuls(plan.MATMUL_SIZE), output, rounds=rounds, seconds=plan.SECONDS)
    return 0


def define_flags():
    sections, quick = ', '.join(plan.sections()), ' and '.join(plan.QUICK)
    flags.DEFINE_boolean('quick', False, f'Only {quick}, in {plan.QUICK_ROUNDS} rounds: two minutes.')
    flags.DEFINE_list('sections', [], f'Sections to measure, with commas between (default: all): {sections}.')
    flags.DEFINE_integer('rounds', 0, f'Turns of each contender; 0: {plan.ROUNDS}, or {plan.QUICK_ROUNDS} if quick.', 0)
    flags.DEFINE_string('output', 'benchmark.json', 'File for all figures.')


if __name__ == '__main__':
    define_flags()
    start(main)
