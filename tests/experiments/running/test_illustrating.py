"""What is drawn of a run."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.omniglot import RECIPE
from experiments.reporting import pictures
from experiments.running.config import ZeroShotConfig
from experiments.running.evaluating import evaluators
from experiments.running.illustrating import episode_of_every_item, illustrate, illustrations
from protojax.classifiers import by_prototypes
from protojax.datasets import Split
from protojax.episodes import Dataset

CONFIG = dataclasses.replace(RECIPE, test_way=(3,), test_shot=(1, 2), test_query=3, test_episodes=1)
COUNTS = np.array([6, 8, 5, 7], np.int32)
TASK = SimpleNamespace(classify=by_prototypes().apply, embed=None, unlabeled=0)


@pytest.fixture
def split():
    """Four classes of images, whose first pixel tells the class; padding would tell another one."""
    items = np.full((4, 8, 2, 2, 1), 255, np.uint8)
    for label, count in enumerate(COUNTS):
        items[label, :count] = 50 * label
        items[label, :count, 1, 1, 0] = np.arange(count)
    return Split(items, COUNTS, ('a', 'b', 'c', 'd'))


def embedded(split, mistaken=()):
    """The first pixel as embedding, that of another class for mistaken (class, item) pairs."""
    items = split.items[..., :1, :1, 0].reshape(4, 8, 1).astype(np.float32)
    for label, item in mistaken:
        items[label, item] = 0
    return Dataset(items, split.counts)


def drawn(split, data, monkeypatch, tmp_path, config=CONFIG, task=TASK):
    """The arguments of each function that draws."""
    calls = {}
    for name in ('curves', 'episode', 'mistakes'):
        monkeypatch.setattr(pictures, f'picture_of_{name}', lambda *args, name=name: calls.update({name: args}))
    workdir = SimpleNamespace(path=tmp_path, metrics=lambda: [])
    dict(illustrations(config, task, {}, data, split, 'title', workdir))
    return calls


def test_every_item_is_support_or_query_once():
    episode = episode_of_every_item(Dataset(np.zeros((4, 8, 1)), COUNTS), shot=2, query=3)
    places = np.concatenate([episode.support, episode.query])
    labels = np.concatenate([episode.support_labels, episode.query_labels])
    assert len(set(places)) == len(places) == 4 * 5
    assert (places // 8 == labels).all() and (places % 8 < COUNTS[labels]).all()
    further = episode_of_every_item(Dataset(np.zeros((4, 8, 1)), COUNTS), shot=1, query=2, unlabeled=2)
    assert len(set(np.concatenate([further.support, further.query, further.unlabeled]))) == 4 * 5
    everything = episode_of_every_item(Dataset(np.zeros((4, 8, 1)), COUNTS))
    assert len(everything.query) == COUNTS.sum() and len(everything.support) == 0


def test_images_and_predictions_belong_together(split, monkeypatch, tmp_path):
    """Items (1, 3) and (3, 5) look like class 0 to the encoder."""
    mistaken = {(1, 3), (3, 5)}
    calls = drawn(split, embedded(split, mistaken), monkeypatch, tmp_path)
    found, title = calls['mistakes']
    assert title == 'title, 4-way 2-shot' and found.names == split.names
    for image, label, predicted in zip(found.images, found.labels, found.predicted, strict=True):
        assert image[0, 0, 0] == 50 * label
        if (label, image[1, 1, 0]) in mistaken:
            assert predicted == 0
    support, labels, queries, title = calls['episode']
    assert title == 'title: a 3-way 1-shot episode'
    assert len(support) == 3 and len(queries.images) == 9
    numbers = np.array(['abcd'.index(name) for name in queries.names])
    assert (support[:, 0, 0, 0] == 50 * numbers[labels]).all()
    assert (queries.images[:, 0, 0, 0] == 50 * numbers[queries.labels]).all()


def test_the_episode_is_the_first_of_the_final_table(split, monkeypatch, tmp_path):
    """So with one test episode the table's accuracy is that of the picture."""
    rng = np.random.default_rng(0)
    noisy = embedded(split)
    noisy = noisy._replace(items=noisy.items + 40 * rng.normal(size=noisy.items.shape).astype(np.float32))
    test = evaluators(CONFIG, TASK, jax.devices()[:1]).test
    *_, queries, _ = drawn(split, noisy, monkeypatch, tmp_path)['episode']
    right = 100 * np.mean(queries.labels == queries.predicted)
    assert right < 100
    assert test({}, noisy)['3-way 1-shot'].accuracy == pytest.approx(right)


def test_features_have_no_episode_and_mistakes_by_name(split, monkeypatch, tmp_path):
    def classify(params, episode):
        return -abs(episode.query - episode.attributes[:, 0][None])

    attributes = 50 * np.arange(4, dtype=np.float32)[:, None]
    features = split._replace(items=split.items.astype(np.float32), attributes=attributes)
    data = embedded(split, {(2, 4)})._replace(attributes=attributes)
    task, config = SimpleNamespace(classify=classify), ZeroShotConfig()
    calls = drawn(features, data, monkeypatch, tmp_path, config, task)
    assert list(calls) == ['mistakes']
    found, title = calls['mistakes']
    assert found.images is None and title == 'title, zero-shot' and len(found.labels) == COUNTS.sum()
    wrong = found.labels != found.predicted
    assert found.labels[wrong].tolist() == [2] and found.predicted[wrong].tolist() == [0]


def test_a_failure_to_draw_is_a_line(split, monkeypatch, tmp_path, capsys):
    def fail(*_):
        raise RuntimeError('no ink\nat all')

    monkeypatch.setattr(pictures, 'picture_of_mistakes', fail)
    workdir = SimpleNamespace(path=tmp_path, metrics=lambda: [])
    names = illustrate(CONFIG, TASK, {}, embedded(split), split, 'title', workdir)
    assert names == ['episode.png'] and (tmp_path / 'episode.png').exists()
    assert capsys.readouterr().err == 'warning: not all pictures could be drawn (no ink)\n'
