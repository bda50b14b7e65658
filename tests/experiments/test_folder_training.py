"""Training on a folder of drawings, from its images to a model that experiments.classify takes."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from experiments import folder
from experiments.classify import ClassifyConfig, run_classify
from experiments.running import driver
from experiments.running.config import ConfigError
from experiments.running.driver import run_experiment
from experiments.running.flags import message_with_flags, parse_flags
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import DataError
from protojax.pretrained import load_pretrained, pretrained_path

SHORT = ['--episodes=6', '--log_every=3', '--test_episodes=5', '--test_query=2', '--test_shot=1', '--query=2']
QUICK = [*SHORT, '--compilation_cache=off', '--pictures=off']


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    """Ten characters, of eight drawings each but for one."""
    place = tmp_path_factory.mktemp('characters')
    for number, own in enumerate(handwriting(0, alphabets=(1, 1, 1)).test.items[:10]):
        (place / f'char{number}').mkdir()
        for drawing, items in enumerate(own[: 4 if number == 7 else 8]):
            Image.fromarray(255 - items[..., 0]).save(place / f'char{number}' / f'{drawing}.png')
    return place


def start(source, *flags):
    return run_experiment(parse_flags(folder.RECIPE, [f'--source={source}', *QUICK, *flags]), folder.EXPERIMENT)


def test_a_folder_is_enough(source, tmp_path):
    results = start(source, f'--workdir={tmp_path / "run"}')
    assert list(results['test']) == ['2-way 1-shot']  # two of ten classes are for the test
    written = json.loads((tmp_path / 'run' / 'classes.json').read_text())
    assert {split: len(names) for split, names in written.items()} == {'train': 6, 'validation': 2, 'test': 2}
    weights = load_pretrained(tmp_path / 'run' / 'weights.safetensors')
    assert weights.encoder.item_shape == (28, 28, 1)
    answers = run_classify(
        ClassifyConfig(
            support=str(source),
            query=str(source / 'char1'),
            weights=str(tmp_path / 'run' / 'weights.safetensors'),
            output=str(tmp_path / 'out'),
        ),
        [],
    )
    assert len(answers) == 8


def test_training_starts_from_trained_weights(source, tmp_path, monkeypatch):
    name = 'omniglot-60way-1shot'
    copy = pathlib.Path(shutil.copy(pretrained_path(name), tmp_path / 'first.safetensors'))
    stages = driver._train_in_stages
    monkeypatch.setattr(driver, '_train_in_stages', lambda *given: (copy.unlink(), stages(*given))[1])
    start(source, f'--init={copy}', '--learning_rate=1e-12', f'--workdir={tmp_path / "run"}')
    before, after = load_pretrained(name), load_pretrained(tmp_path / 'run' / 'weights.safetensors')
    assert after.encoder == before.encoder
    kernel = before.params['ConvBlock_0']['kernel']
    np.testing.assert_allclose(after.params['ConvBlock_0']['kernel'], kernel, atol=1e-6)
    assert after.description['trained_on'] == {'train': 6, 'validation': 2}
    assert after.description['started_from']['digest'] == before.description['digest']


def test_trained_weights_take_images_of_another_size(source, tmp_path):
    start(source, '--init=omniglot-60way-1shot', '--image_size=32', f'--workdir={tmp_path / "run"}')
    assert load_pretrained(tmp_path / 'run' / 'weights.safetensors').encoder.item_shape == (32, 32, 1)


def test_a_run_is_named_after_its_folder(source):
    config = parse_flags(folder.RECIPE, [f'--source={source}', '--shot=2'])
    assert config.workdir == f'runs/{source.name}-5way-2shot-seed0'
    assert (config.way, config.validation_way, config.test_way) == (5, 2, (2,))


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--way=7'], '--way=7, but there are 6 training classes; lower --way'),
        (['--shot=7'], 'char7 has 4 items; lower --shot'),
        (['--shot=3', '--query=3'], 'char7 has 4 items; lower --query or --shot'),
        (['--split=0.5,0.5'], '--split=0.5,0.5 must be'),
        (['--split=half'], '--split=half must be'),
        (['--init=omniglot-60way-1shot', '--kind=drawings'], 'leave out --kind'),
        (['--data=synthetic'], '--data=synthetic is not for own images'),
        (
            ['--init=miniimagenet-20way-5shot', '--image_size=42'],
            'mean embedding of 84x84x3 images, but here they are 42x42x3',
        ),
        (['--init=omniglot-60way-1shot', '--image_size=8'], 'cannot embed those of 8x8x1'),
        (['--kind=drawings', '--ink=dark', '--image_size=8'], 'images of 8x8 pixels are too small'),
        (['--weights=omniglot-60way-1shot', '--image_size=32'], 'leave out --image_size'),
        (['--kind=drawings', '--ink=dark', '--test_way=3'], '--test_way=3, but there are 2 test classes'),
    ],
)
def test_what_does_not_fit_is_told_before_it_starts(source, tmp_path, flags, message):
    with pytest.raises((ConfigError, DataError)) as error:
        start(source, f'--workdir={tmp_path / "run"}', *flags)
    assert message in message_with_flags(error.value)
    assert not (tmp_path / 'run').exists()


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(DataError) as error:
        start(tmp_path / 'nowhere')
    assert f'--source={tmp_path / "nowhere"} is no folder' in message_with_flags(error.value)
    with pytest.raises(ConfigError, match='--source'):
        run_experiment(parse_flags(folder.RECIPE, []), folder.EXPERIMENT)
