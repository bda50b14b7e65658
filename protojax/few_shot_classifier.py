"""Classify image files in one line: an encoder, its image reader and a `PrototypeClassifier` together.

classifier = protojax.FewShotClassifier('photos').fit('examples')  # one subfolder per class
classifier.predict(['a.jpg', 'b.jpg'])  # ['cat', None]
"""

import os
from typing import Self

import numpy as np
from absl import logging

from protojax import errors, pretrained, prototype_classifier
from protojax.images import Paths, load_images
from protojax.prototype_classifier import Prediction, PrototypeClassifier


class FewShotClassifier:
    """Classifier of image files that learns classes from a few examples each.

    Args:
        weights: Trained weights, or their name or path, see `load_pretrained`.

    Attributes:
        weights: The trained encoder.
        classifier: The PrototypeClassifier, None before `fit`.
    """

    def __init__(self, weights: str | os.PathLike | pretrained.Pretrained = 'photos'):
        self.weights = weights if isinstance(weights, pretrained.Pretrained) else pretrained.load_pretrained(weights)
        self.classifier: PrototypeClassifier | None = None

    def fit(self, folder: Paths) -> Self:
        """Learn the classes of a folder with one subfolder per class, and forget all others; return self."""
        self.classifier = None
        return self.add(folder)

    def add(self, folder: Paths) -> Self:
        """Learn more examples and classes; temperature and rejection threshold are not fitted again."""
        images = load_images(folder, like=self.weights)
        for line in images.skipped:
            logging.warning('ignored: %s', line)
        inside = images.labels >= 0
        if not inside.any():
            raise errors.DataError(f'{folder} has no readable image in a subfolder; create one subfolder per class')
        embeddings, labels = self.weights.embed(images.items[inside]), images.labels[inside]
        new = PrototypeClassifier.fit(embeddings, labels, images.names)
        self.classifier = self.classifier.merge(new) if self.classifier else new.calibrate(embeddings, labels)
        return self

    def predict(self, paths: Paths) -> list[str | None]:
        """Return the class of each image file, or None if it is unlike all classes."""
        found = self.prediction(paths)
        return [None if unknown else name for name, unknown in zip(found.names, found.unknown, strict=True)]

    def predict_proba(self, paths: Paths) -> np.ndarray:
        """Return the probability of each class, in the order of `classifier.names`: float32 [Q, way]."""
        return np.asarray(self.prediction(paths).probabilities)

    def prediction(self, paths: Paths) -> Prediction:
        """Return names, probabilities, distances and rejections of image files.

        Raises:
            DataError: If a file cannot be read.
        """
        images = load_images(paths, like=self.weights)
        if images.skipped:
            raise errors.DataError(images.skipped[0])
        return self._fitted().predict(self.weights.embed(images.items))

    def save(self, path: str | os.PathLike) -> None:
        """Write the classes to a .safetensors file for `load`, the classify command and the browser demo."""
        self._fitted().save(path, encoder=self.weights.description['digest'])

    @classmethod
    def load(cls, path: str | os.PathLike, weights: str | os.PathLike | pretrained.Pretrained | None = None) -> Self:
        """Read a saved classifier; `weights` are needed only if it was saved with weights from a file."""
        made = cls(weights or pretrained.name_of(prototype_classifier.read(path)[1]))
        made.classifier = PrototypeClassifier.load(path, encoder=made.weights.description['digest'])
        return made

    def _fitted(self):
        if self.classifier is None:
            raise ValueError('no classes yet; call fit(folder) first')
        return self.classifier
