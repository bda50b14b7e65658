"""Prototype classifier: values computed by hand, exact sums, leave-one-out, files."""

import base64
import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import scipy.special

from protojax.errors import WeightsError
from protojax.prototype_classifier import PrototypeClassifier, read

NAMES = ('ant', 'bee', 'cat')


def support(rng, *, way=3, shot=5, dimensions=8, spread=0.3):
    """Embeddings and labels in mixed order, around distinct centers."""
    labels = rng.permutation(np.repeat(np.arange(way), shot))
    centers = 3 * rng.normal(size=(way, dimensions))
    noise = spread * rng.normal(size=(len(labels), dimensions))
    return (centers[labels] + noise).astype(np.float32), labels


def fitted(embeddings, labels, names=NAMES):
    return PrototypeClassifier.fit(embeddings, labels, names).calibrate(embeddings, labels)


def assert_identical(first, second):
    assert first.names == second.names
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_two_classes_by_hand():
    classifier = PrototypeClassifier.fit([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]], [0, 0, 1], ['a', 'b'])
    np.testing.assert_array_equal(classifier.prototypes, [[1, 0], [0, 4]])
    found = classifier.predict([[1.0, 1.0], [0.0, 3.0]])
    np.testing.assert_allclose(found.distances, [[1, 10], [10, 1]], atol=1e-5)
    assert found.names == ('a', 'b') and not found.unknown.any()
    np.testing.assert_allclose(found.probabilities[0], [1 / (1 + np.exp(-9)), 1 / (1 + np.exp(9))], rtol=1e-5)
    # 2 * (1 + 1/2) = 3 around the first prototype, 2 * (1 + 1) = 4 around the second
    rejecting = dataclasses.replace(classifier, threshold=np.float32(2.0))
    found = rejecting.predict([[1.0, -1.7], [1.0, -1.8], [0.0, 5.9], [0.0, 6.1]])
    np.testing.assert_array_equal(found.unknown, [False, True, False, True])
    assert classifier.predict([[np.nan, 0.0]]).unknown.all()  # not near any prototype


