"""A classifier of your own classes: what a support set says of each class, as sums that can be added to.

A class is known by the sum and the number of its embeddings, whose quotient is the prototype (eq. 1). So examples and
classes are added and taken away without the old images, and the outcome is that of starting over, to the last bit:
embeddings are rounded to multiples of 2**-24, as float32 rounds numbers near 1, and sums of these are exact in float64,
in whatever order they are added.

Axis letters: N support examples, Q queries, D dimensions; way is the number of classes.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from protojax.distances import pairwise, squared_euclidean
from protojax.prototypes import linear_classifier

GRID = 2.0**24  # parts of 1 that embeddings are rounded to
LARGEST_SUM = 2.0**53 / GRID  # below it, float64 has all multiples of 1 / GRID
TEMPERATURES = 2.0 ** np.linspace(-8, 8, 129)  # among which the best is looked for
SMALLEST_TEMPERATURE = 1e-12
FALSE_ALARMS = 0.1  # at most, share of the examples that the threshold may call unknown
STRANGERS_FOUND = 0.75  # where that cannot be known, share of the classes that it calls unknown when they are left out


@dataclasses.dataclass(frozen=True)
class KnownClasses:
    """Classes by name, a pytree of the arrays. Arrays of NumPy, as JAX would round the sums."""

    names: tuple[str, ...]
    sums: np.ndarray  # float64 [way, D], of the embeddings of each class
    counts: np.ndarray  # int32 [way]
    temperature: np.ndarray  # float32 [], divides the distances
    threshold: np.ndarray  # float32 [], see limits; infinite: everything is known

    @property
    def prototypes(self) -> np.ndarray:
        """Mean embedding of each class: float32 [way, D]."""
        return (self.sums / self.counts[:, None]).astype(np.float32)

    @property
    def limits(self) -> np.ndarray:
        """Squared distance of each class beyond which nothing is of it: wider where its mean is of few examples."""
        return self.threshold * (1 + 1 / self.counts.astype(np.float32))


jax.tree_util.register_dataclass(
    KnownClasses, data_fields=['sums', 'counts', 'temperature', 'threshold'], meta_fields=['names']
)


class Prediction(NamedTuple):
    """What is said of each query."""

    labels: jax.Array  # int32 [Q], the nearest class
    probabilities: jax.Array  # [Q, way]
    distances: jax.Array  # [Q, way], squared, to the prototypes
    unknown: jax.Array  # bool [Q], whether every class is farther than its limit


def known_classes(embeddings: ArrayLike, labels: ArrayLike, names: Sequence[str]) -> KnownClasses:
    """The classes of a support set: [N, D], [N] places in names. Every class needs an example."""
    embeddings, labels, names = np.asarray(embeddings, np.float64), np.asarray(labels), tuple(names)
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(f'embeddings {embeddings.shape} and labels {labels.shape} must be [N, D] and [N]')
    if len(set(names)) != len(names):
        raise ValueError(f'a name stands twice among {len(names)}: give each class one of its own')
    counts = np.bincount(labels, minlength=len(names)).astype(np.int32)
    if len(counts) != len(names) or not counts.all():
        raise ValueError(f'labels of {np.count_nonzero(counts)} classes for {len(names)} names; each needs examples')
    if not np.isfinite(embeddings).all():
        raise ValueError('embeddings have values that are not finite numbers')
    sums = np.zeros((len(names), embeddings.shape[1]))
    np.add.at(sums, labels, np.round(embeddings * GRID) / GRID)
    return checked_known_classes(KnownClasses(names, sums, counts, np.float32(1), np.float32(np.inf)))


def zero_shot_known_classes(prototypes: ArrayLike, names: Sequence[str]) -> KnownClasses:
    """Classes that are known by a prototype alone: [way, D].

    Weights of zero-shot learning make prototypes of attributes: `weights.embed_attributes(values)`.
    """
    return known_classes(prototypes, np.arange(len(names)), names)


def merge_known_classes(known: KnownClasses, other: KnownClasses) -> KnownClasses:
    """All classes of both, those of the same name as one; temperature and threshold are those of the first.

    This is also how examples are added: `merge_known_classes(known, known_classes(embeddings, labels, names))`.
    """
    if known.sums.shape[1] != other.sums.shape[1]:
        raise ValueError(f'embeddings of {known.sums.shape[1]} and {other.sums.shape[1]} dimensions cannot be merged')
    names = tuple(dict.fromkeys(known.names + other.names))
    number = {name: place for place, name in enumerate(names)}
    sums, counts = np.zeros((len(names), known.sums.shape[1])), np.zeros(len(names), np.int32)
    for part in (known, other):
        places = [number[name] for name in part.names]
        sums[places] += part.sums
        counts[places] += part.counts
    return checked_known_classes(dataclasses.replace(known, names=names, sums=sums, counts=counts))


def without_known_class(known: KnownClasses, name: str) -> KnownClasses:
    """All classes but one."""
    if name not in known.names:
        raise ValueError(f'there is no class {name!r} among {", ".join(known.names[:5])} ...')
    kept = [place for place, other in enumerate(known.names) if other != name]
    names = tuple(known.names[place] for place in kept)
    return dataclasses.replace(known, names=names, sums=known.sums[kept], counts=known.counts[kept])


def predict_known_classes(known: KnownClasses, embeddings: ArrayLike) -> Prediction:
    """The nearest class of each query and its probability (eq. 2): [Q, D]."""
    return _nearest_known_classes(jnp.asarray(embeddings), known.prototypes, known.temperature, known.limits)


@jax.jit
def _nearest_known_classes(embeddings, prototypes, temperature, limits):
    distances = pairwise(squared_euclidean)(embeddings, prototypes)
    distances = jnp.maximum(distances, 0)  # rounding can take it below
    probabilities = jax.nn.softmax(-distances / temperature)
    return Prediction(jnp.argmin(distances, 1), probabilities, distances, (distances > limits[None]).all(1))


def calibrated_known_classes(known: KnownClasses, embeddings: ArrayLike, labels: ArrayLike) -> KnownClasses:
    """The same classes with a temperature and a threshold that suit their own support set: [N, D], [N].

    Each example is classified with its class's prototype taken over the others. The temperature is the one of the
    lowest loss, in which a temperature far from 1, that of the encoder's training, counts as unlikely.

    The threshold lies between the distance of examples from their own class and that from the nearest other one, which
    is how far images of no class are; but it calls at most a tenth of the examples unknown. Where all classes have a
    single example there is nothing to leave out: the temperature stays, and the threshold is the one by which three
    quarters of the classes are unknown to the others.
    """
    embeddings, labels = np.asarray(embeddings, np.float32), np.asarray(labels)
    distances, counts = _leave_one_out(known, embeddings, labels)
    several = known.counts[labels] > 1
    threshold = _best_threshold(distances / (1 + 1 / counts), labels, several)
    temperature = _best_temperature(distances[several], labels[several]) if several.any() else known.temperature
    return dataclasses.replace(known, threshold=np.float32(threshold), temperature=np.float32(temperature))


def known_classes_as_linear_model(known: KnownClasses) -> tuple[jax.Array, jax.Array]:
    """Weights and biases whose softmax is the probabilities (eq. 8): w . z + b -> [way, D], [way]."""
    weights, biases = linear_classifier(jnp.asarray(known.prototypes))
    return weights / known.temperature, biases / known.temperature


def checked_known_classes(known: KnownClasses) -> KnownClasses:
    """The same classes, if their sums are exact and their other numbers possible."""
    if not np.abs(known.sums).max(initial=0) < LARGEST_SUM:
        raise ValueError(f'a sum of embeddings is not below {LARGEST_SUM:.0f}; scale the embeddings down')
    if known.counts.min(initial=1) < 1 or not known.threshold >= 0:  # counts that are too large have become negative
        raise ValueError('a count or the threshold is impossible')
    if not SMALLEST_TEMPERATURE <= known.temperature <= 1 / SMALLEST_TEMPERATURE:
        raise ValueError(f'the temperature is {known.temperature}, by which float32 cannot divide distances')
    return known


def _leave_one_out(known, embeddings, labels):
    """Distances of each example to all classes and the examples in each, itself left out of its own: [N, way] twice.

    Without it the mean of n examples is farther away, the squared distance by a factor of (n / (n - 1))**2.
    """
    embeddings, prototypes = embeddings.astype(np.float64), known.prototypes.astype(np.float64)
    # By NumPy, as JAX would compile a program for every number of examples and classes.
    squares = np.sum(embeddings**2, 1)[:, None] + np.sum(prototypes**2, 1)
    distances = np.maximum(squares - 2 * embeddings @ prototypes.T, 0)
    counts = np.tile(known.counts.astype(np.float64), (len(labels), 1))
    rows = np.arange(len(labels))
    own = counts[rows, labels]
    distances[rows, labels] *= np.square(own / np.maximum(own - 1, 1))
    counts[rows, labels] = np.maximum(own - 1, 1)
    return distances, counts


def _best_threshold(scores, labels, several):
    """Threshold on the distances, chosen as `calibrated_known_classes` says: [N, way], [N], [N] -> [].

    several: whether an example's class has others.
    """
    rows = np.arange(len(labels))
    own, others = scores[rows, labels][several], scores.copy()
    others[rows, labels] = np.inf
    nearest = others.min(1)
    if not several.any():
        if scores.shape[1] == 1:
            return np.inf
        return np.quantile(nearest, 1 - STRANGERS_FOUND)
    between = np.sqrt(np.median(own) * np.median(nearest)) if scores.shape[1] > 1 else 0.0
    return max(between, np.quantile(own, 1 - FALSE_ALARMS))


def _best_temperature(distances, labels):
    """The temperature under which the labels are likeliest, with a prior by which four times or a fourth is unusual."""

    def loss(temperature):
        logits = -distances / temperature
        logits = logits - logits.max(1, keepdims=True)
        own = logits[np.arange(len(labels)), labels]
        return np.sum(np.log(np.exp(logits).sum(1)) - own) + 0.5 * np.square(np.log2(temperature) / 2)

    return min(TEMPERATURES, key=loss)
