"""The stand-ins for miniImageNet and CUB: sizes, determinism, and a task that is neither trivial nor hopeless."""

import numpy as np

from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.shapes import draw_shape_kind, inside_shape, shapes

SMALL = {'classes': (8, 3, 5), 'items': 6}


def test_shapes_have_the_form_of_miniimagenet():
    data = shapes(**SMALL)
    assert data.synthetic and data.title == 'synthetic shapes, not miniImageNet'
    for split, classes in zip((data.train, data.validation, data.test), SMALL['classes'], strict=True):
        assert split.items.shape == (classes, 6, 84, 84, 3) and split.items.dtype == np.uint8
        assert split.counts.tolist() == [6] * classes
        assert len(set(split.names)) == classes


def test_shapes_follow_from_the_seed():
    one, same, other = shapes(1, **SMALL), shapes(1, **SMALL), shapes(2, **SMALL)
    np.testing.assert_array_equal(one.train.items, same.train.items)
    assert one.train.names == same.train.names
    assert (one.train.items != other.train.items).mean() > 0.5


def test_images_of_shapes_all_differ():
    data = shapes(**SMALL)
    images = np.concatenate(
        [split.items.reshape(-1, 84 * 84 * 3) for split in (data.train, data.validation, data.test)]
    )
    assert len(np.unique(images, axis=0)) == len(images)


def test_a_shape_covers_what_its_outline_says():
    """A four-pointed star covers its middle, reaches to radius 1 at its points, and not as far between them."""
    kind = draw_shape_kind(np.random.default_rng(0))._replace(corners=4, depth=0.3, stretch=1.0)
    angle = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    u, v = np.cos(angle), np.sin(angle)
    at_corners, between = slice(0, None, 2), slice(1, None, 2)
    for radius, expected in ((0.3, (True, True)), (0.9, (True, False)), (1.1, (False, False))):
        found = inside_shape(kind, radius * u, radius * v)
        assert (found[at_corners] == expected[0]).all() and (found[between] == expected[1]).all()


def test_pixels_do_not_tell_the_classes_of_shapes_apart():
    """One-shot nearest neighbour on pixels is far from perfect (chance 20 %): there is something to learn."""
    items = shapes(classes=(1, 1, 5), items=40).test.items[:, :, ::4, ::4].reshape(5, 40, -1).astype(np.float32)
    queries = items[:, 20:].reshape(100, -1)
    distances = ((queries[:, None, None] - items[None, :, :20]) ** 2).sum(-1)  # [queries, classes, shots]
    found = distances.argmin(1)  # for each of the 20 choices of one shot per class
    assert 0.1 < (found == np.repeat(np.arange(5), 20)[:, None]).mean() < 0.5


def test_birds_have_the_form_of_cub():
    data = birds(classes=(4, 2, 3), items=5, features=16)
    assert data.synthetic and data.title == 'synthetic birds, not CUB'
    for split, classes in zip((data.train, data.validation, data.test), (4, 2, 3), strict=True):
        assert split.items.shape == (classes, 5, 10, 16) and split.items.dtype == np.float32
        assert split.attributes.shape == (classes, 312) and split.attributes.dtype == np.float32
        assert split.counts.tolist() == [5] * classes
        assert split.attributes.min() >= 0 and split.attributes.max() <= 100
        np.testing.assert_allclose(split.attributes.sum(1), 2800, rtol=1e-4)  # 28 properties
    assert len({*data.train.names, *data.validation.names, *data.test.names}) == 9


def test_birds_follow_from_the_seed():
    one, same, other = (birds(seed, classes=(4, 2, 3), items=5, features=16) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.test.items, same.test.items)
    np.testing.assert_array_equal(one.test.attributes, same.test.attributes)
    assert not np.array_equal(one.test.items, other.test.items)


def test_crops_of_a_bird_are_more_alike_than_birds_and_these_than_classes():
    items = birds(classes=(20, 1, 1), items=10, features=256).train.items
    crops = np.linalg.norm(items[:, :, 0] - items[:, :, 1], axis=-1)
    mates = np.linalg.norm(items[:, 0, 0] - items[:, 1, 1], axis=-1)
    others = np.linalg.norm(items[1:, 0, 0] - items[:-1, 1, 1], axis=-1)
    assert crops.min() > 0 and crops.mean() < mates.mean() < others.mean()


def zero_shot(data):
    """Accuracy of ridge regression from features to attributes, learnt on the training classes, on the test classes."""
    train, test = data.train, data.test
    x = train.items[:, :, 0].reshape(-1, train.items.shape[-1])
    a = np.repeat(train.attributes, train.items.shape[1], 0)
    weights = np.linalg.solve(
        (x - x.mean(0)).T @ (x - x.mean(0)) + 1000 * np.eye(x.shape[1]), (x - x.mean(0)).T @ (a - a.mean(0))
    )
    guess = (test.items[:, :, 0] - x.mean(0)) @ weights
    known = test.attributes - a.mean(0)
    cosine = guess @ known.T / np.linalg.norm(guess, axis=-1, keepdims=True) / np.linalg.norm(known, axis=-1)
    return (cosine.argmax(-1) == np.arange(len(known))[:, None]).mean()


def test_linear_zero_shot_on_birds_is_between_chance_and_perfect():
    easy, usual = (zero_shot(birds(classes=(100, 1, 50), items=10, features=256, noise=noise)) for noise in (0.3, 1.0))
    assert 0.15 < usual < 0.8  # chance is 0.02
    assert easy > usual + 0.1
