"""Augmentation: which classes are mirrored, where images move, and what training and evaluation see of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax import augmentation
from protojax.encoders import Conv4
from protojax.episodes import Dataset
from protojax.tasks import few_shot_task

LABELS = np.repeat(np.arange(6), 4)
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 28, 28, 1), np.uint8)


def test_all_examples_of_a_class_are_mirrored_or_none():
    mirrored = 0
    for seed in range(40):
        images = np.asarray(augmentation.mirror(jax.random.key(seed), IMAGES, LABELS, way=6))
        for label in range(6):
            before, after = IMAGES[label == LABELS], images[label == LABELS]
            flipped = np.array_equal(after, before[:, :, ::-1])
            assert flipped or np.array_equal(after, before)
            mirrored += flipped
    assert 90 < mirrored < 150  # of 240, with a deviation of 8


def test_a_key_names_the_result():
    mirror = jax.jit(augmentation.mirror, static_argnames='way')
    one, same, other = (np.asarray(mirror(jax.random.key(seed), IMAGES, LABELS, way=6)) for seed in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_images_move_by_whole_pixels_each_on_its_own():
    images = np.pad(IMAGES[:, 2:-2, 2:-2], ((0, 0), (2, 2), (2, 2), (0, 0)))  # a margin, so that rolling loses nothing
    moved = np.asarray(augmentation.shift(jax.random.key(0), images, LABELS, way=6, pixels=2))
    moves = [(y, x) for y in range(-2, 3) for x in range(-2, 3)]
    found = [
        [move for move in moves if np.array_equal(np.roll(before, move, (0, 1)), after)]
        for before, after in zip(images, moved, strict=True)
    ]
    assert all(len(move) == 1 for move in found)
    assert {y for ((y, _),) in found} == {x for ((_, x),) in found} == {-2, -1, 0, 1, 2}


def test_what_comes_in_from_outside_is_blank():
    white = np.full((50, 28, 28, 1), 255, np.uint8)
    moved = np.asarray(augmentation.shift(jax.random.key(0), white, np.zeros(50, int), way=1, pixels=1))
    assert moved.dtype == np.uint8
    assert set(np.unique(moved)) == {0, 255}
    assert (moved[:, 1:-1, 1:-1] == 255).all()


def test_flips_are_of_single_images():
    flipped = np.asarray(augmentation.flip(jax.random.key(0), IMAGES, LABELS, way=6))
    mirrored = [np.array_equal(after, before[:, ::-1]) for before, after in zip(IMAGES, flipped, strict=True)]
    assert 4 < sum(mirrored) < 20
    assert len({tuple(mirrored[4 * k : 4 * k + 4]) for k in range(6)}) > 2  # not all of a class alike
    assert all(m or np.array_equal(a, b) for m, a, b in zip(mirrored, IMAGES, flipped, strict=True))


def test_jitter_by_hand():
    images = np.random.default_rng(1).integers(40, 60, (3, 4, 4, 3), np.uint8)
    found = np.asarray(augmentation.jitter(jax.random.key(2), images, np.zeros(3, int), way=1, strength=0.4))
    factors = np.asarray(jax.random.uniform(jax.random.key(2), (3, 3, 1, 1, 1), minval=0.6, maxval=1.4))
    for image, after, (brightness, contrast, saturation) in zip(images, found, factors.reshape(3, 3).T, strict=True):
        x = brightness * image
        x = x.mean() + contrast * (x - x.mean())
        grey = x.mean(-1, keepdims=True)
        np.testing.assert_allclose(after, grey + saturation * (x - grey), rtol=1e-4)
    assert np.ptp(factors) > 0.1
    bright = augmentation.jitter(
        jax.random.key(2), np.full((9, 4, 4, 3), 250, np.uint8), LABELS[:9], way=6, strength=0.4
    )
    assert bright.max() == 255


def test_each_change_has_random_numbers_of_its_own():
    def noise(key, images, labels, *, way):
        noises.append(np.asarray(jax.random.normal(key, (3,))))
        return images

    noises = []
    augmentation.augmented((noise, noise), jax.random.key(1), IMAGES, LABELS, way=6)
    assert not np.array_equal(*noises)


def test_training_sees_the_changed_images_and_evaluation_does_not():
    def label_in_ink(key, images, labels, *, way):  # makes classes trivial to tell apart
        rows = jax.nn.one_hot(labels * 5 // way * 5 + 2, images.shape[1])
        return 255 * jnp.broadcast_to(rows[:, :, None, None], images.shape)

    blank = Dataset(jnp.zeros((8, 6, 28, 28, 1), jnp.uint8), jnp.full(8, 6))
    accuracies, embeddings = [], []
    for changes in ((), (augmentation.mirror, label_in_ink)):
        task = few_shot_task(
            Conv4(filters=8, kernels=False), (28, 28, 1), way=5, shot=1, query=2, augmentations=changes
        )
        params, batch_stats = jax.jit(task.initialize)(jax.random.key(0))
        _, (_, metrics) = jax.jit(task.loss)(params, batch_stats, blank, jax.random.key(1))
        accuracies.append(float(metrics['accuracy']))
        embeddings.append(np.asarray(jax.jit(task.embed)(params, batch_stats, IMAGES)))
    assert accuracies == [pytest.approx(0.2), pytest.approx(1.0)]
    assert np.array_equal(*embeddings)
