"""Results of the benchmark as plain values and as Markdown tables."""

import importlib.util
import json
import os
import platform
import statistics
import sys
from importlib import metadata
from pathlib import Path

from experiments.benchmark.measuring import Worker
from experiments.benchmark.plan import ENCODERS, Contender, Section
from experiments.paper import markdown
from experiments.running.provenance import commit, processor

# Title of a column, key of its values, and their format.
COLUMNS = (
    ('seconds per {unit}', 'seconds', '{:.3g}'),
    ('median', 'median_seconds', '{:.3g}'),
    ('spread', 'swing', '{:.0%}'),
    ('times the first', 'ratio_to_first', '{:.2f}'),
    ('peak memory, MB', 'peak_memory_mb', '{:,.0f}'),
    ('first step, s', 'first_step_seconds', '{:.2g}'),
)


def summary(section: Section, yardstick: Contender, measured: dict[str, Worker], left_out: dict[str, str]) -> dict:
    """Return all results of a section as plain values."""
    turns = measured[yardstick.name].turns
    rows = [_row(one, measured[one.name]) for one in section.contenders if one.name in measured]
    for row in rows:
        row['ratio_to_first'] = row['seconds'] / rows[0]['seconds']
    return {
        'section': section.name,
        'title': section.title,
        'unit': section.unit,
        'rows': rows,
        'matmul_gflops': 2 * yardstick.workload**3 / min(turns) / 1e9,
        'matmul_swing': _swing(turns),
        'load': os.getloadavg()[0],
        'left_out': left_out,
    }


def _swing(turns: list[float]) -> float:
    """Return the fraction of the best round's rate that the slowest round lost."""
    return 1 - min(turns) / max(turns)


def _row(contender: Contender, worker: Worker) -> dict:
    turns = [seconds * contender.scale for seconds in worker.turns]
    return {
        'contender': contender.name,
        'seconds': min(turns),
        'median_seconds': statistics.median(turns),
        'swing': _swing(turns),
        'peak_memory_mb': worker.peak_memory and worker.peak_memory / 2**20,
        'first_step_seconds': worker.first_step,
        'turns': turns,
    }


def markdown_section(results: dict) -> str:
    """Return the results of a section as a heading, a table and notes."""
    header = ['', *(title.format(unit=results['unit']) for title, _, _ in COLUMNS)]
    rows = []
    for values in results['rows']:
        cells = ['' if values[key] is None else form.format(values[key]) for _, key, form in COLUMNS]
        rows.append([values['contender'], *cells])
    lines = [f'### {results["title"]}', '', *markdown.table(header, rows)]
    rate, swing, load = results['matmul_gflops'], results['matmul_swing'], results['load']
    lines += ['', f'matmul: {rate:.0f} GFLOP/s, variation between rounds up to {swing:.0%}; load {load:.1f}.']
    lines += [f'Left out: {name} ({reason}).' for name, reason in results['left_out'].items()]
    return '\n'.join(lines) + '\n'


def machine() -> dict:
    """Return the processor, its load, and the versions of the measured libraries."""
    installed = filter(importlib.util.find_spec, ('jax', 'jaxlib', 'flax', 'torch', 'timm', 'onnxruntime'))
    versions = {'python': platform.python_version()} | {package: metadata.version(package) for package in installed}
    return {'processor': processor(), 'load_before': os.getloadavg()[0], 'versions': versions}


def code() -> dict:
    """Return the command, without the output file, and the commit that it measures."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith('--output')]
    return {'command': ' '.join(['python -m experiments.benchmark', *given]), 'commit': commit()}


def earlier(output: Path, machine: dict) -> list[dict]:
    """Return the sections of a file if they come from this machine and these versions."""
    try:
        results = json.loads(output.read_text())
        same = results['machine']['versions'].items() <= machine['versions'].items()
        return results['sections'] if same and results['machine']['processor'] == machine['processor'] else []
    except Exception:  # a file of another program may contain anything
        return []


def speed_table(results: dict) -> list[str]:
    """Return the published tables (docs/speed.md): seconds and, in brackets, the ratio to the first implementation."""
    found = {section['section']: section for section in results['sections']}
    steps = [found[name] for name in ('omniglot', 'miniimagenet', 'evaluation')]
    header = ['', 'Omniglot, training step', 'miniImageNet, training step', steps[2]['unit'].replace(' ', ' test ')]
    memory = ['peak memory: protojax / the lowest of PyTorch', *map(_memory, steps)]
    photos = [name for name in found if name.split('-')[0] in ENCODERS]
    titles = ['encoding an image', *(name.replace('-', ', batch ') for name in photos)]
    encoders = markdown.compact(titles, _times([found[name] for name in photos]))
    return [*markdown.compact(header, [*_times(steps), memory]), *(['', *encoders] if photos else [])]


def _times(columns: list[dict]) -> list[list[str]]:
    """Return a row for each implementation, with a cell for each section."""
    cells: dict[str, list[str]] = {}
    for number, section in enumerate(columns):
        for values in section['rows']:
            name, seconds, ratio = values['contender'], values['seconds'], values['ratio_to_first']
            text = f'{seconds:.2g} s' if seconds < 100 else f'{seconds:.0f} s'
            text += f' ({ratio:.{1 if ratio > 2 else 2}f}x)' if ratio and values is not section['rows'][0] else ''
            cells.setdefault(name, [''] * len(columns))[number] = text
    return [[name, *texts] for name, texts in cells.items()]


def _memory(section: dict) -> str:
    ours = section['rows'][0]['peak_memory_mb']
    theirs = min((r['peak_memory_mb'] for r in section['rows'] if r['contender'].startswith('PyTorch')), default=None)
    return f'{ours:,.0f} MB' if theirs is None else f'{ours:,.0f} / {theirs:,.0f} MB'
