"""Exports an encoder, alone or with classes, to other runtimes: uint8 images in, embeddings or probabilities out.

    python -m experiments.export --weights=photos --format=onnx
    python -m experiments.export --weights=photos --classifier=birds.safetensors --format=stablehlo

The classifier is a file of experiments.classify --save. ONNX needs pip install 'protojax[onnx]'; StableHLO is for CPU,
CUDA and TPU at once and is run by jax.export.deserialize(data).call(images), without protojax. A .json file beside it
tells the shape of the images and the names of the classes. The file is run and compared with JAX before it is written.
"""

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np

from experiments.running.command import launch_command
from experiments.running.config import CompilingConfig, ConfigError, option
from experiments.running.own_images import load_own_classes, load_weights_for_own_images
from experiments.running.progress import phase
from protojax.exporting import describe_export, inference_to_export, run_onnx, run_stablehlo, to_onnx, to_stablehlo
from protojax.files import write_whole

FORMATS = {
    'onnx': (to_onnx, run_onnx),
    'stablehlo': (to_stablehlo, run_stablehlo),
}
LARGEST_DIFFERENCE = 1e-4  # of embeddings or probabilities, over the largest of them


@dataclasses.dataclass(frozen=True)
class ExportConfig(CompilingConfig):
    weights: str = option(
        '', 'Encoder: a name that comes with protojax, "photos", or the weights.safetensors of a run.'
    )
    classifier: str = option('', 'Classes, as saved by experiments.classify --save; without, embeddings.')
    format: str = option('onnx', 'Kind of file.', choices=tuple(FORMATS))
    output: str = option('', 'File to write (default: model.onnx or model.stablehlo).')


def run_export(config):
    """Write the exported file -> its path."""
    if not config.weights:
        raise ConfigError('there is nothing to export; give --weights')
    weights = load_weights_for_own_images(config.weights)
    if config.format == 'onnx' and importlib.util.find_spec('jax2onnx') is None:
        raise ConfigError("ONNX files are made by jax2onnx; pip install 'protojax[onnx]'")
    known = load_own_classes(config.classifier, weights) if config.classifier else None
    make, run = FORMATS[config.format]
    with phase(f'exporting to {config.format}'):
        data = make(weights, known)
    with phase('comparing with JAX'):
        difference = _compare_exported(run, data, weights, known)
    path = Path(config.output or f'model.{config.format}').expanduser()
    write_whole(path, data)
    write_whole(path.with_name(f'{path.name}.json'), json.dumps(describe_export(weights, known), indent=1) + '\n')
    print(f'{path}: {len(data) / 1e6:.2f} MB, differs from JAX by at most {difference:.1e}')
    return path


def _compare_exported(run, data, weights, known):
    """The largest difference of what the file and JAX compute, for two numbers of images."""
    rng, function, largest = np.random.default_rng(0), inference_to_export(weights, known), 0.0
    for number in (1, 3):
        images = rng.integers(0, 256, (number, *weights.encoder.item_shape), np.uint8)
        expected = np.asarray(function(images))
        if not expected.size or not np.isfinite(expected).all():
            raise ConfigError('--weights compute no finite embeddings; give others')
        found = run(data, images)
        largest = max(largest, float(np.abs(found - expected).max()))
        if found.shape != expected.shape or not largest <= LARGEST_DIFFERENCE * np.abs(expected).max():
            raise ConfigError(f'the exported model differs from JAX by {largest:.2g}; try another --format')
    return largest


if __name__ == '__main__':
    launch_command(ExportConfig(), run_export)
