"""Prototype classifier for custom classes, stored as per-class sums so that examples can be added later.

A class is stored as the sum and the count of its embeddings; their quotient is the prototype (eq. 1). Examples and
classes are therefore added and removed without the old images, and the result is bit-identical to fitting all examples
at once: embeddings are rounded to multiples of 2**-24, and float64 sums of these are exact in any order.

Axis letters: N support examples, Q queries, D dimensions; way is the number of classes.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # loads its modules when they are first used
from jax import Array
from jax.typing import ArrayLike

from protojax import classifiers, files
from protojax.distances import pairwise, squared_euclidean
from protojax.errors import WeightsError, first_line

FORMAT = 'protojax classes 1'
GRID = 2.0**24  # embeddings are rounded to multiples of 1 / GRID
LARGEST_SUM = 2.0**53 / GRID  # float64 represents all multiples of 1 / GRID below it
TEMPERATURES = 2.0 ** np.linspace(-8, 8, 129)  # candidates of `calibrate`
FALSE_REJECTIONS = 0.1  # maximum fraction of queries that the fitted threshold should reject


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prediction:
    """Predictions for a batch of queries."""

    classes: tuple[str, ...] = dataclasses.field(metadata={'static': True})  # names of the classifier's classes
    labels: Array  # int32 [Q], index of the nearest class
    probabilities: Array  # [Q, way] (eq. 2)
    distances: Array  # [Q, way], squared, to the prototypes
    unknown: Array  # bool [Q], True if the query is outside the rejection radius of every class

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name of the nearest class of each query, whether or not the query is rejected as unknown."""
        return tuple(self.classes[label] for label in np.asarray(self.labels))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PrototypeClassifier:
    """Nearest-prototype classifier with named classes.

    It is a pytree of NumPy arrays, because JAX would round the float64 sums to float32.
    """

    names: tuple[str, ...] = dataclasses.field(metadata={'static': True})
    sums: np.ndarray  # float64 [way, D], sum of the embeddings of each class
    counts: np.ndarray  # int32 [way]
    temperature: np.float32 = np.float32(1)  # divides the distances
    threshold: np.float32 = np.float32(np.inf)  # see `radii`; infinity disables rejection

    @classmethod
    def fit(cls, embeddings: ArrayLike, labels: ArrayLike, names: Sequence[str]) -> Self:
        """Compute the classes of a support set: [N, D], [N] indices into `names`.

        Zero-shot classes have a prototype instead of examples: `fit(prototypes, range(way), names)`.
        """
        (points, indices), names = _support(embeddings, labels), tuple(names)
        counts = np.bincount(indices, minlength=len(names)).astype(np.int32)
        if len(counts) != len(names) or not counts.all():
            raise ValueError(f'expected examples of all {len(names)} classes, got {np.count_nonzero(counts)} classes')
        sums = np.zeros((len(names), points.shape[1]))
        np.add.at(sums, indices, np.round(points * GRID) / GRID)
        return cls(names, sums, counts).checked()

    @property
    def prototypes(self) -> np.ndarray:
        """Compute the mean embedding of each class (eq. 1): float32 [way, D]."""
        return (self.sums / self.counts[:, None]).astype(np.float32)

    @property
    def radii(self) -> np.ndarray:
        """Compute the squared rejection radius of each class, larger for classes with few examples: float32 [way]."""
        return self.threshold * (1 + 1 / self.counts.astype(np.float32))

    def predict(self, embeddings: ArrayLike) -> Prediction:
        """Classify queries by the nearest prototype: [Q, D]."""
        if np.shape(embeddings)[1:] != self.sums.shape[1:]:
            found = f'got {np.shape(embeddings)}; embed images with weights.embed first'
            raise ValueError(f'expected embeddings [Q, {self.sums.shape[1]}], {found}')
        nearest = _nearest(jnp.asarray(embeddings), self.prototypes, self.temperature, self.radii)
        return Prediction(self.names, *nearest)

    def calibrate(self, embeddings: ArrayLike, labels: ArrayLike) -> Self:
        """Fit temperature and threshold to the support set by leave-one-out: [N, D], [N].

        Each example is compared with its class's prototype without that example. The temperature minimises the
        cross-entropy, with a prior around 1, the temperature of the encoder's training. The threshold is between the
        typical distance to the correct class and to the nearest other class, but rejects about a tenth of the
        examples at most. If every class has a single example, there is nothing to leave out, and both stay unchanged.
        """
        points, indices = _support(embeddings, labels)
        repeated = self.counts[indices] > 1
        if not repeated.any():
            return self
        distances, counts = self._leave_one_out(points, indices)
        threshold = _best_threshold(distances / (1 + 1 / counts), indices, repeated)
        temperature = _best_temperature(distances[repeated], indices[repeated])
        return dataclasses.replace(self, threshold=np.float32(threshold), temperature=np.float32(temperature))

    def merge(self, other: Self) -> Self:
        """Add the classes and examples of `other`; classes of the same name become one.

        Temperature and threshold stay unchanged; call `calibrate` to fit them again.
        """
        names = tuple(dict.fromkeys(self.names + other.names))
        index = {name: k for k, name in enumerate(names)}
        sums, counts = np.zeros((len(names), self.sums.shape[1])), np.zeros(len(names), np.int32)
        for part in (self, other):
            rows = [index[name] for name in part.names]
            sums[rows] += part.sums
            counts[rows] += part.counts
        return dataclasses.replace(self, names=names, sums=sums, counts=counts).checked()

    def select(self, names: Iterable[str]) -> Self:
        """Keep these classes, in this order."""
        names, index = tuple(names), {name: k for k, name in enumerate(self.names)}
        if missing := [name for name in names if name not in index]:
            raise ValueError(f'unknown class {missing[0]!r}; expected one of {", ".join(self.names[:5])} ...')
        rows = [index[name] for name in names]
        return dataclasses.replace(self, names=names, sums=self.sums[rows], counts=self.counts[rows]).checked()

    def drop(self, name: str) -> Self:
        """Remove one class."""
        self.select([name])  # raises if it is absent
        return self.select(other for other in self.names if other != name)

    def as_linear(self) -> tuple[Array, Array]:
        """Return weights and biases of the equivalent linear model (eq. 8), softmax(w . z + b): [way, D], [way]."""
        weights, biases = classifiers.linear_classifier(jnp.asarray(self.prototypes))
        return weights / self.temperature, biases / self.temperature

    def save(self, path: str | os.PathLike, *, encoder: str = '') -> None:
        """Write a safetensors file. `encoder` identifies the embedding, usually `description['digest']` of weights."""
        arrays = {'sums': self.sums, 'counts': self.counts}
        arrays |= {name: np.float32(getattr(self, name)).reshape(1) for name in ('temperature', 'threshold')}
        files.write_arrays(path, arrays, {'format': FORMAT, 'names': list(self.names), 'encoder': encoder})

    @classmethod
    def load(cls, path: str | os.PathLike, *, encoder: str = '') -> Self:
        """Read a saved classifier; if `encoder` is given, it must be the one that the classifier was saved with."""
        classifier, saved_with = read(path)
        if encoder and saved_with != encoder:
            raise WeightsError(f'{path} was saved with a different encoder; pass the weights of that encoder')
        return classifier

    def checked(self) -> Self:
        """Return self, or raise ValueError if names, shapes or values are invalid."""
        way = len(self.names)
        if len(set(self.names)) != way or not all(isinstance(name, str) for name in self.names):
            raise ValueError(f'expected {way} unique class names as strings, got {len(set(self.names))} different ones')
        shapes, types = (self.sums.shape[:-1], self.counts.shape), (self.sums.dtype, self.counts.dtype)
        if shapes != ((way,), (way,)) or types != (np.float64, np.int32) or self.counts.min(initial=1) < 1:
            raise WeightsError(f'expected float64 sums [{way}, D] and positive int32 counts, got {types} {shapes}')
        if not np.abs(self.sums).max(initial=0) < LARGEST_SUM:
            raise WeightsError(f'expected finite sums of embeddings below {LARGEST_SUM:.0f}; scale the embeddings down')
        if not (self.threshold >= 0 and 0 < self.temperature < np.inf):
            raise ValueError(f'invalid temperature {self.temperature} or threshold {self.threshold}')
        return self

    def _leave_one_out(self, embeddings, labels):
        """Compute distances to all classes and their counts without the example: [N, D], [N] -> [N, way], [N, way].

        Removing one of n examples moves the mean away: the squared distance grows by a factor of (n / (n - 1))**2.
        """
        # SciPy, because JAX would compile a program for each number of examples and classes.
        distances = scipy.spatial.distance.cdist(embeddings, self.prototypes, 'sqeuclidean')
        counts = np.tile(self.counts.astype(np.float64), (len(labels), 1))
        correct = np.arange(len(labels)), labels
        others = np.maximum(counts[correct] - 1, 1)
        distances[correct] *= np.square(counts[correct] / others)
        counts[correct] = others
        return distances, counts


