"""What the page asks for: functions of an encoder and of what the browser sent, which gives all that they know.

Nothing is kept here between two questions. A tab of the browser holds its classes, with the embeddings of their
examples, and sends them along; so tabs cannot mix, and the page outlives a restart of the server.

A set of classes is {'classes': [...], 'temperature': number, 'threshold': number or None for infinity}, and a class is
{'name': text, 'examples': [embedding, ...], 'sum': array, 'count': number}. The last two are what a file knows of the
class, if it came out of one. Arrays travel as base64 of little-endian numbers.
"""

import base64
import dataclasses
import io
import json
import math
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
from PIL import Image

from protojax.class_files import load_classes, save_classes
from protojax.errors import WeightsError
from protojax.images import ImageForm, decode_image, image_form
from protojax.known_classes import (
    GRID,
    LARGEST_SUM,
    KnownClasses,
    calibrated_known_classes,
    checked_known_classes,
    known_classes,
    merge_known_classes,
    predict_known_classes,
)
from protojax.pretrained import Pretrained

NEAREST = 5  # examples that are shown beside a query
LONGEST_NAME = 100
LARGEST_NUMBER = float(np.finfo(np.float32).max)
MOST_DISTANCES = 1 << 22  # of examples to classes, such as 400 classes of 25: some seconds and 300 MB
PICTURE = {1: 105, 3: 160}  # pixels of the pictures that the page shows, by channels: drawings and photographs
LEAST_CLASSES = 8  # predictions are made among 8, 16, 32, ... so that a program is compiled for a few sizes


class AnsweringModel(NamedTuple):
    """An encoder, and what images it takes."""

    weights: Pretrained
    form: ImageForm
    dimensions: int

    @property
    def digest(self) -> str:
        return self.weights.description['digest']


class _AnsweringSupport(NamedTuple):
    """The classes of a tab."""

    known: KnownClasses
    embeddings: np.ndarray  # float32 [N, D], of the examples
    labels: np.ndarray  # int [N], places in known.names


def ready_to_answer(weights: Pretrained) -> AnsweringModel:
    """An encoder after its first predictions, so that whatever they need is loaded and compiled."""
    form = image_form(weights)
    dimensions = weights.embed(np.zeros((1, *form.item_shape), np.uint8)).shape[1]
    model, stream = AnsweringModel(weights, form, dimensions), io.BytesIO()
    Image.linear_gradient('L').save(stream, 'PNG')
    example = answer_embed(model, stream.getvalue())['embedding']
    for way in (LEAST_CLASSES, 2 * LEAST_CLASSES, 4 * LEAST_CLASSES):
        classes = [{'name': str(label), 'examples': [example, example]} for label in range(way)]
        answer_look(model, json.dumps({'classes': classes, 'query': example}).encode())
    return model


def answer_embed(model: AnsweringModel, contents: bytes) -> dict:
    """The embedding of the image in a file, and a small picture of it."""
    image = decode_image(contents, model.form, name='the image')
    embedding = np.asarray(model.weights.embed(image[None]))[0]
    return {'embedding': packed_for_answer(embedding, '<f4'), 'picture': _answer_picture(contents, model.form)}


def answer_fill(model: AnsweringModel, alphabet: dict[str, list[bytes]]) -> dict:
    """An alphabet as a set of classes, with the pictures of their examples."""
    classes = [
        {'name': name, 'examples': [answer_embed(model, drawing) for drawing in drawings]}
        for name, drawings in alphabet.items()
    ]
    return {'classes': classes}


def answer_look(model: AnsweringModel, body: bytes) -> dict:
    """Where examples, prototypes and the query are on the map, and which class the query is of.

    The body is a set of classes, perhaps with 'query', an embedding, and 'axes', those of the map before.
    """
    sent = json.loads(body)
    support = _support_in_request(model, sent)
    # A class out of a file has no examples to show, so its prototype stands for them.
    bare = np.setdiff1d(np.arange(len(support.known.names)), support.labels)
    prototypes = support.known.prototypes
    points = np.concatenate([support.embeddings, prototypes[bare]])
    before = _sent_numbers(sent['axes'], '<f4', 2 * model.dimensions).reshape(2, -1) if sent.get('axes') else None
    axes = answer_axes(points, before)
    shown = (prototypes @ axes.T).tolist()
    examples = (support.embeddings @ axes.T).tolist()
    found = {'prototypes': shown, 'examples': examples, 'axes': packed_for_answer(axes, '<f4')}
    if sent.get('query'):
        query = _sent_numbers(sent['query'], '<f4', model.dimensions)
        found['query'] = {'place': (query @ axes.T).tolist(), **_answer(support, query)}
    return found


def answer_save(model: AnsweringModel, body: bytes) -> dict:
    """A set of classes as the file of the classify command."""
    known = _support_in_request(model, json.loads(body)).known
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'classes.safetensors')
        save_classes(path, known, encoder=model.digest)
        return {'file': base64.b64encode(path.read_bytes()).decode()}


