"""Plots of a run: their contents."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.drawing import run
from experiments.drawing.run import Queries, curves, episode, mistakes
from experiments.drawing.style import encoded_drawing
from experiments.own_images.confusion import confused_pairs
from protojax.classifiers import by_distance, prototypical
from protojax.episodes import Dataset
from protojax.evaluation import episode_scorer


def texts(figure):
    """All that is written in a figure."""
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def report(stage, split, episode, loss):
    return {'stage': stage, 'split': split, 'episode': episode, 'loss': loss, 'accuracy': 1 - loss / 10}


def test_curves_of_each_stage_and_the_episode_of_the_best_state():
    lines = [report('search', 'train', episode, 3 / episode) for episode in (1, 2, 3, 4)]
    lines += [report('search', 'validation', episode, loss) for episode, loss in ((2, 2.0), (3, 0.5), (4, 0.7))]
    lines += [report('train', 'train', episode, 2 / episode) for episode in (1, 2)]
    accuracy, loss = (axes.lines for axes in curves(lines, 'title').axes)
    found = {line.get_label(): line.get_xydata().tolist() for line in loss}
    assert found['search, train'] == [[1, 3], [2, 1.5], [3, 1], [4, 0.75]] and found['train, train'] == [[1, 2], [2, 1]]
    assert found['search, validation (lowest loss at 3)'] == [[2, 2], [3, 0.5], [4, 0.7]]
    assert accuracy[0].get_ydata().tolist() == [70, 85, 90, 92.5]


def images(count):
    return np.arange(count * 16, dtype=np.uint8).reshape(count, 4, 4, 1)


def test_an_episode_shows_each_image_once_and_marks_mistakes():
    queries = Queries(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), ('Korean/a', 'Korean/b'), images(4))
    figure = episode(images(2), np.array([0, 1]), queries, 'episode')
    (axes,) = figure.axes
    assert len(axes.images) == 6
    assert [text for text in texts(figure) if text in ('A', 'B', '✗ A', '✗ B')] == ['A', '✗ B', 'B', 'B']
    assert [patch.get_linewidth() > 1 for patch in axes.patches] == [False, False, True, False, False, False]
    assert '75.0 % of 4 queries correct' in texts(figure)[0] and encoded_drawing(figure)


# Class 0 is taken for 1 in half of its items, 1 for 0 in a quarter, 2 for 0 in all of its items.
CONFUSED = Queries(np.array([0, 0, 1, 1, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 1, 0]), ('zero', 'one', 'two'), images(7))


def test_the_most_confused_pairs_come_first_and_each_once():
    assert confused_pairs(CONFUSED) == [(2, 0, 1.0), (0, 1, 0.5)]
    figure = mistakes(CONFUSED, 'title')
    shown = [int(image.get_array().flat[0]) // 16 for image in figure.axes[0].images]
    assert shown == [6, 0, 1, 1, 2, 3, 4, 5]  # two, items of zero; the item of zero that is taken for one, items of one
    assert [text for text in texts(figure) if text in CONFUSED.names] == ['two', 'zero', 'zero', 'one']
    assert encoded_drawing(mistakes(CONFUSED._replace(predicted=CONFUSED.labels), 'no mistakes'))


COUNTS = np.array([6, 8, 5, 7], np.int32)
SIZES, KEY = SimpleNamespace(test_way=(3,), test_shot=(1, 2), test_query=3), jax.random.key(0)


def classify(params, batch_stats, episode):
    return by_distance(prototypical).apply(params, episode)


LEARNER = SimpleNamespace(classify=classify, zero_shot=False, adapts=False, unlabeled=0)


@pytest.fixture
def split():
    """Four classes of images, whose first pixel gives the class; padding would be another class."""
    items = np.full((4, 8, 2, 2, 1), 255, np.uint8)
    for label, count in enumerate(COUNTS):
        items[label, :count] = 50 * label
        items[label, :count, 1, 1, 0] = np.arange(count)
    return Dataset(items, COUNTS, names=('a', 'b', 'c', 'd'))


def embedded(split):
    """The first pixel as embedding."""
    return Dataset(split.items[..., :1, :1, 0].reshape(4, 8, 1).astype(np.float32), split.counts)


def test_images_and_predictions_belong_together(split, monkeypatch, tmp_path):
    """Items (1, 3) and (3, 5) look like class 0 to the encoder. The episode is the first of the final table."""
    data, mistaken, calls = embedded(split), {(1, 3), (3, 5)}, {}
    for label, item in mistaken:
        data.items[label, item] = 0
    for name in ('episode', 'mistakes'):
        monkeypatch.setattr(run, name, lambda *args, name=name: calls.update({name: args}))
    dict(run.figures(SimpleNamespace(path=tmp_path), 'title', split, data, LEARNER, ({}, {}), SIZES, KEY))
    found, title = calls['mistakes']
    assert title == 'title, 4-way 2-shot' and sorted(found.names) == ['a', 'b', 'c', 'd'] and len(found.labels) == 12
    for image, label, predicted in zip(found.images, found.labels, found.predicted, strict=True):
        number = 'abcd'.index(found.names[label])
        assert image[0, 0, 0] == 50 * number
        assert found.names[predicted] == 'a' or (number, image[1, 1, 0]) not in mistaken
    support, labels, queries, title = calls['episode']
    assert title == 'title: a 3-way 1-shot episode' and len(support) == 3 and len(queries.images) == 9
    numbers = np.array(['abcd'.index(name) for name in queries.names])
    assert (support[:, 0, 0, 0] == 50 * numbers[labels]).all()
    assert (queries.images[:, 0, 0, 0] == 50 * numbers[queries.labels]).all()
    score = episode_scorer(classify, jax.devices()[:1], way=3, shot=1, query=3, episodes=1)
    accuracy = 100 * np.mean(queries.labels == queries.predicted)
    assert score({}, {}, data, KEY).accuracy == pytest.approx(accuracy)


def test_a_failure_to_draw_is_a_warning(split, monkeypatch, tmp_path, capsys):
    def fail(*_):
        raise RuntimeError('no ink\nat all')

    monkeypatch.setattr(run, 'mistakes', fail)
    workdir = SimpleNamespace(path=tmp_path)
    names = run.draw(workdir, 'title', split, embedded(split), LEARNER, ({}, {}), SIZES, KEY)
    assert names == ['episode.png'] and (tmp_path / 'episode.png').exists()
    assert capsys.readouterr().err == 'warning: not all plots could be drawn (no ink)\n'
