"""The command that draws the paper's figures."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import cub, figures, miniimagenet
from experiments.figures import FIGURES, run_figures
from experiments.publishing.records import record_command
from experiments.running.config import ConfigError
from experiments.running.identity import config_identity
from experiments.running.shown_classes import shown_birds, shown_classes
from protojax.datasets.synthetic.birds import birds
from protojax.datasets.synthetic.handwriting import handwriting

CONFIG = figures.FiguresConfig(data='synthetic')


@pytest.fixture
def characters(monkeypatch):
    """A small stand-in for Omniglot, with two test alphabets."""
    data = handwriting(0, alphabets=(1, 1, 2), characters=4, drawings=8)
    monkeypatch.setattr('experiments.running.shown_classes.load_omniglot', lambda **_: data)
    return data


def config(**values):
    return dataclasses.replace(CONFIG, **values)


def test_the_list_explains_every_figure(capsys):
    run_figures(config(list=True))
    listed = capsys.readouterr().out
    assert all(f'--figure={name}\n    ' in listed for name in figures.FIGURES)


@pytest.mark.parametrize('name, dataset', [('distance', ''), ('way', ''), ('way', 'omniglot'), ('curves', '')])
def test_published_figures_are_written_as_png_and_pdf(name, dataset, tmp_path, capsys):
    run_figures(config(figure=name, dataset=dataset, output=str(tmp_path)))
    name = f'{dataset}-{name}' if dataset else name
    assert (tmp_path / f'{name}.png').read_bytes().startswith(b'\x89PNG')
    assert (tmp_path / f'{name}.pdf').read_bytes().startswith(b'%PDF')
    assert f'{name}.png, {name}.pdf' in capsys.readouterr().out


def record(way, shot, **changes):
    """A run on miniImageNet that was never done."""
    config = dataclasses.replace(miniimagenet.RECIPE, way=way, shot=shot, **changes)
    score = {'accuracy': 51.0, 'ci95': 0.8, 'loss': 1.0, 'episodes': 600}
    made = {
        'dataset': 'miniImageNet',
        'synthetic': False,
        'seed': 0,
        'evaluated_on': 'test',
        'config': config_identity(config),
    }
    made['test'] = {setting: score for setting in ('5-way 1-shot', '5-way 5-shot')}
    return {'command': record_command(miniimagenet.EXPERIMENT, made), **made}


def test_a_published_run_is_a_bar_and_a_point_and_others_are_called_missing(monkeypatch):
    length = {'episodes': 1000}  # of the runs that the page of results shows
    runs = [record(20, 5, **length), record(20, 5, model='matching', distance='cosine', **length), record(5, 5)]
    monkeypatch.setattr(
        'experiments.publishing.records.published_records', lambda name: runs if name == 'miniimagenet' else []
    )
    bars = FIGURES['distance'](CONFIG)
    ours = [[bar.get_height() for bar in axes.patches if not bar.get_hatch()] for axes in bars.axes]
    assert ours == [[], [51.0, 51.0]]  # both are of 5-shot training
    lines = FIGURES['way'](CONFIG)
    points = [part.lines[0].get_xydata().tolist() for part in lines.axes[0].containers]
    assert [[20, 51.0]] in points
    for drawn in (bars, lines):
        assert 'what is missing of protojax was not measured yet' in drawn.get_supxlabel().replace('\n', ' ')
        shown = [text.get_text().replace('\n', ' ') for text in drawn.legends[0].get_texts()]
        assert 'protojax, 1,000 training episodes' in shown


def test_an_installed_package_without_results_draws_the_papers_figures(monkeypatch, tmp_path):
    monkeypatch.setattr('experiments.publishing.comparison.TEMPLATE', tmp_path / 'page.md')
    monkeypatch.setattr('experiments.publishing.records.PUBLISHED', tmp_path)
    assert 'protojax' not in [text.get_text() for text in FIGURES['distance'](CONFIG).legends[0].get_texts()]


def test_curves_are_named_by_the_flags_that_differ(monkeypatch):
    look = {'accuracy': 90.0, 'loss': 0.3}
    common = {'dataset': 'Omniglot', 'config': {'validation_way': 20, 'shot': 1}}
    commands = ('--way=60 --episodes=9', '--way=60 --shift=2 --episodes=5', '--way=60 --episodes=1')
    curves = ({'1000': look, '2000': look}, {'1000': look, '2000': look}, {})
    runs = [{**common, 'command': command, 'curve': curve} for command, curve in zip(commands, curves, strict=True)]
    monkeypatch.setattr(figures, 'published_records', lambda name: runs)
    drawn = FIGURES['curves'](CONFIG)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ['no further flags', '--shift=2']
    assert drawn.get_supxlabel() == (
        'Omniglot: 20-way 1-shot episodes of the validation classes; python -m experiments.omniglot --way=60'
    )


def test_a_stand_in_is_named_in_the_picture(characters):
    drawn = FIGURES['few-shot'](CONFIG)
    (axes,) = drawn.axes
    title = axes.get_title()
    assert 'synthetic handwriting, not Omniglot' in title and title.endswith('embedded by omniglot-60way-1shot')
    assert len(axes.images) == 3 * figures.SHOT + 1  # the support and the query


def test_classes_are_chosen_by_the_beginning_of_their_names(characters):
    alphabet = characters.test.names[-1].split('/')[0]
    found, _ = shown_classes(config(classes=alphabet))
    assert found.names == characters.test.names[4:] and len(found.points) == len(found.images) == 4 * 8
    np.testing.assert_array_equal(found.images.reshape(characters.test.items[4:].shape), characters.test.items[4:])
    with pytest.raises(ConfigError, match=f'--classes=Klingon is how no test class begins; choose one of .*{alphabet}'):
        shown_classes(config(classes='Klingon'))


def test_a_map_of_ones_own_images(tmp_path):
    pytest.importorskip('sklearn', reason='t-SNE is that of scikit-learn')
    drawings = handwriting(0, alphabets=(1, 1, 1), characters=3, drawings=6).test
    for name, items in zip('abc', drawings.items, strict=True):
        (tmp_path / name).mkdir()
        for number, item in enumerate(items):
            Image.fromarray(255 - item[..., 0]).save(tmp_path / name / f'{number}.png')
    drawn = FIGURES['tengwar'](config(folder=str(tmp_path)))
    assert tmp_path.name in drawn.get_suptitle() and len(drawn.axes[0].images) == 3 * 6 + 3
    (tmp_path / 'c' / '0.png').unlink()
    with pytest.raises(ConfigError, match='too few images; give 3 classes with 6 each, or more'):
        shown_classes(config(folder=str(tmp_path)))


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    monkeypatch.setattr(figures, 'shown_classes', None)  # nothing is loaded before
    with pytest.raises(ConfigError, match=r"pip install 'protojax\[figures\]'"):
        FIGURES['tengwar'](CONFIG)


@pytest.mark.slow
def test_zero_shot_learns_where_there_are_no_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        cub,
        'EXPERIMENT',
        cub.EXPERIMENT._replace(
            recipe=dataclasses.replace(cub.RECIPE, way=10, query=4, learning_rate=1e-3),
            load=lambda config: birds(classes=(30, 10, 10), items=6, features=64),
            stand_in_episodes=60,
        ),
    )
    one_device = lambda config, task: jax.devices()[:1]  # noqa: E731  (quicker than eight)
    monkeypatch.setattr('experiments.running.driver.devices_for', one_device)
    (axes,) = FIGURES['zero-shot'](config(compilation_cache='off')).axes
    assert 'not CUB' in axes.get_title()
    (weights,) = tmp_path.glob('runs/*/weights.safetensors')
    written = weights.stat().st_mtime_ns
    found, prototypes, _ = shown_birds(config(weights=str(weights)), cub.EXPERIMENT)
    assert len(found.points) == 60 and weights.stat().st_mtime_ns == written
    np.testing.assert_allclose(np.linalg.norm(prototypes, axis=1), 1, rtol=1e-5)
    with pytest.raises(ConfigError, match='are of no zero-shot model'):
        shown_birds(config(weights='omniglot-60way-1shot'), cub.EXPERIMENT)


@pytest.mark.parametrize(
    'values, message',
    [
        ({'figure': 'tengwra'}, '--figure=tengwra is unknown; choose few-shot'),
        ({'figure': 'speed', 'benchmark': '/no/such/file'}, 'there is no benchmark in /no/such/file'),
        ({'figure': 'curves', 'dataset': 'cub'}, 'no published run has a learning curve on --dataset=cub'),
        ({'figure': 'way', 'dataset': 'cub'}, '--figure=way is not of --dataset=cub'),
    ],
)
def test_errors_name_the_way_out(values, message, monkeypatch):
    monkeypatch.setattr(figures, 'published_records', lambda name: [{'curve': {}}])
    with pytest.raises(ConfigError, match=message):
        run_figures(config(**values))


def test_a_file_that_is_no_benchmark(tmp_path):
    file = tmp_path / 'benchmark.json'
    file.write_text(json.dumps({'sections': []}))
    with pytest.raises(ConfigError, match='there is no benchmark in'):
        FIGURES['speed'](config(benchmark=str(file)))
    uneven = {'section': 'omniglot', 'rows': [{'contender': 'protojax', 'ratio_to_first': None}]}
    file.write_text(json.dumps({'sections': [uneven]}))
    with pytest.raises(ConfigError, match='too uneven for ratios'):
        FIGURES['speed'](config(benchmark=str(file)))