def test_classes_change_as_if_fitted_at_once():
    rng = np.random.default_rng(0)
    embeddings, labels = support(rng, shot=20)
    expected = PrototypeClassifier.fit(embeddings, labels, NAMES)
    grown = PrototypeClassifier.fit(np.zeros((0, 8)), [], [])
    for k in rng.permutation(len(labels)):  # one example at a time, in another order
        grown = grown.merge(PrototypeClassifier.fit(embeddings[[k]], [0], [NAMES[labels[k]]]))
    assert_identical(grown.select(NAMES), expected)
    kept = labels != 1
    assert_identical(expected.drop('bee'), PrototypeClassifier.fit(embeddings[kept], labels[kept] // 2, ('ant', 'cat')))
    own = embeddings[labels == 0]  # the order matters in float32, so the test can fail
    assert (np.cumsum(own, 0)[-1] != np.cumsum(own[::-1], 0)[-1]).any()


def test_probabilities_equal_those_of_the_linear_model():
    embeddings, labels = support(np.random.default_rng(0), spread=2.0)
    classifier = fitted(embeddings, labels)
    weights, biases = classifier.as_linear()
    logits = embeddings @ np.asarray(weights).T + np.asarray(biases)
    found = jax.jit(PrototypeClassifier.predict)(classifier, embeddings)  # it is a pytree
    assert found.names == classifier.predict(embeddings).names
    np.testing.assert_allclose(found.probabilities, jax.nn.softmax(logits), atol=1e-5)


@pytest.mark.parametrize('scale', [0.3, 2.0])  # embeddings for which a temperature of 1 is too high, and too low
def test_temperature_lowers_the_leave_one_out_loss(scale):
    embeddings, labels = support(np.random.default_rng(1), shot=8, spread=5.0)
    embeddings = scale * embeddings
    tuned = fitted(embeddings, labels)
    distances = []  # of each example to the prototypes without it
    for k in range(len(labels)):
        rest = PrototypeClassifier.fit(np.delete(embeddings, k, 0), np.delete(labels, k), NAMES)
        distances.append(np.sum((rest.prototypes - embeddings[k]) ** 2, 1))

    def loss(temperature):
        return -scipy.special.log_softmax(-np.array(distances) / temperature, 1)[np.arange(len(labels)), labels].mean()

    assert loss(tuned.temperature) < min(loss(1), loss(0.2 * tuned.temperature), loss(5 * tuned.temperature))


def test_separable_support_set_does_not_make_probabilities_certain():
    assert fitted(*support(np.random.default_rng(0), shot=2, spread=0.01)).temperature > 0.01


def test_threshold_of_confused_classes_by_hand():
    """It counts the distance to the nearest class, because only what is far from every class is rejected."""
    embeddings, labels = np.array([[0.0], [4.0], [0.0], [4.0], [0.0], [4.0]]), [0, 0, 1, 1, 2, 2]
    # Without an example, its class is at a distance of 4**2 and has one example; the others are at 2**2 and have two.
    assert fitted(embeddings, labels, 'abc').threshold == pytest.approx(np.sqrt(16 / (1 + 1) * 4 / (1 + 1 / 2)))
    embeddings[0] = -10
    found = fitted(embeddings, labels, 'abc').threshold
    nearest = [12**2 / 1.5, 4 / 1.5, 4 / 1.5, 4 / 1.5, 4 / 1.5, 4 / 1.5]
    assert found == pytest.approx(np.quantile(nearest, 0.9, method='median_unbiased'))


def test_few_known_examples_and_most_strangers_are_rejected():
    """Classes of three and of twenty examples alike, because the radius of the former is larger."""
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(20), [3, 20] * 10)
    centers = 1.5 * rng.normal(size=(21, 16))
    known, strangers = (rng.normal(c, size=(300, c.shape[0], 16)) for c in (centers[:20], centers[20:]))
    classifier = fitted(rng.normal(centers[labels]), labels, [str(k) for k in range(20)])
    rejected = classifier.predict(known.reshape(-1, 16)).unknown.reshape(300, 20)
    assert all(0.03 < share < 0.1 for share in (rejected[:, ::2].mean(), rejected[:, 1::2].mean()))
    assert classifier.predict(strangers[:, 0]).unknown.mean() > 0.6


def test_a_single_class_has_a_threshold_and_single_examples_have_none():
    assert fitted(*support(np.random.default_rng(0), shot=1)).threshold == np.inf
    embeddings, labels = support(np.random.default_rng(0), way=1, shot=20)
    classifier = fitted(embeddings, labels, ['a'])
    np.testing.assert_array_equal(classifier.predict(embeddings[:1] + [[0.0], [100.0]]).unknown, [False, True])


@pytest.mark.parametrize(
    ('embeddings', 'labels', 'names', 'message'),
    [
        ([[1.0], [2.0]], [0, 0], ['a', 'b'], 'expected examples of all 2'),
        ([[1.0], [2.0]], [0, 1], ['a', 'a'], 'unique'),
        ([[1.0], [np.nan]], [0, 1], ['a', 'b'], 'finite'),
        (np.zeros((2, 8, 8, 3)), [0, 1], ['a', 'b'], 'weights.embed first'),
        ([[1.0], [2.0]], ['a', 'b'], ['a', 'b'], 'expected integer labels; names, labels ='),
        ([[1e10], [1.0]], [0, 1], ['a', 'b'], 'finite .* scale the embeddings down'),
    ],
)
def test_invalid_support_sets_are_rejected(embeddings, labels, names, message):
    with pytest.raises(WeightsError if 'finite' in message else ValueError, match=message):  # in programs: one line
        PrototypeClassifier.fit(embeddings, labels, names)


def test_saved_classifier_loads_again(tmp_path):
    classifier = fitted(*support(np.random.default_rng(0)))
    classifier.save(tmp_path / 'c.safetensors', encoder='digest')
    assert_identical(PrototypeClassifier.load(tmp_path / 'c.safetensors', encoder='digest'), classifier)
    assert_identical(PrototypeClassifier.load(tmp_path / 'c.safetensors'), classifier)
    assert read(tmp_path / 'c.safetensors')[1] == 'digest'
    most = dataclasses.replace(classifier, counts=np.full(3, 2**31 - 1, np.int32))
    with pytest.raises(WeightsError, match='positive int32 counts'):
        most.merge(classifier)
    with pytest.raises(WeightsError, match='different encoder'):
        PrototypeClassifier.load(tmp_path / 'c.safetensors', encoder='another')
    with pytest.raises(WeightsError, match='does not exist'):
        PrototypeClassifier.load(tmp_path / 'missing.safetensors')


def test_files_of_version_0_2_0_load(tmp_path):
    (tmp_path / 'c.safetensors').write_bytes(base64.b64decode(VERSION_0_2_0))
    classifier = PrototypeClassifier.load(tmp_path / 'c.safetensors', encoder='abc')
    assert classifier.names == ('ant', 'bee') and (classifier.temperature, classifier.threshold) == (0.5, 3)
    np.testing.assert_array_equal(classifier.prototypes, [[1.5, 2.5], [0, -1]])


ONE = np.ones(1, np.float32)
ARRAYS = {'sums': np.ones((3, 8)), 'counts': np.ones(3, np.int32), 'temperature': ONE, 'threshold': ONE}
HEADER = {'format': 'protojax classes 1', 'names': list(NAMES), 'encoder': ''}


def content(arrays=(), header=()):
    about = {'protojax': json.dumps(HEADER | dict(header))}
    return safetensors.numpy.save(ARRAYS | dict(arrays), about)


@pytest.mark.parametrize(
    'broken',
    [
        content({'counts': np.array([1, -1, 2], np.int32)}),
        content({'sums': np.ones((2, 8))}),
        content({'sums': np.full((3, 8), np.nan)}),
        content({'temperature': 0 * ONE}),
        content({'threshold': -ONE}),
        content(header={'names': ['ant', 'ant', 'cat']}),
        content({'sums': np.ones((0, 8)), 'counts': np.ones(0, np.int32)}, {'names': []}),
        content(header={'format': 'protojax weights 2'}),
        safetensors.numpy.save(ARRAYS),  # without metadata
        content()[:-8],
    ],
)
def test_unusable_files_give_one_line(tmp_path, broken):
    path = tmp_path / 'c.safetensors'
    path.write_bytes(content())
    PrototypeClassifier.load(path)
    path.write_bytes(broken)
    with pytest.raises(WeightsError, match='is not a saved classifier'):
        PrototypeClassifier.load(path)


def test_endless_files_are_not_read(tmp_path):
    (tmp_path / 'c').symlink_to('/dev/zero')
    with pytest.raises(WeightsError, match='is not a saved classifier'):
        PrototypeClassifier.load(tmp_path / 'c')


VERSION_0_2_0 = (  # written by protojax.save_classes
    'cAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJwcm90b2pheCI6IntcImZvcm1hdFwiOiBcInByb3RvamF4IGNsYXNzZXMgMVwiLCBcIm5hbWVzXCI6'
    'IFtcImFudFwiLCBcImJlZVwiXSwgXCJlbmNvZGVyXCI6IFwiYWJjXCJ9In0sInN1bXMiOnsiZHR5cGUiOiJGNjQiLCJzaGFwZSI6WzIsMl0sImRh'
    'dGFfb2Zmc2V0cyI6WzAsMzJdfSwidGVtcGVyYXR1cmUiOnsiZHR5cGUiOiJGMzIiLCJzaGFwZSI6WzFdLCJkYXRhX29mZnNldHMiOlszMiwzNl19'
    'LCJ0aHJlc2hvbGQiOnsiZHR5cGUiOiJGMzIiLCJzaGFwZSI6WzFdLCJkYXRhX29mZnNldHMiOlszNiw0MF19LCJjb3VudHMiOnsiZHR5cGUiOiJJ'
    'MzIiLCJzaGFwZSI6WzJdLCJkYXRhX29mZnNldHMiOls0MCw0OF19fQAAAAAAAAhAAAAAAAAAFEAAAAAAAAAAAAAAAAAAAPC/AAAAPwAAQEACAAAA'
    'AQAAAA=='
)
