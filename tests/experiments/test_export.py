"""Exported models compute the same as JAX in other runtimes."""

import json
import subprocess
import sys

import jax
import numpy as np
import onnxruntime
import pytest

import protojax
from experiments import export as command
from experiments.running.config import ConfigError
from protojax import encoders, export
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import WeightsError

NAME = 'omniglot-60way-1shot'
ALONE = """
import sys
import numpy as np
import jax, jax.export
program = jax.export.deserialize(open(sys.argv[1], 'rb').read())
assert set(program.platforms) == {'cpu', 'cuda', 'tpu'}
np.savez(sys.argv[3], *program.call(np.load(sys.argv[2])))
assert not any(name.split('.')[0] in ('protojax', 'flax') for name in sys.modules)
"""


@pytest.fixture(scope='module')
def weights():
    return protojax.load_pretrained(NAME)


DRAWINGS = handwriting(0, alphabets=(1, 1, 1)).test.items[:5, :6]
NOISE = np.random.default_rng(0).integers(0, 256, (4, 28, 28, 1), np.uint8)
QUERIES = np.concatenate([DRAWINGS[:4, 2:].reshape(-1, 28, 28, 1), NOISE])  # 16 of the classes, 4 of none


@pytest.fixture(scope='module')
def classifier(weights, tmp_path_factory):
    """The file of a classifier of five classes with two examples each."""
    path = tmp_path_factory.mktemp('classes') / 'c.safetensors'
    support, labels = weights.embed(DRAWINGS[:, :2].reshape(-1, 28, 28, 1)), np.repeat(np.arange(5), 2)
    fitted = protojax.PrototypeClassifier.fit(support, labels, 'abcde').calibrate(support, labels)
    fitted.save(path, encoder=weights.description['digest'])
    return path


def assert_equal_predictions(found, classifier, weights):
    expected = protojax.PrototypeClassifier.load(classifier).predict(weights.embed(QUERIES))
    probabilities, distances, unknown = found
    np.testing.assert_allclose(probabilities, expected.probabilities, atol=1e-4)
    np.testing.assert_allclose(distances, expected.distances, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(unknown, expected.unknown)
    assert 4 <= unknown.sum() < 20


def test_onnxruntime_computes_the_same(tmp_path, weights, classifier):
    file = command.run(command.Config(classifier=str(classifier), output=str(tmp_path / 'model.onnx')))
    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    outputs = ['probabilities', 'distances', 'unknown']
    assert_equal_predictions(session.run(outputs, {'images': QUERIES}), classifier, weights)
    assert session.run(['probabilities'], {'images': QUERIES[:1]})[0].shape == (1, 5)
    about = json.loads(file.with_name('model.onnx.json').read_text())
    assert about['classes'] == list('abcde') and about['outputs'] == outputs and about['resize'] == 'box'
    metadata = session.get_modelmeta().custom_metadata_map
    assert {name: json.loads(value) for name, value in metadata.items()} == about


def test_stablehlo_runs_without_protojax(tmp_path, weights, classifier):
    file = tmp_path / 'model.stablehlo'
    command.run(command.Config(weights=NAME, classifier=str(classifier), format='stablehlo', output=str(file)))
    np.save(tmp_path / 'in.npy', QUERIES)
    arguments = [sys.executable, '-c', ALONE, str(file), str(tmp_path / 'in.npy'), str(tmp_path / 'out.npz')]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert_equal_predictions(np.load(tmp_path / 'out.npz').values(), classifier, weights)


ENCODERS = {
    'flip averaging and CL2N': protojax.Conv4(filters=2, two_sided=True, sphere=True, item_shape=(16, 16, 3)),
    'photos': protojax.EfficientNetLite(width=0.3, depth=0.3, item_shape=(32, 32, 3)),
    'vit': encoders.vit.VisionTransformer(grid=2, width=8, blocks=1, heads=2, hidden=16, item_shape=(28, 28, 3)),
}


@pytest.mark.parametrize('encoder', ENCODERS.values(), ids=ENCODERS)
def test_encoders_are_exported(encoder):
    variables = jax.jit(lambda key: encoders.init(encoder, key, encoder.item_shape))(jax.random.key(0))
    weights = protojax.Pretrained(encoder, *variables, {'digest': ''})
    images = np.random.default_rng(0).integers(0, 256, (3, *encoder.item_shape), np.uint8)
    expected = weights.embed(images)
    assert np.ptp(expected, 0).max() > 1e-3
    np.testing.assert_allclose(export.run_stablehlo(export.to_stablehlo(weights), images)[0], expected, atol=1e-4)
    np.testing.assert_allclose(export.run_onnx(export.to_onnx(weights), images)[0], expected, atol=1e-4)


def test_wrong_models_are_rejected(tmp_path, monkeypatch, classifier):
    zeros = (lambda weights, classifier: b'', lambda data, images: [np.zeros((len(images), 64), np.float32)])
    monkeypatch.setitem(command.FORMATS, 'stablehlo', zeros)
    with pytest.raises(ConfigError, match='differs from JAX'):
        command.run(command.Config(weights=NAME, format='stablehlo', output=str(tmp_path / 'm')))
    assert not (tmp_path / 'm').exists()
    with pytest.raises(WeightsError, match='different encoder'):
        command.run(command.Config(weights='omniglot-60way-5shot', classifier=str(classifier)))
