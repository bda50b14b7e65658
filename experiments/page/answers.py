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
from protojax.images import Form, decode_image, form_of
from protojax.known_classes import (
    GRID,
    LARGEST_SUM,
    KnownClasses,
    calibrated,
    checked,
    known_classes,
    merge,
    predict,
)
from protojax.pretrained import Pretrained

NEAREST = 5  # examples that are shown beside a query
LONGEST_NAME = 100
PICTURE = {1: 105, 3: 160}  # pixels of the pictures that the page shows, by channels: drawings and photographs
LEAST_CLASSES = 8  # predictions are made among 8, 16, 32, ... so that a program is compiled for a few sizes


class Model(NamedTuple):
    """An encoder, and what images it takes."""

    weights: Pretrained
    form: Form
    dimensions: int

    @property
    def digest(self) -> str:
        return self.weights.description['digest']


class Support(NamedTuple):
    """The classes of a tab."""

    known: KnownClasses
    embeddings: np.ndarray  # float32 [N, D], of the examples
    labels: np.ndarray  # int [N], places in known.names


def ready(weights: Pretrained) -> Model:
    """An encoder for which everything is compiled that the first prediction needs."""
    form = form_of(weights)
    embedding = np.asarray(weights.embed(np.zeros((1, *form.item_shape), np.uint8)))
    for way in (LEAST_CLASSES, 2 * LEAST_CLASSES, 4 * LEAST_CLASSES):
        named = known_classes(np.repeat(embedding, way, 0), np.arange(way), [str(k) for k in range(way)])
        probable(named, embedding[0])
    return Model(weights, form, embedding.shape[1])


def embed(model: Model, contents: bytes) -> dict:
    """The embedding of the image in a file, and a small picture of it."""
    image = decode_image(contents, model.form, name='the image')
    embedding = np.asarray(model.weights.embed(image[None]))[0]
    return {'embedding': packed(embedding, '<f4'), 'picture': picture(contents, model.form)}


def fill(model: Model, alphabet: dict[str, list[bytes]]) -> dict:
    """An alphabet as a set of classes, with the pictures of their examples."""
    classes = [
        {'name': name, 'examples': [embed(model, drawing) for drawing in drawings]}
        for name, drawings in alphabet.items()
    ]
    return {'classes': classes}


def look(model: Model, body: bytes) -> dict:
    """Where examples, prototypes and the query are on the map, and which class the query is of.

    The body is a set of classes, perhaps with 'query', an embedding, and 'axes', those of the map before.
    """
    sent = json.loads(body)
    support = support_of(model, sent)
    # A class out of a file has no examples to show, so its prototype stands for them.
    bare = np.setdiff1d(np.arange(len(support.known.names)), support.labels)
    prototypes = support.known.prototypes
    points = np.concatenate([support.embeddings, prototypes[bare]])
    before = array(sent['axes'], '<f4', 2 * model.dimensions).reshape(2, -1) if sent.get('axes') else None
    axes = principal_axes(points, before)
    shown = (prototypes @ axes.T).tolist()
    examples = (support.embeddings @ axes.T).tolist()
    found = {'prototypes': shown, 'examples': examples, 'axes': packed(axes, '<f4')}
    if sent.get('query'):
        query = array(sent['query'], '<f4', model.dimensions)
        found['query'] = {'place': (query @ axes.T).tolist(), **answer(support, query)}
    return found


def save(model: Model, body: bytes) -> dict:
    """A set of classes as the file of the classify command."""
    known = support_of(model, json.loads(body)).known
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'classes.safetensors')
        save_classes(path, known, encoder=model.digest)
        return {'file': base64.b64encode(path.read_bytes()).decode()}


def load(model: Model, contents: bytes) -> dict:
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
        {'name': name, 'examples': [], 'sum': packed(total, '<f8'), 'count': int(count)}
        for name, total, count in zip(known.names, known.sums, known.counts, strict=True)
    ]
    threshold = None if math.isinf(known.threshold) else float(known.threshold)
    return {'classes': classes, 'temperature': float(known.temperature), 'threshold': threshold}


