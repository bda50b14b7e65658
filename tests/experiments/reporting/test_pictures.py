"""Pictures of a run: what is in them."""

import numpy as np
import pytest

from experiments.reporting.confusion import confused_pairs
from experiments.reporting.drawing import encoded_drawing
from experiments.reporting.pictures import (
    PicturedQueries,
    _letter_in_picture,
    picture_of_curves,
    picture_of_episode,
    picture_of_mistakes,
)


def texts(figure):
    """All that is written in a figure."""
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def report(stage, split, episode, loss):
    return {'stage': stage, 'split': split, 'episode': episode, 'loss': loss, 'accuracy': 1 - loss / 10}


LINES = [
    *(report('search', 'train', episode, 3 / episode) for episode in (1, 2, 3, 4)),
    *(report('search', 'validation', episode, loss) for episode, loss in ((2, 2.0), (3, 0.5), (4, 0.7))),
    *(report('train', 'train', episode, 2 / episode) for episode in (1, 2, 3)),
]


def test_curves_have_a_row_for_each_stage_and_the_best_point_marked():
    figure = picture_of_curves(LINES, 'title')
    loss, accuracy, final, _ = figure.axes
    training, validation, best = loss.lines
    assert training.get_xydata().tolist() == [[1, 3], [2, 1.5], [3, 1], [4, 0.75]]
    assert validation.get_ydata().tolist() == [2.0, 0.5, 0.7]
    assert best.get_xydata().tolist() == [[3, 0.5]] and accuracy.lines[2].get_xydata().tolist() == [[3, 95]]
    assert 'episode 3' in best.get_label()
    assert len(final.lines) == 1  # the second stage has no validation
    assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('loss', [0.0, 1.0, float('nan')])
def test_curves_of_a_run_that_learned_nothing(loss):
    lines = [report('train', 'train', episode, loss) for episode in (1, 2)]
    assert encoded_drawing(picture_of_curves(lines, 'title'))


def images(count, channels=1):
    return np.arange(count * 16 * channels, dtype=np.uint8).reshape(count, 4, 4, channels)


@pytest.mark.parametrize('channels', [1, 3])
def test_an_episode_shows_each_image_once_and_marks_mistakes(channels):
    queries = PicturedQueries(
        np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), ('Korean/a', 'Korean/b'), images(4, channels)
    )
    figure = picture_of_episode(images(2, channels), np.array([0, 1]), queries, 'episode')
    (axes,) = figure.axes
    assert len(axes.images) == 6
    assert [text for text in texts(figure) if text in ('A', 'B', '✗ A', '✗ B')] == ['A', '✗ B', 'B', 'B']
    assert [patch.get_linewidth() > 1 for patch in axes.patches] == [False, False, True, False, False, False]
    assert '75.0 % of 4 queries right' in texts(figure)[0]
    assert encoded_drawing(figure)


def test_a_large_episode_is_shown_in_part():
    labels = np.repeat(np.arange(30), 20)
    queries = PicturedQueries(labels, labels, tuple(map(str, range(30))), images(600))
    (axes,) = picture_of_episode(images(30), np.arange(30), queries, 'episode').axes
    assert len(axes.images) == 20 * (1 + 15)


# Class 0 is taken for 1 in half of its items, 1 for 0 in a quarter, 2 for 0 in all of its items.
CONFUSED = PicturedQueries(
    np.array([0, 0, 1, 1, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 1, 0]), ('zero', 'one', 'two'), images(7)
)


def test_the_most_confused_pairs_come_first_and_each_once():
    assert confused_pairs(CONFUSED) == [(2, 0, 1.0), (0, 1, 0.5)]


def test_mistakes_as_images():
    figure = picture_of_mistakes(CONFUSED, 'title')
    assert [text for text in texts(figure) if '%' in text][1:] == ['100 %', '50 %']
    shown = [image.get_array()[0, 0] for image in figure.axes[0].images]
    of_class_0, of_class_1 = (
        [CONFUSED.images[k, 0, 0, 0] for k in (0, 1)],
        [CONFUSED.images[k, 0, 0, 0] for k in (2, 3, 4, 5)],
    )
    assert shown == [CONFUSED.images[6, 0, 0, 0], *of_class_0, CONFUSED.images[1, 0, 0, 0], *of_class_1]


def test_mistakes_by_name_where_there_are_no_images():
    (axes,) = picture_of_mistakes(CONFUSED._replace(images=None), 'title').axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ['two → zero', 'zero → one']
    assert [bar.get_width() for bar in axes.patches] == [100, 50]


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('drawn', [CONFUSED.images, None])
def test_no_mistakes_at_all(drawn):
    found = CONFUSED._replace(predicted=CONFUSED.labels, images=drawn)
    assert encoded_drawing(picture_of_mistakes(found, 'title'))


def test_letters():
    assert [_letter_in_picture(k) for k in (0, 25, 26, 27, 701)] == ['A', 'Z', 'AA', 'AB', 'ZZ']
