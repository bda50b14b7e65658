import numpy as np
import pytest

from protojax.datasets.synthetic.handwriting import STROKES, handwriting, render, trace

SMALL = {'alphabets': (2, 1, 1), 'characters': 10, 'drawings': 6}


@pytest.fixture(scope='module')
def data():
    return handwriting(0, **SMALL)


def test_sizes_names_title_and_seed(data):
    assert data.synthetic and data.title == 'synthetic handwriting, not Omniglot'
    assert [split.items.shape for split in data[2:]] == [(n, 6, 28, 28, 1) for n in (20, 10, 10)]
    names = [name for split in data[2:] for name in split.names]
    assert names[10] == 'Invented01/character01' and names == sorted(set(names))
    images = np.concatenate([split.items.reshape(-1, 28 * 28) for split in data[2:]])
    assert len(np.unique(images, axis=0)) == len(images) and 0.03 < images.mean() / 255 < 0.15
    for a, b, c in zip(data[2:], handwriting(0, **SMALL)[2:], handwriting(1, **SMALL)[2:], strict=True):
        assert a.items.dtype == np.uint8 and (a.counts == 6).all()
        np.testing.assert_array_equal(a.items, b.items)
        assert (a.items != c.items).any()


def test_render_misses_no_pixel_of_any_line():
    """Lines of all lengths, some of them partly or wholly outside the picture, against all distances in a loop."""
    rng = np.random.default_rng(0)
    lines = rng.uniform(-0.3, 1.3, (4, STROKES, 1, 2)) + rng.normal(0, 0.1, (4, STROKES, 13, 2))
    drawn, thickness = rng.random((4, STROKES)) < 0.7, np.array([1.0, 1.2, 1.6, 3.0])
    centers = np.stack(np.meshgrid(np.arange(28), np.arange(28)), -1) + 0.5  # x and y of each pixel
    for image, own, shown, width in zip(render(lines, drawn, thickness), lines, drawn, thickness, strict=True):
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
    sharp, rounded = trace(pens, np.array([[1.0, 0.0]]))[0]
    np.testing.assert_allclose(sharp[::2], pens[0, 0])
    np.testing.assert_allclose(rounded[[0, -1]], pens[0, 1, [0, -1]])
    np.testing.assert_allclose(rounded[6], [2.875, 0.125])  # the B-spline's 1/8, 3/4, 1/8 at the corner