def support_of(model: Model, sent: dict) -> Support:
    """The classes that were sent, in their order. Classes that are all of examples are calibrated by these."""
    names = [entry['name'] for entry in sent['classes']]
    if not all(isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names):
        raise ValueError(f'names of classes have 1 to {LONGEST_NAME} letters')
    if len(set(names)) != len(names) or not names:
        raise ValueError('there must be classes, each with a name of its own')
    examples = [(label, code) for label, entry in enumerate(sent['classes']) for code in entry['examples']]
    labels = np.array([label for label, _ in examples], np.int64)
    embeddings = np.array([array(code, '<f4', model.dimensions) for _, code in examples], np.float32)
    embeddings = embeddings.reshape(-1, model.dimensions)
    saved = [label for label, entry in enumerate(sent['classes']) if entry.get('sum')]
    if not saved:
        known = known_classes(embeddings, labels, names)
        return Support(calibrated(known, embeddings, labels), embeddings, labels)
    known = of_file(model, sent, saved)
    if examples:
        present = np.unique(labels)
        added = known_classes(embeddings, np.searchsorted(present, labels), [names[label] for label in present])
        known = merge(known, added)
    if set(known.names) != set(names):
        raise ValueError('a class has neither examples nor what a file knows of it')
    order = [known.names.index(name) for name in names]
    known = dataclasses.replace(known, names=tuple(names), sums=known.sums[order], counts=known.counts[order])
    return Support(known, embeddings, labels)


def of_file(model: Model, sent: dict, saved: list[int]) -> KnownClasses:
    """What was loaded out of a file, of the classes at some places."""
    entries = [sent['classes'][place] for place in saved]
    counts = np.array([entry['count'] for entry in entries], np.int32)
    temperature = np.float32(sent['temperature'])
    threshold = np.float32(math.inf if sent['threshold'] is None else sent['threshold'])
    if counts.min() < 1 or not 0 < temperature < math.inf or not threshold >= 0:
        raise ValueError('a count, the temperature or the threshold is impossible')
    sums = np.stack([array(entry['sum'], '<f8', model.dimensions) for entry in entries])
    if (sums * GRID != np.round(sums * GRID)).any():
        raise ValueError('a sum is not one of embeddings')
    return checked(KnownClasses(tuple(entry['name'] for entry in entries), sums, counts, temperature, threshold))


def answer(support: Support, query: np.ndarray) -> dict:
    """The probability of each class, and the nearest examples."""
    probabilities, unknown = probable(support.known, query)
    distances = np.sum((support.embeddings - query) ** 2, 1)
    nearest = np.argsort(distances, kind='stable')[:NEAREST].tolist()
    return {'probabilities': probabilities.tolist(), 'unknown': unknown, 'nearest': nearest}


def probable(known: KnownClasses, query: np.ndarray) -> tuple[np.ndarray, bool]:
    """Probabilities of the classes, and whether the query is far from all: [D] -> [way], bool.

    The last class is repeated, so that the number of classes is one for which a program is compiled.
    """
    way = len(known.names)
    size = max(LEAST_CLASSES, 1 << (way - 1).bit_length())
    rows = np.minimum(np.arange(size), way - 1)
    repeated = dataclasses.replace(known, sums=known.sums[rows], counts=known.counts[rows])
    prediction = predict(repeated, query[None])
    probabilities = np.asarray(prediction.probabilities, np.float64)[0, :way]
    return probabilities / probabilities.sum(), bool(prediction.unknown[0])


def principal_axes(points: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """Axes of the plane in which points differ most: [N, D] -> [2, D].

    They are turned within the plane to lie as those before, so that a map that grows does not turn.
    """
    centred = np.concatenate([points - points.mean(0), np.zeros((2, points.shape[1]), points.dtype)])
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    if before is None:
        return axes
    left, _, right = np.linalg.svd(before @ axes.T)
    return left @ right @ axes


def picture(contents: bytes, form: Form) -> str:
    """A small picture of an image, as an address that a page can show."""
    channels = form.item_shape[2]
    side = PICTURE[channels]
    shown = decode_image(contents, Form((side, side, channels), form.crop), name='the image')
    stream, kind = io.BytesIO(), {1: 'png', 3: 'jpeg'}[channels]
    Image.fromarray(255 - shown[..., 0] if channels == 1 else shown).save(stream, kind)
    return f'data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}'


def packed(values: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


def array(code: str, kind: str, length: int) -> np.ndarray:
    """So many numbers out of base64, of a size that embeddings and their sums have."""
    content = base64.b64decode(code, validate=True)
    if len(content) != length * np.dtype(kind).itemsize:
        raise ValueError(f'an array has {len(content)} bytes, which are not {length} numbers')
    values = np.frombuffer(content, kind)
    if not (np.abs(values) < LARGEST_SUM).all():
        raise ValueError('an array has values that are no numbers, or too large')
    return values
