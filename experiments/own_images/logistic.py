"""Logistic regression on embeddings, which can be more accurate than prototypes on photographs."""

import numpy as np
import scipy.optimize
import scipy.special
from jax.typing import ArrayLike

NORM = 4.0  # mean norm of the embeddings, to which the penalty is relative


def probabilities(embeddings: ArrayLike, labels: np.ndarray, queries: ArrayLike) -> np.ndarray:
    """Fit a linear classifier with an L2 penalty, and classify queries: [N, D], [N], [Q, D] -> [Q, way]."""
    scale = NORM / np.linalg.norm(embeddings, axis=1).mean()
    support, queries = (np.pad(scale * x, ((0, 0), (0, 1)), constant_values=1) for x in (embeddings, queries))
    targets = np.eye(labels.max() + 1)[labels]

    def loss(flat):
        weights = flat.reshape(support.shape[1], -1)
        scores = scipy.special.log_softmax(support @ weights, 1)
        gradient = support.T @ (np.exp(scores) - targets) + weights
        return 0.5 * np.sum(weights**2) - np.sum(scores * targets), gradient.ravel()

    start = np.zeros(support.shape[1] * targets.shape[1])
    fitted = scipy.optimize.minimize(loss, start, jac=True, method='L-BFGS-B').x
    return scipy.special.softmax(queries @ fitted.reshape(support.shape[1], -1), 1)
