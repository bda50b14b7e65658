"""Answers to the requests of the page: functions of an encoder and of the body of a request.

The server keeps no state. Each browser tab holds its classes, with the embeddings of their examples, and sends them
with every request; so tabs are independent, and the page survives a restart of the server.

A set of classes is {'classes': [...], 'temperature': number, 'threshold': number or None for infinity}; a class is
{'name': text, 'examples': [embedding, ...], 'sum': array, 'count': number}. Sum and count are set if the class was
loaded from a file. Arrays are base64 of little-endian numbers.
"""

import base64
import dataclasses
import importlib.util
import io
import json
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
from PIL import Image

from experiments.own_images import loading
from experiments.own_images.html import data_url
from protojax import Pretrained, PrototypeClassifier, errors, export, images

NEAREST = 5  # examples shown beside a query
PICTURE = {1: 105, 3: 160}  # size in pixels of the pictures on the page, by channels
MINIMUM_WAY = 8  # predictions are padded to 8, 16, 32, ... classes, so that few programs are compiled


class Model(NamedTuple):
    """An encoder and the images that it takes."""

    weights: Pretrained
    form: images.ImageForm
    dimensions: int


class Support(NamedTuple):
    """The classes of a tab."""

    classifier: PrototypeClassifier
    embeddings: np.ndarray  # float32 [N, D], of the examples
    labels: np.ndarray  # int [N], indices into classifier.names


def ready(weights: Pretrained) -> Model:
    """Return a model after its first predictions, so that everything is loaded and compiled."""
    form = images.image_form(weights)
    model = Model(weights, form, weights.embed(np.zeros((1, *form.item_shape), np.uint8)).shape[1])
    stream = io.BytesIO()
    Image.linear_gradient('L').save(stream, 'PNG')
    example = embed(model, stream.getvalue())['embedding']
    for way in (MINIMUM_WAY, 2 * MINIMUM_WAY, 4 * MINIMUM_WAY):
        classes = [{'name': str(label), 'examples': [example, example]} for label in range(way)]
        look(model, json.dumps({'classes': classes, 'query': example}).encode())
    return model


def embed(model: Model, contents: bytes) -> dict:
    """Embed an image file; also return a small picture of it."""
    image = images.decode_image(contents, model.form, name='the image')
    embedding = np.asarray(model.weights.embed(image[None]))[0]
    return {'embedding': packed(embedding, '<f4'), 'picture': _picture(contents, model.form)}


def fill(model: Model, alphabet: dict[str, list[bytes]]) -> dict:
    """Return an alphabet as a set of classes with pictures of their examples."""
    classes = [
        {'name': name, 'examples': [embed(model, drawing) for drawing in drawings]}
        for name, drawings in alphabet.items()
    ]
    return {'classes': classes}


def look(model: Model, body: bytes) -> dict:
    """Return map coordinates of examples, prototypes and query, and the prediction for the query.

    The body is a set of classes, optionally with 'query', an embedding, 'queries', more embeddings that are not
    drawn on the map, and 'axes', the axes of the previous map.
    """
    sent = json.loads(body)
    support = _support(model, sent)
    # The prototype represents a class that was loaded from a file without examples.
    bare = np.setdiff1d(np.arange(len(support.classifier.names)), support.labels)
    prototypes = support.classifier.prototypes
    previous = _unpacked(sent['axes'], '<f4', 2, model.dimensions) if sent.get('axes') else None
    axes = principal_axes(np.concatenate([support.embeddings, prototypes[bare]]), previous)
    answer = {
        'prototypes': (prototypes @ axes.T).tolist(),
        'examples': (support.embeddings @ axes.T).tolist(),
        'axes': packed(axes, '<f4'),
    }
    if sent.get('query'):
        query = _unpacked(sent['query'], '<f4', model.dimensions)
        answer['query'] = {'place': (query @ axes.T).tolist(), **_prediction(support, query)}
    queries = [_unpacked(code, '<f4', model.dimensions) for code in sent.get('queries', ())]
    answer['queries'] = [_prediction(support, query) for query in queries]
    return answer


def save(model: Model, body: bytes) -> dict:
    """Return a set of classes as a file for the classify command."""
    classifier = _support(model, json.loads(body)).classifier
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'classes.safetensors')
        classifier.save(path, encoder=model.weights.description['digest'])
        return {'file': base64.b64encode(path.read_bytes()).decode()}


