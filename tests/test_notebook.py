"""The notebook runs from top to bottom, and was saved after such a run."""

import json
import pathlib
import re
import sys
from unittest import mock

import jax
import numpy as np
import pytest

import protojax
from protojax import encoders

NOTEBOOK = json.loads((pathlib.Path(__file__).parents[1] / 'docs' / 'own_photos.ipynb').read_text())
CELLS = [cell for cell in NOTEBOOK['cells'] if cell['cell_type'] == 'code']
SOURCES = [''.join(cell['source']) for cell in CELLS]
SHOWN = ''.join(line for cell in CELLS for output in cell['outputs'] for line in output.get('text', ''))


@pytest.fixture
def small(monkeypatch):
    """A small random network in place of EfficientNet-Lite0, and noise in place of photographs."""
    encoder, rng = protojax.EfficientNetLite(width=0.3, depth=0.3, item_shape=(32, 32, 3)), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype('f4'), encoders.shapes(encoder)[0])
    weights = protojax.Pretrained(encoder, params, {}, {'digest': ''})
    monkeypatch.setattr(protojax, 'load_pretrained', {'photos': weights}.get)
    skimage = mock.Mock()
    for name in re.findall(r"'(\w+)'", re.search(r'for name in \((.*)\)', SOURCES[0])[1]):
        getattr(skimage.data, name).return_value = rng.integers(0, 256, (60, 90, 3), np.uint8)
    monkeypatch.setitem(sys.modules, 'skimage', skimage)


def test_notebook_runs(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv('MPLBACKEND', 'Agg')
    monkeypatch.chdir(tmp_path)
    names = {}
    for source in SOURCES:
        exec(compile(source, 'own_photos.ipynb', 'exec'), names)
    printed = capsys.readouterr().out
    for line in ('21 examples of 7 classes, 42 queries', 'bit-identical: True', 'by less than 0.001: True'):
        assert line in printed and line in SHOWN
