"""Changed episodes against loops: full context embeddings, an encoder each for support and query, unlabelled ones."""

import jax
import numpy as np
from scipy.special import expit as sigmoid

from experiments.methods import decoupled
from experiments.methods.context import in_context, queries_in_context, support_in_context
from experiments.methods.prototypical import refined
from protojax import Episode, LinearMap, cosine, matching
from protojax.classifiers import by_distance
from protojax.encoders import encode, init

RNG = np.random.default_rng(0)
D, STEPS = 4, 3
SUPPORT, QUERIES = RNG.normal(size=(6, D)), RNG.normal(size=(5, D))
LABELS = np.repeat(np.arange(3), 2)
EPISODE = Episode(np.float32(SUPPORT), LABELS, np.float32(QUERIES), None, np.arange(3))
CLASSIFIER = in_context(by_distance(matching, cosine), steps=STEPS)
SHAPES = jax.eval_shape(lambda key: CLASSIFIER.init(key, D), jax.random.key(0))
PARAMS = jax.tree.map(lambda p: np.float32(RNG.normal(size=p.shape)), SHAPES)


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
    in_order = jax.jit(support_in_context)
    np.testing.assert_allclose(in_order(PARAMS, EPISODE.support), expected_support(), rtol=1e-4, atol=1e-5)
    turned = in_order(PARAMS, EPISODE.support[::-1])[::-1]
    assert not np.allclose(turned, expected_support(), atol=1e-2)


def test_queries_attend_to_the_support_set_in_any_order():
    g, attend = expected_support(), jax.jit(queries_in_context, static_argnames='steps')
    for support in (g, g[::-1]):
        found = attend(PARAMS['attention'], EPISODE.query, np.float32(support), steps=STEPS)
        np.testing.assert_allclose(found, [expected_query(x, g) for x in QUERIES], rtol=1e-4, atol=1e-5)


def test_the_classifier_works_on_embeddings_in_context():
    g = expected_support()
    h = np.array([expected_query(x, g) for x in QUERIES])
    found = jax.jit(CLASSIFIER.apply)(PARAMS, EPISODE)
    plain = jax.jit(by_distance(matching, cosine).apply)
    expected = plain({}, EPISODE._replace(support=np.float32(g), query=np.float32(h)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_support_and_queries_have_an_encoder_each():
    single, items = LinearMap(3, item_shape=(7,)), np.float32(RNG.normal(size=(4, 7)))
    both = decoupled.encoders(single)
    params, _ = init(both, jax.random.key(0), both.item_shape)
    embed = jax.jit(lambda encoder, params: encode(encoder, params, {}, items)[0], static_argnums=0)
    embeddings, *halves = map(np.asarray, (embed(both, params), *(embed(single, params[name]) for name in ('g', 'f'))))
    np.testing.assert_allclose(embeddings, np.concatenate(halves, 1), rtol=1e-5, atol=1e-5)
    assert not np.allclose(*halves)
    episode = Episode(embeddings[:2], np.arange(2), embeddings[2:], None, np.arange(2))
    chosen = Episode(halves[0][:2], np.arange(2), halves[1][2:], None, np.arange(2))
    found = jax.jit(decoupled.classifier(by_distance()).apply)({}, episode)
    np.testing.assert_allclose(found, jax.jit(by_distance().apply)({}, chosen), rtol=1e-5, atol=1e-5)


def test_prototypes_move_towards_unlabelled_examples():
    """One step of soft k-means, class by class."""
    squared = lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1)  # noqa: E731
    unlabeled, classes = RNG.normal(size=(7, D)), [SUPPORT[k == LABELS] for k in range(3)]
    soft = np.exp(-squared(unlabeled, np.stack([own.mean(0) for own in classes])))
    soft /= soft.sum(1, keepdims=True)
    moved = [(own.sum(0) + p @ unlabeled) / (2 + p.sum()) for own, p in zip(classes, soft.T, strict=True)]
    found = jax.jit(refined(by_distance()).apply)({}, EPISODE._replace(unlabeled=np.float32(unlabeled)))
    np.testing.assert_allclose(found, -squared(QUERIES, np.stack(moved)), rtol=1e-4)
