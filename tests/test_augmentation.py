"""Augmentation: which classes are mirrored, how far a drawing may be moved, and what training sees of it."""

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


def blob():
    """Ink of 5x3 pixels in the middle."""
    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[0, 12:17, 13:16] = 200
    return np.repeat(image, 64, 0)


def ink_and_centre(images):
    weights = np.asarray(images, np.float64)[..., 0]
    ink = weights.sum((1, 2))
    y, x = np.mgrid[:28, :28]
    return ink, np.stack([(weights * y).sum((1, 2)), (weights * x).sum((1, 2))], -1) / ink[:, None]


def test_nothing_moves_where_nothing_is_allowed(monkeypatch):
    for name in ('SLANT', 'STRETCH', 'SHIFT'):
        monkeypatch.setattr(augmentation, name, 0.0)
    images = augmentation.redraw(jax.random.key(0), IMAGES, LABELS, way=6)
    np.testing.assert_allclose(images, IMAGES, atol=0.01)


def test_a_shift_keeps_the_ink_and_stays_within_its_bound(monkeypatch):
    monkeypatch.setattr(augmentation, 'SLANT', 0.0)
    monkeypatch.setattr(augmentation, 'STRETCH', 0.0)
    images = blob()
    ink, centre = ink_and_centre(augmentation.redraw(jax.random.key(0), images, None, way=1))
    ink_before, centre_before = ink_and_centre(images)
    moved = np.abs(centre - centre_before)
    np.testing.assert_allclose(ink, ink_before, rtol=1e-4)
    assert moved.max() <= augmentation.SHIFT + 1e-3
    assert moved.max() > 0.8 * augmentation.SHIFT  # of 128 draws
    assert len(np.unique(moved.round(6))) > 100  # each image goes its own way


@pytest.mark.parametrize('name', ['SLANT', 'STRETCH'])
def test_slant_and_stretch_keep_the_middle(name, monkeypatch):
    for other in {'SLANT', 'STRETCH', 'SHIFT'} - {name}:
        monkeypatch.setattr(augmentation, other, 0.0)
    images = blob()
    changed = augmentation.redraw(jax.random.key(0), images, None, way=1)
    (_, centre), (_, before) = ink_and_centre(changed), ink_and_centre(images)
    assert np.abs(centre - before).max() < 0.2
    assert np.abs(np.asarray(changed) - images).max() > 20


@pytest.mark.parametrize('name', ['mirror', 'redraw', 'both'])
def test_a_key_names_the_result(name):
    change = augmentation.AUGMENTATIONS[name]
    one, same, other = (np.asarray(jax.jit(change, static_argnames='way')(jax.random.key(s), IMAGES, LABELS, way=6))
                        for s in (0, 0, 1))  # fmt: skip
    assert one.shape == IMAGES.shape
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_training_sees_the_changed_images_and_evaluation_does_not():
    def label_in_ink(key, images, labels, *, way):  # makes classes trivial to tell apart
        rows = jax.nn.one_hot(labels * 5 // way * 5 + 2, images.shape[1])
        return 255 * jnp.broadcast_to(rows[:, :, None, None], images.shape)

    blank = Dataset(jnp.zeros((8, 6, 28, 28, 1), jnp.uint8), jnp.full(8, 6))
    accuracies, embeddings = [], []
    for augment in (None, label_in_ink):
        task = few_shot_task(Conv4(kernels=False), (28, 28, 1), way=5, shot=1, query=2, augment=augment)
        params, batch_stats = task.initialize(jax.random.key(0))
        _, (_, metrics) = task.loss(params, batch_stats, blank, jax.random.key(1))
        accuracies.append(float(metrics['accuracy']))
        embeddings.append(np.asarray(task.embed(params, batch_stats, IMAGES)))
    assert accuracies == [pytest.approx(0.2), pytest.approx(1.0)]
    assert np.array_equal(*embeddings)
