"""The notebook runs from the first cell to the last, and shows what it printed."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import quick_compiler

from protojax.photo_weights import photo_weights_installed

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / 'experiments' / 'own_photos.ipynb').read_text())
CELLS = [cell for cell in NOTEBOOK['cells'] if cell['cell_type'] == 'code']


def printed(cell):
    return ''.join(''.join(output.get('text', '')) for output in cell['outputs'])


@pytest.mark.skipif(not photo_weights_installed('photos'), reason='the package of the weights is not installed')
def test_the_notebook_runs(tmp_path):
    for module in ('jax2onnx', 'onnxruntime'):
        pytest.importorskip(module)
    program = '\n'.join(''.join(cell['source']) for cell in CELLS)
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'MPLBACKEND': 'Agg', 'JAX_PLATFORMS': 'cpu'}
    environment['XLA_FLAGS'] = quick_compiler.flags()
    ended = subprocess.run(
        [sys.executable, '-c', program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    shown = ''.join(map(printed, CELLS))
    accuracies = [float(re.search(r'accuracy ([\d.]+) %', text)[1]) for text in (ended.stdout, shown)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=5)
    for line in (
        'examples of 7 classes',
        'the same to the last bit: True True',
        'differs from JAX by less than 0.001: True',
    ):
        assert line in ended.stdout and line in shown
    assert (tmp_path / 'model.onnx').stat().st_size > 10e6


def test_it_was_saved_after_a_run_from_top_to_bottom():
    assert [cell['execution_count'] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    assert not any(output['output_type'] == 'error' for cell in CELLS for output in cell['outputs'])
