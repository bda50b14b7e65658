import numpy as np
import pytest

from protojax.datasets.synthetic.handwriting import STROKES, handwriting, render_strokes, trace_strokes

SMALL = {'alphabets': (2, 1, 1), 'characters': 10, 'drawings': 6}


@pytest.fixture(scope='module')
def data():
    return handwriting(0, **SMALL)


def test_sizes_names_and_title(data):
    assert data.synthetic
    assert data.title == 'synthetic handwriting, not Omniglot'
    assert [split.items.shape for split in data[2:]] == [(n, 6, 28, 28, 1) for n in (20, 10, 10)]
    assert all(split.items.dtype == np.uint8 and (split.counts == 6).all() for split in data[2:])
    names = [name for split in data[2:] for name in split.names]
    assert names[10] == 'Invented01/character01'
    assert names == sorted(set(names))


def test_seed_names_the_data(data):
    again, other = handwriting(0, **SMALL), handwriting(1, **SMALL)
    for a, b, c in zip(data[2:], again[2:], other[2:], strict=True):
        np.testing.assert_array_equal(a.items, b.items)
        assert (a.items != c.items).any()


def test_no_two_drawings_are_alike(data):
    images = np.concatenate([split.items.reshape(-1, 28 * 28) for split in data[2:]])
    assert len(np.unique(images, axis=0)) == len(images)


def test_every_drawing_is_ink_on_an_empty_page(data):
    images = np.concatenate([split.items.reshape(-1, 28 * 28) for split in data[2:]])
    assert (images.max(1) > 200).all()
    assert ((images > 0).mean(1) < 0.5).all()
    assert 0.03 < (images / 255).mean() < 0.15


def test_drawings_of_a_character_resemble_each_other():
    """One drawing finds its character among 20 more often than chance (5 %), and leaves something to be learnt."""
    items = handwriting(2, alphabets=(1, 1, 4), characters=10, drawings=6).test.items.astype(float)
    items = items.reshape(len(items), 6, -1) / 255
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        chosen = items[rng.permutation(len(items))[:20]]
        distances = ((chosen[:, None, 1:] - chosen[None, :, :1]) ** 2).sum(-1)  # [20 characters, 20 supports, 5]
        found.append(distances.argmin(1) == np.arange(20)[:, None])
    assert 0.2 < np.mean(found) < 0.7


def test_render_is_the_distance_to_the_line():
    lines = np.full((1, STROKES, 13, 2), 0.5)
    lines[0, 0] = np.stack([np.linspace(4, 20, 13) / 28, np.full(13, 10.5 / 28)], -1)  # along the middle of row 10
    lines[0, 1] = 0  # not drawn
    image = render_strokes(lines, np.array([[True] + [False] * (STROKES - 1)]), np.array([2.0]))[0]
    assert image[10, 4:20].tolist() == [255] * 16
    assert image[9, 4:20].tolist() == image[11, 4:20].tolist() == [128] * 16
    assert image[:9].sum() == image[12:].sum() == image[:, 22:].sum() == image[0, 0] == 0


def test_render_misses_no_pixel_of_any_line():
    """Lines of all lengths, some of them partly or wholly outside the picture, against all distances in a loop."""
    rng = np.random.default_rng(0)
    lines = rng.uniform(-0.3, 1.3, (4, STROKES, 1, 2)) + rng.normal(0, 0.1, (4, STROKES, 13, 2))
    drawn, thickness = rng.random((4, STROKES)) < 0.7, np.array([1.0, 1.2, 1.6, 3.0])
    centers = np.stack(np.meshgrid(np.arange(28), np.arange(28)), -1) + 0.5  # x and y of each pixel
    for image, own, shown, width in zip(render_strokes(lines, drawn, thickness), lines, drawn, thickness, strict=True):
        distance = np.full((28, 28), np.inf)
        for a, b in ((28 * a, 28 * b) for line in own[shown] for a, b in zip(line[:-1], line[1:], strict=True)):
            along = np.clip((centers - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
            distance = np.minimum(distance, np.linalg.norm(centers - a - along[..., None] * (b - a), axis=-1))
        expected = 255 * np.clip(width / 2 + 0.5 - distance, 0, 1)
        assert 0 < (image > 0).mean() < 1
        np.testing.assert_allclose(image, expected, atol=0.6)


def test_trace_keeps_corners_where_sharp_and_rounds_them_elsewhere():
    pens = np.zeros((1, 2, 7, 2))
    pens[0, :, :, 0] = [0, 1, 2, 3, 3, 3, 3]
    pens[0, :, :, 1] = [0, 0, 0, 0, 1, 2, 3]
    sharp, rounded = trace_strokes(pens, np.array([[1.0, 0.0]]))[0]
    np.testing.assert_allclose(sharp[::2], pens[0, 0])
    np.testing.assert_allclose(rounded[[0, -1]], pens[0, 1, [0, -1]])
    np.testing.assert_allclose(rounded[6], [2.875, 0.125])  # the B-spline's 1/8, 3/4, 1/8 at the corner
