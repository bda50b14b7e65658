"""Export an encoder, with or without a classifier, to other runtimes: uint8 images in, predictions out.

    python -m experiments.export --weights=photos --format=onnx
    python -m experiments.export --classifier=birds.safetensors --format=stablehlo

--classifier is a file of protojax classify --save. Without it, the outputs are embeddings; with it, probabilities,
squared distances, and whether an image is unknown. ONNX needs pip install 'protojax[onnx]'. StableHLO is for CPU, CUDA
and TPU and is run by jax.export.deserialize(data).call(images), without protojax. A .json file beside the model
describes the images that it expects and names outputs and classes. The model is compared with JAX before it is written.
"""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from experiments.own_images import loading
from experiments.running import cli, progress
from experiments.running.config import CompilingConfig, ConfigError, option
from protojax import Pretrained, PrototypeClassifier, export, files
from protojax.images import image_form

FORMATS = {'onnx': (export.to_onnx, export.run_onnx), 'stablehlo': (export.to_stablehlo, export.run_stablehlo)}
TOLERANCE = 1e-4  # maximum difference from JAX, relative to the largest output


class Config(CompilingConfig):
    weights: str = option('', 'Bundled weights, photos, or a file of a run. Default: weights of --classifier.')
    classifier: str = option('', 'Classifier saved by protojax classify --save; without it, export embeddings.')
    format: str = option('onnx', 'Format of the model.', choices=tuple(FORMATS))
    output: str = option('', 'File to write (default: model.onnx or model.stablehlo).')


def run(config: Config) -> Path:
    """Export the model and return its path."""
    if not (config.weights or config.classifier):
        raise ConfigError('nothing to export; set --weights or --classifier')
    if config.format == 'onnx' and importlib.util.find_spec('jax2onnx') is None:
        raise ConfigError("ONNX export needs jax2onnx; pip install 'protojax[onnx]'")
    path = Path(config.output or f'model.{config.format}').expanduser()
    if not path.absolute().parent.is_dir():
        raise ConfigError(f'--output={path}: the folder does not exist; create it first')
    weights = loading.load_weights(config.weights or loading.name_encoder(config.classifier))
    classifier = loading.load_classifier(config.classifier, weights) if config.classifier else None
    convert, execute = FORMATS[config.format]
    with progress.phase(f'exporting to {config.format}'):
        data = convert(weights, classifier)
    with progress.phase('comparing with JAX'):
        difference = compare(execute, data, weights, classifier)
    path = Path(config.output or f'model.{config.format}').expanduser()
    files.write_whole(path, data)
    about = export.describe(weights, classifier)
    files.write_whole(path.with_name(f'{path.name}.json'), json.dumps(about, indent=1) + '\n')
    print(f'{path}: {len(data) / 1e6:.2f} MB, differs from JAX by at most {difference:.1e} of the largest output')
    return path


def compare(execute: Callable, data: bytes, weights: Pretrained, classifier: PrototypeClassifier | None) -> float:
    """Return the largest relative difference between the model and JAX on random images; raise if it is too large."""
    images = np.random.default_rng(0).integers(0, 256, (2, *image_form(weights).item_shape), np.uint8)
    outputs = jax.jit(export.inference(weights, classifier))(images)
    expected = [np.asarray(output, np.float32) for output in jax.tree.leaves(outputs)]
    if not all(np.isfinite(output).all() for output in expected):
        raise ConfigError('--weights do not compute finite embeddings; choose other weights')
    pairs = zip(expected, execute(data, images), strict=True)
    largest = float(np.max([np.abs(found - e).max() / max(np.abs(e).max(), 1e-6) for e, found in pairs]))
    if not largest <= TOLERANCE:
        raise ConfigError(f'the exported model differs from JAX by {largest:.2g}; try another --format')
    return largest


if __name__ == '__main__':
    cli.launch_command(Config, run)
