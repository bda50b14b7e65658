"""The benchmark's figures as plain values, and as tables in Markdown."""

import json
import os
import platform
import sys
from importlib import metadata

from experiments.reporting.markdown import markdown_table
from experiments.running.hardware import commit, processor

# Column, key of its values, and their form.
COLUMNS = (
    ('seconds per {unit}', 'seconds', '{:.3g}'),
    ('median', 'median_seconds', '{:.3g}'),
    ('spread', 'swing', '{:.0%}'),
    ('times the first', 'ratio_to_first', '{:.2f}'),
    ('images/s', 'images_per_second', '{:,.0f}'),
    ('GFLOP/s', 'gflops', '{:.0f}'),
    ('of matmul', 'share_of_matmul', '{:.0%}'),
    ('peak memory, MB', 'peak_memory_mb', '{:,.0f}'),
    ('first step, s', 'first_step_seconds', '{:.2g}'),
)
MOST_SWING = 1 / 3  # of the matmul rate between rounds, for ratios to mean something
EXPLANATION = (
    'Best of the rounds, their median, and by how much the slowest falls behind the best. Operations are those of the '
    'convolutions as a textbook counts them, whatever a contender computes; their limit is a large float32 matrix '
    'product, measured in the same rounds. Peak memory is that of the whole process: Python, its libraries, compiling, '
    'the data set and the buffers of a step. The first step includes tracing and compiling.'
)


def section_summary(section, yardsticks, measured, idle, left_out):
    """All figures of a section as plain values; without ratios where the machine was too uneven for them."""
    rates = {}
    for entry in yardsticks:
        if entry.contender.name in measured:
            rates[entry.contender.name] = entry.flops / measured[entry.contender.name].best / 1e9
    entries = [entry for entry in section.entries if entry.contender.name in measured]
    rows = [_report_row(entry, measured[entry.contender.name], max(rates.values())) for entry in entries]
    swing = max(measured[name].swing for name in rates)
    for figures in rows:
        figures['ratio_to_first'] = figures['seconds'] / rows[0]['seconds'] if swing <= MOST_SWING else None
    return {
        'section': section.name,
        'title': section.title,
        'unit': section.unit,
        'rows': rows,
        'matmul_gflops': rates,
        'matmul_swing': swing,
        'load': os.getloadavg()[0],
        'idle_share': idle,
        'left_out': left_out,
    }


def _report_row(entry, measurement, matmul_gflops):
    best, gflops = measurement.best, entry.flops / measurement.best / 1e9
    return {
        'contender': entry.contender.name,
        'seconds': best * entry.scale,
        'median_seconds': measurement.median * entry.scale,
        'swing': measurement.swing,
        'images_per_second': entry.images / best if entry.images else None,
        'gflops': gflops if entry.flops else None,
        'share_of_matmul': gflops / matmul_gflops if entry.flops else None,
        'peak_memory_mb': measurement.peak_memory and measurement.peak_memory / 2**20,
        'first_step_seconds': measurement.first_step,
        'turns': [seconds * entry.scale for seconds in measurement.turns],
    }


def section_report(figures):
    """A section's figures as a heading, a table and its notes."""
    header = ['', *(title.format(unit=figures['unit']) for title, _, _ in COLUMNS)]
    rows = []
    for values in figures['rows']:
        cells = ['' if values[key] is None else form.format(values[key]) for _, key, form in COLUMNS]
        rows.append([values['contender'], *cells])
    lines = [f'### {figures["title"]}', '', *markdown_table(header, rows)]
    rates = ', '.join(f'{name} {rate:.0f}' for name, rate in figures['matmul_gflops'].items())
    swing, load = figures['matmul_swing'], figures['load']
    lines += ['', f'GFLOP/s of the machine: {rates}; between rounds they fell by up to {swing:.0%}; load {load:.1f}.']
    if swing > MOST_SWING:
        lines.append(
            f'No ratios: the speed of the machine changed by more than {100 * MOST_SWING:.0f} % between rounds.'
        )
    if figures['idle_share'] is not None:
        lines.append(f'In {figures["idle_share"]:.2%} of the time of the loop, between two steps, no step was at work.')
    lines += [f'Left out: {name} ({reason}).' for name, reason in figures['left_out'].items()]
    return '\n'.join(lines) + '\n'