def export_model(model: Model, body: bytes) -> dict:
    """Return encoder and classes as a model for other runtimes: ONNX if it is installed, otherwise StableHLO."""
    classifier = _support(model, json.loads(body)).classifier
    onnx = importlib.util.find_spec('jax2onnx') is not None
    data = (export.to_onnx if onnx else export.to_stablehlo)(model.weights, classifier)
    return {'file': base64.b64encode(data).decode(), 'name': 'model.onnx' if onnx else 'model.stablehlo'}


def load(model: Model, contents: bytes) -> dict:
    """Return the set of classes in a file of `save`."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'classes.safetensors')
        path.write_bytes(contents)
        try:
            classifier = loading.load_classifier(str(path), model.weights)
        except errors.WeightsError as error:
            raise errors.WeightsError(str(error).replace(str(path), 'the file')) from error
    classes = [
        {'name': name, 'examples': [], 'sum': packed(total, '<f8'), 'count': int(count)}
        for name, total, count in zip(classifier.names, classifier.sums, classifier.counts, strict=True)
    ]
    threshold = None if np.isinf(classifier.threshold) else float(classifier.threshold)
    return {'classes': classes, 'temperature': float(classifier.temperature), 'threshold': threshold}


def _support(model, sent):
    """Fit the classes that were sent; temperature and threshold are fitted unless some come from a file."""
    names = [entry['name'] for entry in sent['classes']]
    if not names:
        raise ValueError('expected at least one class')
    examples = [(label, code) for label, entry in enumerate(sent['classes']) for code in entry['examples']]
    labels = np.array([label for label, _ in examples], int)
    embeddings = [_unpacked(code, '<f4', model.dimensions) for _, code in examples]
    embeddings = np.array(embeddings, np.float32).reshape(-1, model.dimensions)
    present, indices = np.unique(labels, return_inverse=True)
    classifier = PrototypeClassifier.fit(embeddings, indices, [names[label] for label in present])
    saved = [entry for entry in sent['classes'] if entry.get('sum')]
    if not saved:
        return Support(classifier.select(names).calibrate(embeddings, labels), embeddings, labels)
    loaded = PrototypeClassifier(
        names=tuple(entry['name'] for entry in saved),
        sums=np.stack([_unpacked(entry['sum'], '<f8', model.dimensions) for entry in saved]),
        counts=np.array([entry['count'] for entry in saved], np.int32),
        temperature=np.float32(sent['temperature']),
        threshold=np.float32(np.inf if sent['threshold'] is None else sent['threshold']),
    )
    return Support(loaded.checked().merge(classifier).select(names), embeddings, labels)


def _prediction(support, query):
    """Return the probability of each class, whether the query is unknown, and the nearest examples.

    The last class is repeated up to a number of classes for which a program is compiled.
    """
    classifier, way = support.classifier, len(support.classifier.names)
    rows = np.minimum(np.arange(max(MINIMUM_WAY, 1 << (way - 1).bit_length())), way - 1)
    padded = dataclasses.replace(classifier, sums=classifier.sums[rows], counts=classifier.counts[rows])
    prediction = padded.predict(query[None])
    shares = np.asarray(prediction.probabilities, np.float64)[0, :way]
    distances = np.sum((support.embeddings - query) ** 2, 1)
    nearest = np.argsort(distances, kind='stable')[:NEAREST].tolist()
    return {
        'probabilities': (shares / shares.sum()).tolist(),
        'unknown': bool(prediction.unknown[0]),
        'nearest': nearest,
    }


def principal_axes(points: np.ndarray, previous: np.ndarray | None = None) -> np.ndarray:
    """Compute two principal axes, rotated to match the previous ones, so the map does not turn: [N, D] -> [2, D]."""
    centred = np.concatenate([points - points.mean(0), np.zeros((2, points.shape[1]), points.dtype)])
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    if previous is None:
        return axes
    left, _, right = np.linalg.svd(previous @ axes.T)
    return left @ right @ axes


def _picture(contents, form):
    """Return a small picture of an image as a data URL."""
    channels = form.item_shape[2]
    size = PICTURE[channels]
    shown = images.decode_image(contents, images.ImageForm((size, size, channels), form.crop), name='the image')
    return data_url(255 - shown[..., 0], 'png') if channels == 1 else data_url(shown)


def packed(values: np.ndarray, kind: str) -> str:
    """Encode an array as base64 of little-endian numbers."""
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


def _unpacked(code, kind, *shape):
    return np.frombuffer(base64.b64decode(code, validate=True), kind).reshape(shape)
