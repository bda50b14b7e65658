"""Augmentations: which images change and how, and that only training sees the changes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from protojax import augmentation
from protojax.episodes import Dataset
from protojax.learners import few_shot_learner

LABELS = np.repeat(np.arange(6), 4)
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 10, 10, 1), np.uint8)


def mirrored(function, seed):
    """Return which of the images are mirrored; the others must be unchanged: bool [24]."""
    after = np.asarray(function(jax.random.key(seed), IMAGES, LABELS, way=6))
    flipped, same = ((after == images).all((1, 2, 3)) for images in (IMAGES[:, :, ::-1], IMAGES))
    assert (flipped ^ same).all()
    return flipped


def test_mirror_changes_entire_classes_and_flip_single_images():
    classes = np.stack([mirrored(augmentation.mirror, seed) for seed in range(40)]).reshape(40, 6, 4)
    assert (classes == classes[:, :, :1]).all()
    assert 90 < classes[:, :, 0].sum() < 150  # of 240, with a standard deviation of 8
    images = mirrored(augmentation.flip, 0)
    assert 4 < images.sum() < 20 and len(set(map(tuple, images.reshape(6, 4)))) > 2


def test_shift_moves_each_image_by_whole_pixels():
    images = np.pad(IMAGES[:, 2:-2, 2:-2], ((0, 0), (2, 2), (2, 2), (0, 0)))  # a margin, so that rolling loses nothing
    moved = np.asarray(augmentation.shift(jax.random.key(0), images, LABELS, way=6, pixels=2))
    moves, found = [(y, x) for y in range(-2, 3) for x in range(-2, 3)], []
    for before, after in zip(images, moved, strict=True):
        (move,) = (move for move in moves if np.array_equal(np.roll(before, move, (0, 1)), after))
        found.append(move)
    assert {y for y, _ in found} == {x for _, x in found} == {-2, -1, 0, 1, 2}


def test_jitter_by_hand():
    images = np.random.default_rng(1).integers(40, 60, (3, 4, 4, 3), np.uint8)
    factors = np.asarray(jax.random.uniform(jax.random.key(2), (3, 3, 1, 1, 1), minval=0.6, maxval=1.4))
    images[factors[0].argmax()] = 250
    found = np.asarray(augmentation.jitter(jax.random.key(2), images, np.zeros(3, int), way=1, strength=0.4))
    for image, after, (brightness, contrast, saturation) in zip(images, found, factors.reshape(3, 3).T, strict=True):
        x = brightness * image
        x = x.mean() + contrast * (x - x.mean())
        grey = x.mean(-1, keepdims=True)
        np.testing.assert_allclose(after, np.minimum(grey + saturation * (x - grey), 255), rtol=1e-4)
    assert np.ptp(factors) > 0.1 and found.max() == 255


def test_augmentations_have_separate_keys():
    def draw(key, drawn, labels, *, way):
        return [*drawn, jax.random.uniform(key)]

    first, second = augmentation.apply((draw, draw), jax.random.key(1), [], LABELS, way=6)
    assert first != second


class Pixels(nn.Module):
    """An encoder without parameters: [N, H, W, C] -> [N, H W C]."""

    @nn.compact
    def __call__(self, images, *, train=False, axis_name=None):
        return images.reshape(len(images), -1) / 255


def test_training_sees_the_augmented_images_and_evaluation_does_not():
    def label_in_a_pixel(key, images, labels, *, way):  # makes the classes trivial to distinguish
        return 255 * jax.nn.one_hot(labels, 100).reshape(-1, 10, 10, 1)

    blank = Dataset(jnp.zeros((8, 6, 10, 10, 1), jnp.uint8), jnp.full(8, 6))
    for augmentations, accuracy in (((), 0.2), ((augmentation.mirror, label_in_a_pixel), 1.0)):
        sizes = {'way': 5, 'shot': 1, 'query': 2}
        learner = few_shot_learner(Pixels(), (10, 10, 1), **sizes, augmentations=augmentations)
        _, (_, metrics) = jax.jit(learner.loss)(*learner.init(jax.random.key(0)), blank, jax.random.key(1))
        np.testing.assert_allclose(metrics['accuracy'], accuracy, rtol=1e-6)
        np.testing.assert_allclose(learner.embed({'encoder': {}}, {}, IMAGES), IMAGES.reshape(24, -1) / 255, rtol=1e-6)
