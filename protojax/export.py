"""Export trained encoders and classifiers to other runtimes: uint8 images in, embeddings or predictions out.

Pixel scaling is part of the exported model, and the number of images is free. The images must have the encoder's
`item_shape`; `protojax.load_images` makes them from files.
"""

import contextlib
import dataclasses
import io
import json
import logging
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from protojax.encoders import encode
from protojax.pretrained import Pretrained
from protojax.prototype_classifier import PrototypeClassifier

PREDICTIONS = ('probabilities', 'distances', 'unknown')  # fields of Prediction
PLATFORMS = ('cpu', 'cuda', 'tpu')
OPSET = 18  # of ONNX: widely supported


def inference(weights: Pretrained, classifier: PrototypeClassifier | None = None) -> Callable[[Any], Any]:
    """Return a function of images: -> embeddings [N, D], or probabilities and distances [N, way] and unknown [N]."""

    def outputs(images):
        embeddings, _ = encode(weights.encoder, weights.params, weights.batch_stats, images)
        if classifier is None:
            return embeddings
        predicted = classifier.predict(embeddings)
        return tuple(getattr(predicted, name) for name in PREDICTIONS)

    return outputs


def describe(weights: Pretrained, classifier: PrototypeClassifier | None = None) -> dict[str, Any]:
    """Return the metadata of an exported file: images that it expects, outputs, weights, classes and threshold."""
    shape = getattr(weights.encoder, 'item_shape', None)
    if shape is None:
        raise ValueError('expected an encoder with item_shape, got None; set it to the shape of the images')
    outputs = ['embeddings'] if classifier is None else list(PREDICTIONS)
    described: dict[str, Any] = {'input': ['N', *shape], 'dtype': 'uint8', 'outputs': outputs}
    if len(shape) == 3:
        described |= {
            'channels': 'greyscale, foreground 255 on background 0' if shape[2] == 1 else 'RGB',
            'crop': getattr(weights.encoder, 'crop', None),  # central square, as a fraction of the shorter side
            'orientation': 'upright, as EXIF specifies',
            'resize': 'box' if shape[2] == 1 else 'bicubic',  # with antialiasing, as in protojax.load_images
        }
    described['weights'] = weights.description['digest']
    if classifier is not None:
        threshold = float(str(classifier.threshold)) if np.isfinite(classifier.threshold) else None
        described |= {'classes': list(classifier.names), 'threshold': threshold}
    return described


def to_stablehlo(weights: Pretrained, classifier: PrototypeClassifier | None = None) -> bytes:
    """Export a program for CPU, CUDA and TPU, which `jax.export.deserialize(data).call(images)` runs."""
    function = inference(_without(weights, 'kernels'), classifier)
    shape = jax.export.symbolic_shape(', '.join(map(str, describe(weights)['input'])))
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(jax.ShapeDtypeStruct(shape, jnp.uint8))
    return bytes(exported.serialize())


def to_onnx(weights: Pretrained, classifier: PrototypeClassifier | None = None) -> bytes:
    """Export an ONNX model with the input 'images' and the outputs of `describe`. Needs the extra `onnx`."""
    import onnx
    from jax2onnx import to_onnx as convert

    about = describe(weights, classifier)
    function = inference(_without(weights, 'kernels', 'products'), classifier)
    images = jax.ShapeDtypeStruct(tuple(about['input']), jnp.uint8)
    names = {'model_name': 'protojax', 'input_names': ['images'], 'output_names': about['outputs']}
    with _silence(), _few_plugins(), jax.numpy_rank_promotion('allow'):  # its layers promote ranks
        model = convert(function, inputs=[images], opset=OPSET, **names)
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model.SerializeToString()


def run_onnx(data: bytes, images: np.ndarray) -> list[np.ndarray]:
    """Run an exported model with onnxruntime and return its outputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=['CPUExecutionProvider'])
    return session.run(None, {'images': images})


def run_stablehlo(data: bytes, images: np.ndarray) -> list[np.ndarray]:
    """Run an exported program with JAX and return its outputs."""
    outputs = jax.export.deserialize(bytearray(data)).call(images)
    return [np.asarray(output) for output in jax.tree.leaves(outputs)]


def _without(weights: Pretrained, *options: str) -> Pretrained:
    """Disable options of the encoder that other runtimes do not support."""
    present: dict[str, Any] = {option: False for option in options if hasattr(weights.encoder, option)}
    return dataclasses.replace(weights, encoder=weights.encoder.clone(**present))


@contextlib.contextmanager
def _silence():
    """Suppress the output and the log of the converter."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _few_plugins():
    """Keep the converter from importing its plugins for other libraries, which takes most of a minute."""
    from jax2onnx.plugins import plugin_system

    others = [f'jax2onnx.plugins.{name}' for name in ('dm_pix', 'equinox', 'examples')]
    blocked = [name for name in others if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # None makes an import fail, which the converter ignores
    try:
        yield
    finally:
        for name in blocked:
            del sys.modules[name]
        plugin_system._already_imported_plugins = False  # other conversions in this process may need them
