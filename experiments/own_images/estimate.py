"""Accuracy and rejection to expect of a classifier, estimated by random splits of its examples."""

import numpy as np

from experiments.own_images import logistic
from experiments.own_images.loading import Embedded, counted
from experiments.running.config import ConfigError
from protojax.prototype_classifier import PrototypeClassifier

SPLITS = 100


def lines(embedded: Embedded, shot: int, head: str) -> list[str]:
    """Report accuracy with `shot` examples per class, and rejection if half of the classes are left out."""
    names, labels = np.unique(embedded.classes, return_inverse=True)
    if np.bincount(labels).min() <= shot:
        raise ConfigError(f'--estimate={shot} needs at least {shot + 1} images of every class; add images or lower it')
    rng = np.random.default_rng(0)
    found = [_split(rng, embedded.embeddings, labels, shot, head) for _ in range(SPLITS)]
    accuracy, known, unseen = (f'{100 * np.mean(x):.1f} ± {100 * np.std(x):.1f} %' for x in zip(*found, strict=True))
    return [
        f'{SPLITS} random splits with {counted(shot, "example")} per class (mean ± standard deviation):',
        f'accuracy without rejection: {accuracy} of the other images, {len(names)} classes',
        f'rejected with half of the classes left out: {known} of known and {unseen} of left-out classes',
    ]


def _split(rng, embeddings, labels, shot, head):
    """Return accuracy, false rejections and rejections of unseen classes in one split, as fractions."""
    order, way = rng.permutation(len(labels)), labels.max() + 1
    example, known = np.zeros(len(labels), bool), np.isin(labels, rng.permutation(way)[: way // 2])
    for label in range(way):
        example[order[labels[order] == label][:shot]] = True

    def predict(support):
        present, indices = np.unique(labels[support], return_inverse=True)
        classifier = PrototypeClassifier.fit(embeddings[support], indices, [str(label) for label in present])
        prediction = classifier.calibrate(embeddings[support], indices).predict(embeddings)
        return present[np.asarray(prediction.labels)], np.asarray(prediction.unknown)

    predicted, rejected = predict(example)[0], predict(example & known)[1]
    if head == 'logistic':
        predicted = logistic.probabilities(embeddings[example], labels[example], embeddings).argmax(1)
    return (predicted == labels)[~example].mean(), rejected[known & ~example].mean(), rejected[~known].mean()
