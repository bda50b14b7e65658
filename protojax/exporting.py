"""Trained encoders and classifiers for other runtimes: uint8 images in, embeddings or probabilities out.

Scaling of the pixels is part of what is exported, and the number of images is free. Files must be made into images of
the encoder's shape beforehand, as `protojax.load_images` does.
"""

import contextlib
import dataclasses
import io
import json
import logging
from collections.abc import Callable

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from protojax.encoders import encode
from protojax.known_classes import KnownClasses, known_classes_as_linear_model
from protojax.pretrained import Pretrained

PLATFORMS = ('cpu', 'cuda', 'tpu')
OPSET = 18  # of ONNX: widely supported


def inference_to_export(weights: Pretrained, known: KnownClasses | None = None) -> Callable[[ArrayLike], jax.Array]:
    """A function of images: -> embeddings [N, D] or, with known classes, probabilities [N, way] (eq. 8)."""
    if known is not None:
        matrix, biases = (jnp.asarray(part) for part in known_classes_as_linear_model(known))

    def embeddings(images):
        return encode(weights.encoder, weights.params, weights.batch_stats, images)[0]

    def probabilities(images):
        logits = jnp.matmul(embeddings(images), matrix.T, precision=jax.lax.Precision.HIGHEST) + biases[None]
        return jax.nn.softmax(logits)

    return embeddings if known is None else probabilities


def describe_export(weights: Pretrained, known: KnownClasses | None = None) -> dict:
    """What a user of an exported file has to know."""
    described = {
        'input': ['N', *_exported_shape(weights)],
        'dtype': 'uint8',
        'weights': weights.description['digest'],
    }
    if known is None:
        return {**described, 'output': 'embeddings'}
    return {**described, 'output': 'probabilities', 'classes': list(known.names)}


def to_stablehlo(weights: Pretrained, known: KnownClasses | None = None) -> bytes:
    """A program for CPU, CUDA and TPU, which `jax.export.deserialize(data).call(images)` runs."""
    function = inference_to_export(_exportable(weights, 'kernels'), known)
    shape = jax.export.symbolic_shape(f'n, {", ".join(map(str, _exported_shape(weights)))}')
    exported = jax.export.export(jax.jit(function), platforms=PLATFORMS)(jax.ShapeDtypeStruct(shape, jnp.uint8))
    return bytes(exported.serialize())


def to_onnx(weights: Pretrained, known: KnownClasses | None = None) -> bytes:
    """An ONNX model with input 'images', and output 'embeddings' or 'probabilities'. Needs the extra `onnx`."""
    import onnx
    from jax2onnx import to_onnx as convert

    function = inference_to_export(_exportable(weights, 'kernels', 'products'), known)
    about = describe_export(weights, known)
    images = jax.ShapeDtypeStruct(('N', *_exported_shape(weights)), jnp.uint8)
    with _silent_export(), jax.numpy_rank_promotion('allow'):  # which its own layers need
        model = convert(
            function,
            inputs=[images],
            model_name='protojax',
            opset=OPSET,
            input_names=['images'],
            output_names=[about['output']],
        )
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    return model.SerializeToString()


def run_onnx(data: bytes, images: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of images with an exported model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=['CPUExecutionProvider'])
    return session.run(None, {'images': images})[0]


def run_stablehlo(data: bytes, images: np.ndarray) -> np.ndarray:
    """What JAX makes of images with an exported program."""
    return np.asarray(jax.export.deserialize(data).call(images))


def _exported_shape(weights):
    """The shape of the images: the encoder's own, or the one that it was saved with."""
    shape = getattr(weights.encoder, 'item_shape', None) or weights.description.get('item_shape')
    if shape is None:
        raise ValueError('neither the encoder nor the description of its weights has an item_shape; give it one')
    return tuple(shape)


def _exportable(weights, *options):
    """The same weights with an encoder that does without options that only we understand."""
    present = {option: False for option in options if hasattr(weights.encoder, option)}
    return dataclasses.replace(weights, encoder=weights.encoder.clone(**present))


@contextlib.contextmanager
def _silent_export():
    """The converter prints and logs much that is of no use to anybody else."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
