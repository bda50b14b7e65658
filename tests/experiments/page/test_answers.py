"""Answers of the page equal those of the library; invalid requests get one line."""

import base64
import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from experiments.page import alphabets
from experiments.page.alphabets import FUTHARK, RUNES
from experiments.page.answers import principal_axes
from protojax.images import decode_image
from protojax.prototype_classifier import PrototypeClassifier
from tests.experiments.page.client import numbers, post, request, rune

NAMES = ('gebo', 'tiwaz', 'ingwaz')


@pytest.fixture(scope='module')
def drawn(server):
    """Three classes of two examples as the page holds them, and a query of the second."""
    classes = [
        {'name': name, 'examples': [post(server, 'embed', rune(name, seed))['embedding'] for seed in (1, 2)]}
        for name in NAMES
    ]
    return {'classes': classes, 'query': post(server, 'embed', rune('tiwaz', 3))['embedding']}


def test_drawing_is_embedded_as_by_the_library(server, model):
    answer = post(server, 'embed', rune('gebo', 1))
    expected = model.weights.embed(decode_image(rune('gebo', 1), model.form)[None])[0]
    np.testing.assert_allclose(numbers(answer['embedding']), expected, rtol=1e-5)


def test_predictions_equal_those_of_the_library(server, drawn):
    answer = post(server, 'look', {**drawn, 'queries': [drawn['query']]})
    embeddings = np.stack([numbers(code) for entry in drawn['classes'] for code in entry['examples']])
    query, labels = numbers(drawn['query']), [0, 0, 1, 1, 2, 2]
    classifier = PrototypeClassifier.fit(embeddings, labels, NAMES).calibrate(embeddings, labels)
    expected, found = classifier.predict(query[None]), answer['query']
    np.testing.assert_allclose(found['probabilities'], expected.probabilities[0], rtol=1e-4, atol=1e-7)
    assert answer['queries'] == [{name: found[name] for name in ('probabilities', 'unknown', 'nearest')}]
    assert np.argmax(found['probabilities']) == 1 and found['unknown'] == bool(expected.unknown[0])
    assert found['nearest'] == np.argsort(np.sum((embeddings - query) ** 2, 1))[:5].tolist()
    middles = np.reshape(answer['examples'], (3, 2, 2)).mean(1)  # on the map
    np.testing.assert_allclose(answer['prototypes'], middles, atol=1e-4)


def test_map_shows_most_variance_and_does_not_turn():
    points = np.random.default_rng(0).normal(size=(50, 8)) * [5, 3, 1, 1, 1, 1, 1, 1]
    axes = principal_axes(points)
    np.testing.assert_allclose(np.abs(axes[:, :2]), np.eye(2), atol=0.2)
    previous = np.array([[0.0, 1.0], [-1.0, 0.0]]) @ axes  # a quarter turn
    np.testing.assert_allclose(principal_axes(points, previous), previous, atol=1e-9)
    assert np.isfinite(principal_axes(points[:1])).all()


def test_saved_classes_load_again_and_grow(server, model, drawn, tmp_path):
    path = tmp_path / 'classes.safetensors'
    path.write_bytes(base64.b64decode(post(server, 'save', drawn)['file']))
    classifier = PrototypeClassifier.load(path, encoder=model.weights.description['digest'])
    assert classifier.names == NAMES and classifier.counts.tolist() == [2, 2, 2]
    loaded = post(server, 'load', path.read_bytes())
    before = post(server, 'look', drawn)['query']
    after = post(server, 'look', {**loaded, 'query': drawn['query']})['query']
    np.testing.assert_allclose(after['probabilities'], before['probabilities'], rtol=1e-5)

    # One more example and one more class, in another order, without gebo.
    tiwaz = {**loaded['classes'][1], 'examples': [drawn['query']]}
    new = {'name': 'new', 'examples': [drawn['query']]}
    grown = {**loaded, 'classes': [new, tiwaz, loaded['classes'][2]]}
    path.write_bytes(base64.b64decode(post(server, 'save', grown)['file']))
    more = PrototypeClassifier.fit(np.stack([numbers(drawn['query'])] * 2), [0, 1], ['new', 'tiwaz'])
    expected = classifier.merge(more).select(['new', 'tiwaz', 'ingwaz'])
    found = PrototypeClassifier.load(path)
    assert found.names == expected.names
    np.testing.assert_array_equal(found.sums, expected.sums)