def reported_machine():
    """Processor, its load, and versions of what was measured."""
    versions = {'python': platform.python_version()}
    for package in ('jax', 'jaxlib', 'flax', 'torch'):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {'processor': processor(), 'load_before': os.getloadavg()[0], 'versions': versions}


def reported_code(baseline):
    """The command, without paths, and the commits that it measures."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith(('--output', '--baseline'))]
    command = ' '.join(['python -m experiments.benchmark', *given, *(['--baseline=PATH'] if baseline else [])])
    return {'command': command, 'commit': commit(), 'baseline': commit(baseline) if baseline else None}


def earlier_sections(output, machine):
    """Sections of an earlier run on this machine with these versions that the file holds."""
    try:
        figures = json.loads(output.read_text())
        same = all(figures['machine'][key] == machine[key] for key in ('processor', 'versions'))
        return figures['sections'] if same else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def report_introduction(about):
    """The machine in a sentence, and what the columns mean."""
    versions = ', '.join(f'{name} {version}' for name, version in about['versions'].items() if version)
    hardware = f'{about["processor"]}, load {about["load_before"]:.1f} at the start'
    return f'{hardware}; {versions}. {EXPLANATION}\n'


# README's rows: the name there, and the contender of training and of evaluation.
README_ROWS = (
    ('protojax', 'protojax', 'protojax'),
    ('protojax, bfloat16', 'protojax, bfloat16', 'protojax, bfloat16'),
    ('protojax without the C++ kernels', 'protojax, kernels off', 'protojax, kernels off'),
    (
        'PyTorch, channels_last, malloc tuned by the environment',
        'PyTorch channels_last, tuned malloc',
        'PyTorch channels_last, tuned malloc, images embedded once',
    ),
    ('the same with bfloat16 autocast', 'PyTorch bfloat16 autocast, tuned malloc', None),
    ('the same with torch.compile', 'PyTorch compiled, tuned malloc', None),
    ('PyTorch, channels_last', 'PyTorch channels_last', 'PyTorch channels_last, images embedded once'),
    ('PyTorch, NCHW', 'PyTorch NCHW', None),
    ('textbook Flax', 'textbook Flax', None),
    ('PyTorch, channels_last, embedding each episode', None, 'PyTorch channels_last, each episode embedded (scaled)'),
    ('PyTorch, NCHW, embedding each episode', None, 'PyTorch NCHW, each episode embedded (scaled)'),
    ('textbook Flax, embedding each episode', None, 'textbook Flax, each episode embedded (scaled)'),
)


def report_for_readme(figures):
    """The table of the README from the figures of a run, as text."""
    found = {section['section']: section for section in figures['sections']}
    columns = [found[name] for name in ('omniglot', 'miniimagenet', 'evaluation')]
    rows = []
    for name, training, evaluation in README_ROWS:
        cells = [_report_cell_for_readme(c, training if c['unit'] == 'step' else evaluation) for c in columns]
        if any(cells):
            rows.append([name, *cells])
    rows.append(['peak memory: protojax / the lowest of PyTorch', *map(_report_memory_for_readme, columns)])
    header = ['', 'Omniglot, training step', 'miniImageNet, training step', columns[2]['unit'].replace(' ', ' test ')]
    return '\n'.join(markdown_table(header, rows)) + '\n'


def _report_cell_for_readme(section, contender):
    """Seconds of a contender and how many times those of the first they are; empty if it took no part."""
    values = next((row for row in section['rows'] if row['contender'] == contender), None)
    if values is None:
        return ''
    ratio = values['ratio_to_first']
    seconds = f'{values["seconds"]:.2g} s' if values['seconds'] < 100 else f'{values["seconds"]:.0f} s'
    return seconds if ratio is None or values is section['rows'][0] else f'{seconds} ({ratio:.1f}x)'


def _report_memory_for_readme(section):
    ours = section['rows'][0]['peak_memory_mb']
    theirs = min((r['peak_memory_mb'] for r in section['rows'] if r['contender'].startswith('PyTorch')), default=None)
    return f'{ours:,.0f} MB' if theirs is None else f'{ours:,.0f} / {theirs:,.0f} MB'
