"""The weights that come with the package: what they say of themselves, and what they are good for."""

import pathlib

import jax
import pytest

import protojax
from experiments.publishing.records import published_records
from protojax.datasets import Split
from protojax.datasets.omniglot import load_omniglot
from protojax.datasets.sources.miniimagenet_files import open_miniimagenet_files
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.episodes import Dataset
from protojax.evaluation import embedder, episode_scorer
from protojax.pretrained import load_pretrained, shipped_names
from protojax.tasks import few_shot_task

SHOTS = {'omniglot-60way-1shot': 1, 'omniglot-60way-5shot': 5}
TRAINED_WITH = {name: ('omniglot', 60, shot) for name, shot in SHOTS.items()}
IMAGES = {
    f'miniimagenet-{way}way-{shot}shot{of}': (way, shot) for way, shot in ((20, 5), (30, 1)) for of in ('', '-paper')
}
TRAINED_WITH |= {name: ('miniimagenet', *sizes) for name, sizes in IMAGES.items()}
each = pytest.mark.parametrize('name', TRAINED_WITH)


def accuracy(weights, split, **sizes):
    """Of 1,000 episodes of a split, in percent."""
    task = few_shot_task(weights.encoder, split.items.shape[2:], **sizes)
    params = {'encoder': weights.params, 'classifier': {}}
    device = jax.devices()[:1]
    embedded = embedder(task.embed, device)(params, weights.batch_stats, Dataset(split.items, split.counts))
    return episode_scorer(task.classify, device, episodes=1000, **sizes)(params, embedded, jax.random.key(0)).accuracy


@each
def test_they_are_those_of_a_published_run(name):
    assert set(shipped_names()) == set(TRAINED_WITH)
    results, (experiment, *sizes) = load_pretrained(name).description['results'], TRAINED_WITH[name]
    assert [results['config']['way'], results['config']['shot']] == sizes
    assert any({**run, **results} == run for run in published_records(experiment))


def test_those_of_images_say_what_they_have_learned_from():
    described = {name: load_pretrained(name).description for name in IMAGES}
    assert all(own['trained_on'] == {'train': 64} for own in described.values())
    started = {name: own['started_from'] for name, own in described.items() if 'started_from' in own}
    assert set(started) == {'miniimagenet-20way-5shot', 'miniimagenet-30way-1shot'}
    assert started['miniimagenet-30way-1shot']['digest'] == described['miniimagenet-20way-5shot']['digest']
    first = started['miniimagenet-20way-5shot']['config']
    assert first['recipe'] == 'modern' and first['pretrain'] == 12_000


@each
def test_their_file_is_small_and_names_no_place(name):
    path = pathlib.Path(protojax.__file__).parent / 'weights' / f'{name}.safetensors'
    assert path.stat().st_size < 600_000
    assert not {'workdir', 'data_dir', 'source'} & set(load_pretrained(name).description['results']['config'])


@pytest.mark.parametrize('name', SHOTS)
def test_they_tell_characters_apart_that_nobody_has_ever_drawn(name):
    characters = handwriting(3, alphabets=(1, 1, 2), characters=10, drawings=20).test
    assert accuracy(load_pretrained(name), characters, way=5, shot=SHOTS[name], query=5) > 90


def test_they_reach_their_figures_on_omniglot(tmp_path, real_data):
    characters = load_omniglot(data='real', source=real_data('omniglot'), data_dir=tmp_path).test
    for name, shot in SHOTS.items():
        weights = load_pretrained(name)
        figure = weights.description['results']['test'][f'20-way {shot}-shot']
        measured = accuracy(weights, characters, way=20, shot=shot, query=15)
        assert measured == pytest.approx(figure['accuracy'], abs=0.5)  # three intervals of 1,000 episodes


def test_they_reach_their_figures_on_miniimagenet(real_data):
    with open_miniimagenet_files(real_data('miniimagenet')) as (splits, _):
        images = Split.from_classes({name: found.images() for name, found in splits['validation'].items()})
    for name in IMAGES:
        weights, shot = load_pretrained(name), TRAINED_WITH[name][2]
        figure = weights.description['results']['validation'][f'5-way {shot}-shot']
        measured = accuracy(weights, images, way=5, shot=shot, query=15)
        assert measured == pytest.approx(figure['accuracy'], abs=1.5)  # three intervals of 1,000 episodes