def test_files_of_other_encoders_and_corrupted_files_are_rejected(server, model, tmp_path):
    path = tmp_path / 'classes.safetensors'
    digest = model.weights.description['digest']
    for dimensions, encoder, problem in ((64, 'another', 'different encoder'), (5, digest, 'expected 64 dimensions')):
        PrototypeClassifier.fit(np.eye(dimensions)[:2], [0, 1], ['a', 'b']).save(path, encoder=encoder)
        assert problem in post(server, 'load', path.read_bytes(), expected=400)['error']
    error = post(server, 'load', path.read_bytes()[:-3], expected=400)['error']
    assert 'the file is not a saved classifier' in error and str(tmp_path) not in error


def test_an_alphabet_fills_the_page(server):
    filled = post(server, 'fill', FUTHARK.encode())
    assert [entry['name'] for entry in filled['classes']] == list(RUNES)


def test_invalid_images_are_rejected(server):
    for contents in (b'', b'<svg onload="alert(1)"/>', rune('gebo', 1)[:200]):
        assert 'the image' in post(server, 'embed', contents, expected=400)['error']


GOOD = base64.b64encode(np.zeros(64, '<f4')).decode()
NOT_FINITE = base64.b64encode(np.full(64, np.nan, '<f4')).decode()
SAVED = {'name': 'a', 'examples': [], 'sum': base64.b64encode(np.zeros(64, '<f8')).decode(), 'count': 1}


@pytest.mark.parametrize(
    'sent',
    [
        b'{',
        b'[' * 100_000,
        {'classes': []},
        {'classes': [{'name': 'a', 'examples': [GOOD[:8]]}]},
        {'classes': [{'name': 'a', 'examples': [NOT_FINITE]}]},
        {'classes': [{'name': 1, 'examples': [GOOD]}]},
        {'classes': [{'name': 'a', 'examples': [GOOD]}] * 2},
        {'classes': [{'name': 'a', 'examples': [GOOD]}], 'query': NOT_FINITE},
        {'classes': [{**SAVED, 'count': 10**12}], 'temperature': 1, 'threshold': None},
        {'classes': [SAVED], 'temperature': 0, 'threshold': None},
        {'classes': [SAVED], 'temperature': 1, 'threshold': 10**400},
        {'classes': [SAVED, {'name': 'b', 'examples': []}], 'temperature': 1, 'threshold': 1},
    ],
    ids=lambda sent: str(sent)[:80],
)
def test_invalid_requests_are_rejected(server, sent):
    assert post(server, 'look', sent, expected=400)['error']


def test_alphabets_of_omniglot_are_offered_if_it_is_prepared(tmp_path, monkeypatch):
    monkeypatch.setattr('protojax.datasets.sources.download', None)  # not called
    assert list(alphabets.every(str(tmp_path))) == [FUTHARK]
    items = np.zeros((7, 4, 28, 28, 1), np.uint8)
    items[0, 1] = 200
    names = [f'{name}/character0{n}' for name, count in (('Old_Tengwar', 5), ('Gurmukhi', 2)) for n in range(count)]
    split = SimpleNamespace(test=SimpleNamespace(names=names, items=items))
    monkeypatch.setattr('protojax.datasets.prepared.load', lambda plan, **_: split)
    found = alphabets.every()
    assert list(found) == [FUTHARK, 'Old Tengwar'] and list(found['Old Tengwar']) == ['00', '01', '02', '03', '04']
    drawings = [np.asarray(Image.open(io.BytesIO(file))) for file in found['Old Tengwar']['00']]
    assert [drawing.min() for drawing in drawings] == [255, 55, 255]


def test_unknown_actions_encoders_and_alphabets_are_rejected(server):
    for path in ('embed/photos', 'nothing/drawings', 'fill/drawings'):
        assert request(server, 'POST', f'/{server.token}/{path}', b'x')[0] == 400
