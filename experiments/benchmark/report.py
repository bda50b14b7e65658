"""The benchmark's figures as plain values, and as tables in Markdown."""

import os
import platform
from importlib import metadata

from experiments.reporting.markdown import table
from experiments.running.hardware import processor

# Column, key of its values, and their form.
COLUMNS = (
    ('seconds per {unit}', 'seconds', '{:.3g}'),
    ('median', 'median_seconds', '{:.3g}'),
    ('times the first', 'ratio_to_first', '{:.2f}'),
    ('images/s', 'images_per_second', '{:,.0f}'),
    ('GFLOP/s', 'gflops', '{:.0f}'),
    ('of matmul', 'share_of_matmul', '{:.0%}'),
    ('peak memory, MB', 'peak_memory_mb', '{:,.0f}'),
    ('first step, s', 'first_step_seconds', '{:.2g}'),
)
EXPLANATION = (
    'Best of the rounds, and their median. Operations are those of the convolutions as a textbook counts them, '
    'whatever a contender computes; their limit is a large float32 matrix product, measured in the same rounds. Peak '
    'memory is that of the whole process: Python, its libraries, compiling, the data set and the buffers of a step. '
    'The first step includes tracing and compiling.'
)


def summary(section, yardsticks, measured, idle, left_out):
    """All figures of a section as plain values."""
    rates = {}
    for entry in yardsticks:
        if entry.contender.name in measured:
            rates[entry.contender.name] = entry.flops / measured[entry.contender.name].best / 1e9
    entries = [entry for entry in section.entries if entry.contender.name in measured]
    rows = [row(entry, measured[entry.contender.name], max(rates.values())) for entry in entries]
    for figures in rows:
        figures['ratio_to_first'] = figures['seconds'] / rows[0]['seconds']
    return {
        'section': section.name,
        'title': section.title,
        'unit': section.unit,
        'rows': rows,
        'matmul_gflops': rates,
        'idle_share': idle,
        'left_out': left_out,
    }


def row(entry, measurement, matmul_gflops):
    best, gflops = measurement.best, entry.flops / measurement.best / 1e9
    return {
        'contender': entry.contender.name,
        'seconds': best * entry.scale,
        'median_seconds': measurement.median * entry.scale,
        'images_per_second': entry.images / best if entry.images else None,
        'gflops': gflops if entry.flops else None,
        'share_of_matmul': gflops / matmul_gflops if entry.flops else None,
        'peak_memory_mb': measurement.peak_memory and measurement.peak_memory / 2**20,
        'first_step_seconds': measurement.first_step,
        'turns': [seconds * entry.scale for seconds in measurement.turns],
    }


def markdown(figures):
    """A section's figures as a heading, a table and its notes."""
    header = ['', *(title.format(unit=figures['unit']) for title, _, _ in COLUMNS)]
    rows = []
    for values in figures['rows']:
        cells = ['' if values[key] is None else form.format(values[key]) for _, key, form in COLUMNS]
        rows.append([values['contender'], *cells])
    lines = [f'### {figures["title"]}', '', *table(header, rows)]
    rates = ', '.join(f'{name} {rate:.0f}' for name, rate in figures['matmul_gflops'].items())
    lines += ['', f'GFLOP/s of the machine: {rates}.']
    if figures['idle_share'] is not None:
        lines.append(f'In {figures["idle_share"]:.2%} of the time of the loop, between two steps, no step was at work.')
    lines += [f'Left out: {name} ({reason}).' for name, reason in figures['left_out'].items()]
    return '\n'.join(lines) + '\n'


def machine():
    """Processor, its load, and versions of what was measured."""
    versions = {'python': platform.python_version()}
    for package in ('jax', 'jaxlib', 'flax', 'torch'):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {'processor': processor(), 'load_before': os.getloadavg()[0], 'versions': versions}


def introduction(about):
    """The machine in a sentence, and what the columns mean."""
    versions = ', '.join(f'{name} {version}' for name, version in about['versions'].items() if version)
    hardware = f'{about["processor"]}, load {about["load_before"]:.1f} at the start'
    return f'{hardware}; {versions}. {EXPLANATION}\n'
