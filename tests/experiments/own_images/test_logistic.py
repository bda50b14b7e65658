"""Logistic regression agrees with scikit-learn."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from experiments.own_images import logistic


def test_probabilities_are_those_of_scikit_learn_at_a_mean_norm_of_4():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 5)
    embeddings = rng.normal(size=(15, 8)) + 2 * np.eye(3, 8)[labels]
    scaled = np.pad(embeddings * 4 / np.linalg.norm(embeddings, axis=1).mean(), ((0, 0), (0, 1)), constant_values=1)
    expected = LogisticRegression(fit_intercept=False, tol=1e-6).fit(scaled, labels).predict_proba(scaled)
    np.testing.assert_allclose(logistic.probabilities(embeddings, labels, embeddings), expected, atol=1e-3)
    np.testing.assert_allclose(logistic.probabilities(9 * embeddings, labels, 9 * embeddings), expected, atol=1e-3)
