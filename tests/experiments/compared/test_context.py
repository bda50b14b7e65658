"""Full context embeddings against loops of their equations, and encoders of their own for support and query."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.compared.context import in_context, queries_in_context, support_in_context
from experiments.compared.decoupled import decoupled_classifier, decoupled_encoder
from protojax.classifiers import by_matching, by_prototypes
from protojax.distances import cosine, learned_mahalanobis
from protojax.encoders import Conv4, encode, initialize
from protojax.episodes import Episode

RNG = np.random.default_rng(0)
D, STEPS = 4, 3
SUPPORT, QUERIES = RNG.normal(size=(6, D)), RNG.normal(size=(5, D))
LABELS = np.repeat(np.arange(3), 2)
EPISODE = Episode(jnp.float32(SUPPORT), jnp.asarray(LABELS), jnp.float32(QUERIES), None, jnp.arange(3))
CLASSIFIER = in_context(by_matching(cosine), steps=STEPS)
PARAMS = jax.tree.map(lambda p: jnp.float32(RNG.normal(size=p.shape)), CLASSIFIER.initialize(jax.random.key(0), D))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(params, c, h, x):
    """The textbook's LSTM: input, forget, cell and output gate."""
    i, f, g, o = np.split(x @ params['inputs'] + h @ params['recurrent'] + params['bias'], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def run(params, points):
    c = h = np.zeros(D)
    outputs = []
    for point in points:
        c, h = lstm(params, c, h, point)
        outputs.append(h)
    return np.array(outputs)


def expected_support():
    return run(PARAMS['forward'], SUPPORT) + run(PARAMS['backward'], SUPPORT[::-1])[::-1] + SUPPORT


def expected_query(x, g):
    c = h = r = np.zeros(D)
    for _ in range(STEPS):
        c, h = lstm(PARAMS['attention'], c, h, np.concatenate([x, r]))
        h = h + x
        weights = np.exp(g @ h - (g @ h).max())
        r = weights / weights.sum() @ g
    return h


def test_support_examples_are_seen_in_their_order():
    np.testing.assert_allclose(support_in_context(PARAMS, EPISODE.support), expected_support(), rtol=1e-4, atol=1e-5)
    turned = support_in_context(PARAMS, EPISODE.support[::-1])[::-1]
    assert not np.allclose(turned, expected_support(), atol=1e-2)


def test_queries_attend_to_the_support_set():
    g = expected_support()
    found = queries_in_context(PARAMS['attention'], EPISODE.query, jnp.float32(g), steps=STEPS)
    np.testing.assert_allclose(found, [expected_query(x, g) for x in QUERIES], rtol=1e-4, atol=1e-5)


def test_the_query_side_does_not_depend_on_the_order():
    g = jnp.float32(expected_support())
    ours, others = (queries_in_context(PARAMS['attention'], EPISODE.query, s, steps=STEPS) for s in (g, g[::-1]))
    np.testing.assert_allclose(ours, others, rtol=1e-4, atol=1e-5)


def test_the_classifier_works_on_embeddings_in_context():
    g = expected_support()
    h = np.array([expected_query(x, g) for x in QUERIES])
    found = CLASSIFIER.apply(PARAMS, EPISODE)
    expected = by_matching(cosine).apply({}, EPISODE._replace(support=jnp.float32(g), query=jnp.float32(h)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_parameters_of_a_distance_are_kept():
    params = in_context(by_prototypes(learned_mahalanobis())).initialize(jax.random.key(0), D)
    np.testing.assert_array_equal(params['classifier']['factor'], np.eye(D))


def test_support_and_queries_have_an_encoder_each():
    single = Conv4(filters=4, kernels=False, item_shape=(16, 16, 1))
    images = RNG.integers(0, 256, (4, 16, 16, 1), dtype=np.uint8)
    both = decoupled_encoder(single)
    params, stats = initialize(both, jax.random.key(0), (16, 16, 1))
    embeddings, _ = encode(both, params, stats, images)
    halves = [encode(single, params[name], stats[name], images)[0] for name in ('g', 'f')]
    np.testing.assert_allclose(embeddings, np.concatenate(halves, 1), rtol=1e-5, atol=1e-5)
    assert not np.allclose(*halves)
    episode = Episode(embeddings[:2], jnp.arange(2), embeddings[2:], None, jnp.arange(2))
    chosen = Episode(halves[0][:2], jnp.arange(2), halves[1][2:], None, jnp.arange(2))
    found = decoupled_classifier(by_prototypes()).apply({}, episode)
    np.testing.assert_allclose(found, by_prototypes().apply({}, chosen), rtol=1e-5, atol=1e-5)
    assert decoupled_classifier(by_prototypes(learned_mahalanobis())).initialize(None, 8)['factor'].shape == (4, 4)