def answer_load(model: AnsweringModel, contents: bytes) -> dict:
    """The set of classes in such a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'classes.safetensors')
        path.write_bytes(contents)
        try:
            known = load_classes(path, encoder=model.digest)
        except WeightsError as error:
            raise WeightsError(str(error).replace(str(path), 'the file')) from error
    if known.sums.shape[1] != model.dimensions:
        raise WeightsError('the classes in the file are of embeddings by other weights')
    classes = [
        {'name': name, 'examples': [], 'sum': packed_for_answer(total, '<f8'), 'count': int(count)}
        for name, total, count in zip(known.names, known.sums, known.counts, strict=True)
    ]
    threshold = None if math.isinf(known.threshold) else float(known.threshold)
    return {'classes': classes, 'temperature': float(known.temperature), 'threshold': threshold}


def _support_in_request(model: AnsweringModel, sent: dict) -> _AnsweringSupport:
    """The classes that were sent, in their order. Classes that are all of examples are calibrated by these."""
    names = [entry['name'] for entry in sent['classes']]
    if not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names):
        raise ValueError(f'names of classes have 1 to {LONGEST_NAME} letters')
    if len(set(names)) != len(names) or not names:
        raise ValueError('there must be classes, each with a name of its own')
    examples = [(label, code) for label, entry in enumerate(sent['classes']) for code in entry['examples']]
    if len(names) * len(examples) > MOST_DISTANCES:
        raise ValueError(f'{len(examples)} examples of {len(names)} classes are more than this page can compare')
    labels = np.array([label for label, _ in examples], np.int64)
    embeddings = np.array([_sent_numbers(code, '<f4', model.dimensions) for _, code in examples], np.float32)
    embeddings = embeddings.reshape(-1, model.dimensions)
    saved = [label for label, entry in enumerate(sent['classes']) if entry.get('sum')]
    if not saved:
        known = known_classes(embeddings, labels, names)
        known = calibrated_known_classes(known, embeddings, labels) if len(names) > 1 else known
        return _AnsweringSupport(known, embeddings, labels)
    known = _loaded_classes(model, sent, saved)
    if examples:
        present = np.unique(labels)
        added = known_classes(embeddings, np.searchsorted(present, labels), [names[label] for label in present])
        known = merge_known_classes(known, added)
    if set(known.names) != set(names):
        raise ValueError('a class has neither examples nor what a file knows of it')
    places = {name: place for place, name in enumerate(known.names)}
    order = [places[name] for name in names]
    known = dataclasses.replace(known, names=tuple(names), sums=known.sums[order], counts=known.counts[order])
    return _AnsweringSupport(known, embeddings, labels)


def _loaded_classes(model: AnsweringModel, sent: dict, saved: list[int]) -> KnownClasses:
    """What was loaded out of a file, of the classes at some places."""
    entries = [sent['classes'][place] for place in saved]
    if not all(type(entry['count']) is int for entry in entries):
        raise ValueError('a count is no whole number')
    counts = np.array([entry['count'] for entry in entries], np.int32)
    temperature = _sent_number(sent['temperature'])
    threshold = np.float32(math.inf) if sent['threshold'] is None else _sent_number(sent['threshold'])
    sums = np.stack([_sent_numbers(entry['sum'], '<f8', model.dimensions) for entry in entries])
    if (sums * GRID != np.round(sums * GRID)).any():
        raise ValueError('a sum is not one of embeddings')
    return checked_known_classes(
        KnownClasses(tuple(entry['name'] for entry in entries), sums, counts, temperature, threshold)
    )


def _answer(support: _AnsweringSupport, query: np.ndarray) -> dict:
    """The probability of each class, whether the query is far from all, and the nearest examples.

    The last class is repeated, so that the number of classes is one for which a program is compiled.
    """
    known, way = support.known, len(support.known.names)
    size = max(LEAST_CLASSES, 1 << (way - 1).bit_length())
    rows = np.minimum(np.arange(size), way - 1)
    repeated = dataclasses.replace(known, sums=known.sums[rows], counts=known.counts[rows])
    prediction = predict_known_classes(repeated, query[None])
    shares = np.asarray(prediction.probabilities, np.float64)[0, :way]
    distances = np.sum((support.embeddings - query) ** 2, 1)
    nearest = np.argsort(distances, kind='stable')[:NEAREST].tolist()
    unknown = bool(prediction.unknown[0])
    return {'probabilities': (shares / shares.sum()).tolist(), 'unknown': unknown, 'nearest': nearest}


def answer_axes(points: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """Axes of the plane in which points differ most: [N, D] -> [2, D].

    They are turned within the plane to lie as those before, so that a map that grows does not turn.
    """
    centred = np.concatenate([points - points.mean(0), np.zeros((2, points.shape[1]), points.dtype)])
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    if before is None:
        return axes
    left, _, right = np.linalg.svd(before @ axes.T)
    return left @ right @ axes


def _answer_picture(contents: bytes, form: ImageForm) -> str:
    """A small picture of an image, as an address that a page can show."""
    channels = form.item_shape[2]
    side = PICTURE[channels]
    shown = decode_image(contents, ImageForm((side, side, channels), form.crop), name='the image')
    stream, kind = io.BytesIO(), {1: 'png', 3: 'jpeg'}[channels]
    Image.fromarray(255 - shown[..., 0] if channels == 1 else shown).save(stream, kind)
    return f'data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}'


def packed_for_answer(values: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


def _sent_number(value: float) -> np.float32:
    """A number that was sent, if it is one of float32."""
    if type(value) not in (int, float) or not abs(value) <= LARGEST_NUMBER:
        raise ValueError('a number is none, or too large')
    return np.float32(value)


def _sent_numbers(code: str, kind: str, length: int) -> np.ndarray:
    """So many numbers out of base64, of a size that embeddings and their sums have."""
    content = base64.b64decode(code, validate=True)
    if len(content) != length * np.dtype(kind).itemsize:
        raise ValueError(f'an array has {len(content)} bytes, which are not {length} numbers')
    values = np.frombuffer(content, kind)
    if not (np.abs(values) < LARGEST_SUM).all():
        raise ValueError('an array has values that are no numbers, or too large')
    return values
