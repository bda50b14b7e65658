"""Exported files: other programs compute from them what JAX does."""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import protojax
from experiments.export import FORMATS, ExportConfig, _compare_exported, run_export
from experiments.running.config import ConfigError
from protojax import exporting
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.encoders import initialize_shapes
from protojax.encoders.photos import EfficientNetLite
from protojax.errors import WeightsError
from protojax.pretrained import Pretrained, save_pretrained

NAME = 'omniglot-60way-1shot'
ALONE = """
import sys
import numpy as np
import jax, jax.export
program = jax.export.deserialize(open(sys.argv[1], 'rb').read())
assert set(program.platforms) == {'cpu', 'cuda', 'tpu'}
np.save(sys.argv[3], program.call(np.load(sys.argv[2])))
assert not any(name.split('.')[0] in ('protojax', 'flax') for name in sys.modules)
"""


@pytest.fixture(scope='module')
def weights():
    return protojax.load_pretrained(NAME)


@pytest.fixture(scope='module')
def drawings():
    return handwriting(0, alphabets=(1, 1, 1)).test.items[:5, :7]


@pytest.fixture(scope='module')
def classes(tmp_path_factory, weights, drawings):
    """A file of five classes with three examples each."""
    path = tmp_path_factory.mktemp('classes') / 'c.safetensors'
    support = weights.embed(drawings[:, :3].reshape(-1, 28, 28, 1))
    known = protojax.known_classes(support, np.repeat(np.arange(5), 3), 'abcde')
    known = protojax.calibrated_known_classes(known, support, np.repeat(np.arange(5), 3))
    protojax.save_classes(path, known, encoder=weights.description['digest'])
    return path


def test_two_sided_embeddings_on_a_sphere_are_exported(tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('jax2onnx')
    encoder, shape, file = protojax.Conv4(filters=2, two_sided=True, sphere=True), (16, 16, 3), tmp_path / 'model.onnx'
    variables = protojax.initialize(encoder, jax.random.key(0), shape)
    save_pretrained(tmp_path / 'weights.safetensors', Pretrained(encoder, *variables, {}), shape)
    run_export(ExportConfig(weights=str(tmp_path / 'weights.safetensors'), output=str(file)))
    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    images = np.random.default_rng(0).integers(0, 256, (3, *shape), np.uint8)
    (found,) = session.run(None, {'images': images})
    (mirrored,) = session.run(None, {'images': images[:, :, ::-1]})
    weights = protojax.load_pretrained(tmp_path / 'weights.safetensors')
    np.testing.assert_allclose(found, weights.embed(images), atol=1e-5)
    np.testing.assert_allclose(found, mirrored, atol=1e-5)
    assert np.ptp(found, 0).max() > 1e-3


@pytest.mark.parametrize('number', [1, 20])
def test_onnxruntime_computes_the_same(tmp_path, weights, classes, drawings, number):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('jax2onnx')
    queries = drawings[:, 3:].reshape(-1, 28, 28, 1)[:number]
    if not (file := classes.parent / 'model.onnx').exists():  # one export for both numbers of images
        run_export(ExportConfig(weights=NAME, classifier=str(classes), output=str(file)))
    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    (found,) = session.run(['probabilities'], {'images': queries})
    known = protojax.load_classes(classes)
    np.testing.assert_allclose(
        found, protojax.predict_known_classes(known, weights.embed(queries)).probabilities, atol=1e-4
    )
    assert json.loads(session.get_modelmeta().custom_metadata_map['classes']) == list('abcde')
    assert json.loads(file.with_name(f'{file.name}.json').read_text())['classes'] == list('abcde')
    assert file.stat().st_size < 1e6


@pytest.mark.parametrize('with_classes', [True, False])
def test_stablehlo_runs_without_protojax(tmp_path, weights, classes, drawings, with_classes):
    queries = drawings[:, 3:].reshape(-1, 28, 28, 1)
    classifier = str(classes) if with_classes else ''
    file = tmp_path / 'model.stablehlo'
    run_export(ExportConfig(weights=NAME, classifier=classifier, format='stablehlo', output=str(file)))
    np.save(tmp_path / 'in.npy', queries)
    command = [sys.executable, '-c', ALONE, str(file), str(tmp_path / 'in.npy'), str(tmp_path / 'out.npy')]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    expected = embeddings = weights.embed(queries)
    if with_classes:
        expected = protojax.predict_known_classes(protojax.load_classes(classes), embeddings).probabilities
    np.testing.assert_allclose(np.load(tmp_path / 'out.npy'), expected, atol=1e-4)


def test_networks_for_photographs_are_exported_too():
    encoder = EfficientNetLite(width=0.3, depth=0.3, item_shape=(32, 32, 3))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.3, leaf.shape).astype('f4'), initialize_shapes(encoder)[0])
    weights = protojax.Pretrained(encoder, params, {}, {'digest': ''})
    images = rng.integers(0, 256, (2, 32, 32, 3), np.uint8)
    expected = weights.embed(images)
    np.testing.assert_allclose(exporting.run_stablehlo(exporting.to_stablehlo(weights), images), expected, atol=1e-4)
    pytest.importorskip('jax2onnx')
    np.testing.assert_allclose(exporting.run_onnx(exporting.to_onnx(weights), images), expected, atol=1e-4)


def test_a_file_that_computes_something_else_is_not_written(tmp_path, monkeypatch):
    wrong = (exporting.to_stablehlo, lambda data, images: np.zeros((len(images), 64), np.float32))
    monkeypatch.setitem(FORMATS, 'stablehlo', wrong)
    with pytest.raises(ConfigError, match='differs from JAX'):
        run_export(ExportConfig(weights=NAME, format='stablehlo', output=str(tmp_path / 'm')))
    assert not (tmp_path / 'm').exists()


def test_errors_say_what_to_do(tmp_path, classes):
    with pytest.raises(ConfigError, match='--weights'):
        run_export(ExportConfig())
    with pytest.raises(WeightsError, match='other weights'):
        run_export(ExportConfig(weights='omniglot-60way-5shot', classifier=str(classes), format='stablehlo'))


@pytest.mark.parametrize('scale', [np.nan, np.inf])
def test_weights_without_finite_embeddings_are_not_exported(weights, scale):
    broken = dataclasses.replace(weights, encoder=weights.encoder.clone(scale=float(scale)))
    with pytest.raises(ConfigError, match='--weights compute no finite embeddings; give others'):
        _compare_exported(None, b'', broken, None)
