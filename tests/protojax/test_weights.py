"""The weights that come with the package: what they say of themselves, and what they are good for."""

import functools

import jax
import pytest

from experiments.paper import records
from protojax import pretrained
from protojax.datasets import miniimagenet, omniglot
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.episodes import Dataset
from protojax.evaluation import embedder, episode_scorer
from protojax.learners import few_shot_learner
from protojax.pretrained import load_pretrained

TRAINED_WITH = {f'omniglot-60way-{shot}shot': ('omniglot', 60, shot) for shot in (1, 5)} | {
    f'miniimagenet-{way}way-{shot}shot{of}': ('miniimagenet', way, shot)
    for way, shot in ((20, 5), (30, 1))
    for of in ('', '-paper')
}


def accuracy(weights, split, **sizes):
    """Of 1,000 episodes of a split, in percent."""
    task = few_shot_learner(weights.encoder, split.items.shape[2:], **sizes)
    params = {'encoder': weights.params, 'classifier': {}}
    device = jax.devices()[:1]
    embedded = embedder(task.embed, device)(params, weights.batch_stats, Dataset(split.items, split.counts))
    return episode_scorer(task.classify, device, episodes=1000, **sizes)(
        params, weights.batch_stats, embedded, jax.random.key(0)
    ).accuracy


def test_they_are_those_of_published_runs_without_local_paths():
    assert set(pretrained.names()) == set(TRAINED_WITH)
    for name, (experiment, *sizes) in TRAINED_WITH.items():
        results = load_pretrained(name).description['results']
        assert [results['config']['way'], results['config']['shot']] == sizes
        assert any({**run, **results} == run for run in records.published(experiment))
        assert not {'workdir', 'data_dir', 'source'} & set(results['config'])
        assert pretrained.path(name).stat().st_size < 600_000


def test_they_classify_synthetic_characters():
    characters = handwriting(3, alphabets=(1, 1, 2), characters=10, drawings=20).test
    assert accuracy(load_pretrained('omniglot-60way-1shot'), characters, way=5, shot=1, query=5) > 90


@pytest.mark.parametrize(
    'name, split, way, tolerance', [('omniglot', 'test', 20, 0.5), ('miniimagenet', 'validation', 5, 1.5)]
)
def test_they_reach_their_figures_on_real_data(name, split, way, tolerance, tmp_path, real_data):
    load = {'omniglot': omniglot.load, 'miniimagenet': functools.partial(miniimagenet.load, splits=(split,))}[name]
    data = getattr(load(data='real', source=real_data(name), data_dir=tmp_path), split)
    for weights, shot in ((load_pretrained(key), shot) for key, (of, _, shot) in TRAINED_WITH.items() if of == name):
        figure = weights.description['results'][split][f'{way}-way {shot}-shot']
        measured = accuracy(weights, data, way=way, shot=shot, query=15)
        assert measured == pytest.approx(figure['accuracy'], abs=tolerance)  # three intervals of 1,000 episodes
