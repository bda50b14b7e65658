"""The command that draws the paper's figures."""

import dataclasses
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import cub
from experiments.figures import __main__ as figures
from experiments.figures import classes
from experiments.figures.__main__ import FIGURES
from experiments.running.config import ConfigError
from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.handwriting import handwriting

CONFIG = figures.FiguresConfig(data='synthetic')


@pytest.fixture
def characters(monkeypatch):
    """A small synthetic data set instead of Omniglot, with two test alphabets."""
    data = handwriting(0, alphabets=(1, 1, 2), characters=4, drawings=8)
    monkeypatch.setattr(classes.omniglot, 'load', lambda **_: data)
    return data


def config(**values):
    return dataclasses.replace(CONFIG, **values)


def test_figures_are_written_as_png_and_pdf(tmp_path):
    figures.run(config(figure='way', dataset='omniglot', output=str(tmp_path)))
    assert (tmp_path / 'omniglot-way.png').read_bytes().startswith(b'\x89PNG')
    assert (tmp_path / 'omniglot-way.pdf').read_bytes().startswith(b'%PDF')
    assert all(FIGURES[name](CONFIG).axes for name in ('distance', 'curves', 'speed'))  # of the published results


def test_classes_are_chosen_by_a_prefix(characters):
    """And synthetic data are named in the picture."""
    (axes,) = FIGURES['few-shot'](CONFIG).axes
    assert 'synthetic handwriting, not Omniglot' in axes.get_title()
    assert len(axes.images) == 3 * figures.SHOT + 1  # the support and the query
    alphabet = characters.test.names[-1].split('/')[0]
    found, _ = classes.images(config(classes=alphabet))
    assert found.names == characters.test.names[4:] and len(found.points) == len(found.images) == 4 * 8
    np.testing.assert_array_equal(found.images.reshape(characters.test.items[4:].shape), characters.test.items[4:])
    with pytest.raises(ConfigError, match=f'no test class starts with --classes=Klingon; choose one of .*{alphabet}'):
        classes.images(config(classes='Klingon'))


def test_a_map_of_custom_images(tmp_path, monkeypatch):
    pytest.importorskip('sklearn', reason='t-SNE requires scikit-learn')
    drawings = handwriting(0, alphabets=(1, 1, 1), characters=3, drawings=6).test
    for name, items in zip('abc', drawings.items, strict=True):
        (tmp_path / name).mkdir()
        for number, item in enumerate(items):
            Image.fromarray(255 - item[..., 0]).save(tmp_path / name / f'{number}.png')
    drawn = FIGURES['tengwar'](config(folder=str(tmp_path)))
    assert tmp_path.name in drawn.get_suptitle() and len(drawn.axes[0].images) == 3 * 6 + 3
    (tmp_path / 'c' / '0.png').unlink()
    with pytest.raises(ConfigError, match='at least 3 classes with 6 images each'):
        classes.images(config(folder=str(tmp_path)))
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    with pytest.raises(ConfigError, match=r"pip install 'protojax\[figures\]'"):
        FIGURES['tengwar'](CONFIG)


@pytest.mark.slow
def test_zero_shot_trains_if_there_are_no_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {**cub.EXPERIMENT.defaults, 'way': 10, 'query': 4, 'learning_rate': 1e-3}
    load = lambda config: birds(classes=(30, 10, 10), items=6, features=64)  # noqa: E731
    monkeypatch.setattr(cub, 'EXPERIMENT', cub.EXPERIMENT._replace(defaults=small, load=load, synthetic_episodes=60))
    one_device = lambda config, task: jax.devices()[:1]  # noqa: E731  (faster than eight)
    monkeypatch.setattr('experiments.running.placement.devices_for', one_device)
    (axes,) = FIGURES['zero-shot'](config(compilation_cache='off')).axes
    assert 'not CUB' in axes.get_title()
    (weights,) = tmp_path.glob('runs/*/weights.safetensors')
    found, prototypes, _ = classes.birds(config(weights=str(weights)), cub.EXPERIMENT)
    assert len(found.points) == 60
    np.testing.assert_allclose(np.linalg.norm(prototypes, axis=1), 1, rtol=1e-5)
    with pytest.raises(ConfigError, match='has no attribute encoder'):
        classes.birds(config(weights='omniglot-60way-1shot'), cub.EXPERIMENT)


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'figure': 'curves', 'dataset': 'cub'}, 'no published run on --dataset=cub has a learning curve'),
        ({'figure': 'way', 'dataset': 'cub'}, '--figure=way does not support --dataset=cub'),
    ],
)
def test_errors_have_a_hint(values, message, monkeypatch, tmp_path):
    (tmp_path / 'list.json').write_text('[]')
    with pytest.raises(ConfigError, match='list.json cannot be read'):
        figures.run(config(figure='speed', benchmark=str(tmp_path / 'list.json')))
    monkeypatch.setattr(figures.records, 'published', lambda name: [{'curve': {}}])
    with pytest.raises(ConfigError, match=message):
        figures.run(config(**values))