def read(path: str | os.PathLike) -> tuple[Any, str]:
    """Read a saved classifier and the `encoder` that it was saved with."""
    try:
        arrays, description = files.read_arrays(path)
        if description['format'] != FORMAT or not description['names']:
            raise ValueError(f'expected format {FORMAT!r} and at least one class')
        numbers = (np.float32(arrays[name].item()) for name in ('temperature', 'threshold'))
        classifier = PrototypeClassifier(tuple(description['names']), arrays['sums'], arrays['counts'], *numbers)
        return classifier.checked(), str(description['encoder'])
    except FileNotFoundError:
        raise WeightsError(f'{path} does not exist') from None
    except Exception as error:  # corruption takes many forms
        raise WeightsError(f'{path} is not a saved classifier ({first_line(error)}); save it again') from error


def _support(embeddings: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings and labels of a support set as arrays: float64 [N, D], int [N]."""
    if np.asarray(labels).dtype.kind in 'OSU':
        raise ValueError('expected integer labels; names, labels = numpy.unique(texts, return_inverse=True)')
    points, indices = np.asarray(embeddings, np.float64), np.asarray(labels, int)
    if points.ndim != 2 or indices.shape != points.shape[:1]:
        found = f'got {points.shape} and {indices.shape}; embed images with weights.embed first'
        raise ValueError(f'expected embeddings [N, D] and labels [N], {found}')
    return points, indices


@jax.jit
def _nearest(embeddings, prototypes, temperature, radii):
    distances = pairwise(squared_euclidean)(embeddings, prototypes)
    distances = jnp.maximum(distances, 0)  # rounding can make it negative
    probabilities = jax.nn.softmax(-distances / temperature)
    return jnp.argmin(distances, 1), probabilities, distances, ~(distances <= radii[None]).any(1)


def _best_threshold(scores, labels, repeated):
    """Fit the threshold of scaled distances: [N, way], [N], bool [N] (class has other examples) -> []."""
    correct, others = (np.arange(len(labels)), labels), scores.copy()
    others[correct] = np.inf
    between = np.sqrt(np.median(scores[correct][repeated]) * np.median(others.min(1))) if scores.shape[1] > 1 else 0.0
    nearest = scores[repeated].min(1)  # distance to the nearest class, correct or not
    return max(between, np.quantile(nearest, 1 - FALSE_REJECTIONS, method='median_unbiased'))


def _best_temperature(distances, labels):
    """Find the most likely temperature; the prior is log-normal around 1 with a standard deviation of a factor of 4."""

    def loss(temperature):
        log_probabilities = scipy.special.log_softmax(-distances / temperature, 1)
        prior = 0.5 * np.square(np.log2(temperature) / 2)
        return prior - np.sum(log_probabilities[np.arange(len(labels)), labels])

    return min(TEMPERATURES, key=loss)
