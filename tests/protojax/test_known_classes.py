"""A classifier of one's own classes: hand-computed values, exact sums, leave-one-out, files."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import protojax
from protojax import files
from protojax.errors import WeightsError
from protojax.known_classes import (
    KnownClasses,
    calibrated_known_classes,
    known_classes,
    known_classes_as_linear_model,
    merge_known_classes,
    predict_known_classes,
    without_known_class,
)

NAMES = ('ant', 'bee', 'cat')


def support(rng, *, way=3, shot=5, dimensions=8, spread=0.3):
    """Embeddings and labels in mixed order, around distinct centers."""
    labels = rng.permutation(np.repeat(np.arange(way), shot))
    centers = 3 * rng.normal(size=(way, dimensions))
    noise = spread * rng.normal(size=(len(labels), dimensions))
    return (centers[labels] + noise).astype(np.float32), labels


def same(first, second):
    """Equal to the last bit."""
    assert first.names == second.names
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_two_classes_by_hand():
    known = known_classes([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]], [0, 0, 1], ['a', 'b'])
    np.testing.assert_array_equal(known.prototypes, [[1, 0], [0, 4]])
    found = predict_known_classes(known, [[1.0, 1.0], [0.0, 3.0]])
    np.testing.assert_allclose(found.distances, [[1, 10], [10, 1]], atol=1e-5)
    np.testing.assert_array_equal(found.labels, [0, 1])
    np.testing.assert_allclose(found.probabilities[0], [1 / (1 + np.exp(-9)), 1 / (1 + np.exp(9))], rtol=1e-5)
    assert not found.unknown.any()


def test_a_threshold_is_wider_for_classes_of_few_examples():
    known = known_classes([[0.0], [0.0], [0.0], [10.0]], [0, 0, 0, 1], ['a', 'b'])
    known = dataclasses.replace(known, threshold=np.float32(3.0))
    # within 3 * (1 + 1/3) = 4 of the first, 3 * (1 + 1) = 6 of the second
    np.testing.assert_array_equal(
        predict_known_classes(known, [[1.9], [2.1], [12.4], [12.5]]).unknown, [False, True, False, True]
    )


@pytest.mark.parametrize('seed', range(3))
def test_adding_examples_and_classes_is_starting_over(seed):
    rng = np.random.default_rng(seed)
    embeddings, labels = support(rng, shot=7)
    whole = known_classes(embeddings, labels, NAMES)
    grown = known_classes(embeddings[labels == 1][:2], [0, 0], ['bee'])
    used = np.zeros(len(labels), bool)
    used[np.flatnonzero(labels == 1)[:2]] = True
    for place in rng.permutation(np.flatnonzero(~used)):  # one at a time, in another order
        grown = merge_known_classes(grown, known_classes(embeddings[[place]], [0], [NAMES[labels[place]]]))
    order = [grown.names.index(name) for name in NAMES]
    assert set(grown.names) == set(NAMES)
    np.testing.assert_array_equal(grown.sums[order], whole.sums)
    np.testing.assert_array_equal(grown.counts[order], whole.counts)
    np.testing.assert_array_equal(grown.prototypes[order], whole.prototypes)


def test_merging_is_starting_over():
    embeddings, labels = support(np.random.default_rng(0))
    half = np.arange(len(labels)) % 2 == 0
    first, second = (known_classes(embeddings[part], labels[part], NAMES) for part in (half, ~half))
    same(merge_known_classes(first, second), known_classes(embeddings, labels, NAMES))


def test_removing_a_class_is_starting_over():
    embeddings, labels = support(np.random.default_rng(0))
    kept = labels != 1
    same(
        without_known_class(known_classes(embeddings, labels, NAMES), 'bee'),
        known_classes(embeddings[kept], labels[kept] // 2, ('ant', 'cat')),
    )
    with pytest.raises(ValueError, match='dog'):
        without_known_class(known_classes(embeddings, labels, NAMES), 'dog')


def test_float32_sums_would_not_be_exact():
    """That the test above can fail: in float32 the order matters."""
    embeddings, labels = support(np.random.default_rng(0), shot=20)
    own = embeddings[labels == 0]
    forth, back = (np.cumsum(values, 0, dtype=np.float32)[-1] for values in (own, own[::-1]))
    assert (forth != back).any()
    forth, back = (known_classes(values, np.zeros(20, int), ['a']).sums for values in (own, own[::-1]))
    np.testing.assert_array_equal(forth, back)


def test_probabilities_are_those_of_the_linear_model():
    embeddings, labels = support(np.random.default_rng(0), spread=2.0)
    known = calibrated_known_classes(known_classes(embeddings, labels, NAMES), embeddings, labels)
    weights, biases = known_classes_as_linear_model(known)
    logits = embeddings @ np.asarray(weights).T + np.asarray(biases)
    np.testing.assert_allclose(
        predict_known_classes(known, embeddings).probabilities, jax.nn.softmax(logits), atol=1e-5
    )


def leave_one_out_loss(known, embeddings, labels):
    """Mean loss of each example, by classes that were made anew without it."""
    total = 0.0
    for place, label in enumerate(labels):
        others = np.arange(len(labels)) != place
        rest = known_classes(embeddings[others], labels[others], known.names)
        rest = dataclasses.replace(rest, temperature=known.temperature)
        total -= np.log(predict_known_classes(rest, embeddings[[place]]).probabilities[0, label])
    return total / len(labels)


def test_the_temperature_lowers_the_loss_of_examples_that_are_left_out():
    rng = np.random.default_rng(0)
    for scale in (0.3, 2.0):  # embeddings for which a temperature of 1 is too high, and too low
        embeddings, labels = support(rng, shot=8, spread=5.0)
        embeddings = scale * embeddings
        plain = known_classes(embeddings, labels, NAMES)
        tuned = calibrated_known_classes(plain, embeddings, labels)
        losses = {
            factor: leave_one_out_loss(
                dataclasses.replace(plain, temperature=np.float32(factor * tuned.temperature)), embeddings, labels
            )
            for factor in (0.2, 1.0, 5.0)
        }
        assert losses[1.0] < leave_one_out_loss(plain, embeddings, labels)
        assert losses[1.0] < losses[0.2] and losses[1.0] < losses[5.0]


def test_a_perfect_support_set_does_not_make_probabilities_certain():
    embeddings, labels = support(np.random.default_rng(0), shot=2, spread=0.01)
    assert calibrated_known_classes(known_classes(embeddings, labels, NAMES), embeddings, labels).temperature > 0.01


def test_the_threshold_calls_few_known_and_most_strange_examples_unknown():
    """With well separated classes hardly any false alarms; with others a tenth, and so more strangers are missed."""
    for spread, alarms, found in ((1.0, (0.0, 0.02), 0.95), (2.5, (0.05, 0.15), 0.5)):
        rng = np.random.default_rng(0)
        embeddings, labels = support(rng, way=20, shot=25, dimensions=16, spread=spread)
        strangers, _ = support(rng, way=20, shot=5, dimensions=16, spread=spread)
        shown = np.concatenate([np.flatnonzero(labels == label)[:5] for label in range(20)])
        asked = np.setdiff1d(np.arange(len(labels)), shown)
        names = [str(label) for label in range(20)]
        known = calibrated_known_classes(
            known_classes(embeddings[shown], labels[shown], names), embeddings[shown], labels[shown]
        )
        assert alarms[0] <= predict_known_classes(known, embeddings[asked]).unknown.mean() <= alarms[1]
        assert predict_known_classes(known, strangers).unknown.mean() > found


def test_one_class_alone_has_a_threshold_by_its_own_examples():
    embeddings, labels = support(np.random.default_rng(0), way=1, shot=20)
    known = calibrated_known_classes(known_classes(embeddings, labels, ['a']), embeddings, labels)
    np.testing.assert_array_equal(
        predict_known_classes(known, embeddings[:1] + [[0.0], [100.0]]).unknown, [False, True]
    )


def test_nothing_is_unknown_to_a_class_of_one_example_alone():
    known = calibrated_known_classes(known_classes(np.ones((1, 3)), [0], ['a']), np.ones((1, 3)), [0])
    assert known.threshold == np.inf and not predict_known_classes(known, np.full((1, 3), 1e3)).unknown[0]


def test_classes_of_one_example():
    """Left out, an example is unknown: three quarters of them are farther from their neighbours than the threshold."""
    embeddings, labels = support(np.random.default_rng(0), way=9, shot=1)
    names = [str(label) for label in range(9)]
    known = calibrated_known_classes(known_classes(embeddings, labels, names), embeddings, labels)
    assert known.temperature == 1
    left_out = [
        predict_known_classes(without_known_class(known, names[label]), embeddings[[place]]).unknown[0]
        for place, label in enumerate(labels)
    ]
    assert sum(left_out) == 5  # of nine; two that are each other's neighbours are at the threshold
    assert not predict_known_classes(known, embeddings).unknown.any()


def test_zero_shot_classes_can_be_added_to():
    known = protojax.zero_shot_known_classes([[1.0, 0.0], [0.0, 1.0]], ['a', 'b'])
    np.testing.assert_array_equal(known.prototypes, [[1, 0], [0, 1]])
    grown = merge_known_classes(known, known_classes([[3.0, 0.0]], [0], ['a']))
    np.testing.assert_array_equal(grown.prototypes, [[2, 0], [0, 1]])


def test_it_is_a_pytree():
    embeddings, labels = support(np.random.default_rng(0))
    known = calibrated_known_classes(known_classes(embeddings, labels, NAMES), embeddings, labels)
    found, expected = jax.jit(predict_known_classes)(known, embeddings), predict_known_classes(known, embeddings)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-4)


@pytest.mark.parametrize(
    ('embeddings', 'labels', 'names', 'message'),
    [
        ([[1.0], [2.0]], [0, 0], ['a', 'b'], 'each needs examples'),
        ([[1.0], [2.0]], [0, 2], ['a', 'b'], 'each needs examples'),
        ([[1.0], [2.0]], [0, 1], ['a', 'a'], 'stands twice'),
        ([[1.0], [np.nan]], [0, 1], ['a', 'b'], 'not finite'),
        ([1.0, 2.0], [0, 1], ['a', 'b'], 'must be'),
        ([[1e10], [1.0]], [0, 1], ['a', 'b'], 'scale the embeddings down'),
    ],
)
def test_what_cannot_be_is_refused(embeddings, labels, names, message):
    with pytest.raises(ValueError, match=message):
        known_classes(np.array(embeddings), np.array(labels), names)


@pytest.fixture
def known():
    embeddings, labels = support(np.random.default_rng(0))
    return calibrated_known_classes(known_classes(embeddings, labels, NAMES), embeddings, labels)


def test_a_file_holds_all_of_it(tmp_path, known):
    protojax.save_classes(tmp_path / 'c.safetensors', known, encoder='digest')
    same(protojax.load_classes(tmp_path / 'c.safetensors', encoder='digest'), known)
    same(protojax.load_classes(tmp_path / 'c.safetensors'), known)
    with pytest.raises(WeightsError, match='other weights'):
        protojax.load_classes(tmp_path / 'c.safetensors', encoder='another')


def broken(known):
    """Files that differ from an honest one in one thing."""
    arrays = {
        'sums': known.sums,
        'counts': known.counts,
        'temperature': np.ones(1, 'f4'),
        'threshold': np.ones(1, 'f4'),
    }
    header = {'format': 'protojax classes 1', 'names': list(NAMES), 'encoder': ''}
    for name, change in {
        'a negative count': {'counts': np.array([1, -1, 2], np.int32)},
        'counts of another type': {'counts': known.counts.astype(np.int64)},
        'a class too few': {'sums': known.sums[:2]},
        'a sum that is no number': {'sums': np.full_like(known.sums, np.nan)},
        'huge sums': {'sums': np.full_like(known.sums, 1e30)},
        'no temperature': {'temperature': np.zeros(1, 'f4')},
        'a temperature that is nearly none': {'temperature': np.full(1, 1e-45, 'f4')},
        'a negative threshold': {'threshold': -np.ones(1, 'f4')},
        'an array more': {'more': np.zeros(3)},
    }.items():
        yield name, safetensors.numpy.save(arrays | change, {'protojax': json.dumps(header)})
    for name, change in {
        'names twice': {'names': ['ant', 'ant', 'cat']},
        'names that are numbers': {'names': [1, 2, 3]},
        'another format': {'format': 'protojax weights 2'},
        'no names': {'names': []},
        'a text of names': {'names': 'abc'},
    }.items():
        yield name, safetensors.numpy.save(arrays, {'protojax': json.dumps(header | change)})
    whole = safetensors.numpy.save(arrays, {'protojax': json.dumps(header)})
    yield 'no description', safetensors.numpy.save(arrays)
    yield 'cut', whole[:-8]
    yield 'empty', b''
    yield 'a header longer than the file', (1 << 40).to_bytes(8, 'little') + whole[8:]


def test_damaged_and_hostile_files_get_one_line(tmp_path, known):
    path = tmp_path / 'c.safetensors'
    for name, content in broken(known):
        path.write_bytes(content)
        with pytest.raises(WeightsError, match='holds no usable classes'):
            protojax.load_classes(path)
            pytest.fail(name)
    with pytest.raises(WeightsError):
        protojax.load_classes(tmp_path / 'nowhere')


@pytest.mark.parametrize('device', ['/dev/zero', '/dev'])
def test_what_is_no_file_is_not_read(tmp_path, device):
    (tmp_path / 'c.safetensors').symlink_to(device)
    with pytest.raises(WeightsError, match='it is no ordinary file'):
        protojax.load_classes(tmp_path / 'c.safetensors')


def test_too_large_a_file_is_not_read(tmp_path, known):
    protojax.save_classes(tmp_path / 'c.safetensors', known)
    with pytest.raises(ValueError, match='bytes'):
        files.read_arrays(tmp_path / 'c.safetensors', largest=100)


def test_the_type_is_public():
    assert isinstance(known_classes([[1.0]], [0], ['a']), KnownClasses)
