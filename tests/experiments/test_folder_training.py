"""Training on a folder of drawings, from its images to a model that experiments.classify takes."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from experiments import classify, folder
from experiments.methods.options import ConfigError
from experiments.running import config as configuration
from experiments.running import driver, flags
from protojax import pretrained
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import DataError
from protojax.pretrained import load_pretrained
from tests.helpers import tiny
from tests.helpers.spots import Spots

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


def start(source, *given):
    with tiny.on_devices(1):
        return driver.run(folder.EXPERIMENT.parse([f'--source={source}', *QUICK, *given]), folder.EXPERIMENT)


def test_a_folder_is_enough(source, tmp_path):
    results = start(source, f'--workdir={tmp_path / "run"}')
    assert list(results['test']) == ['2-way 1-shot']  # two of ten classes are for the test
    written = json.loads((tmp_path / 'run' / 'classes.json').read_text())
    assert {split: len(names) for split, names in written.items()} == {'train': 6, 'validation': 2, 'test': 2}
    weights = load_pretrained(tmp_path / 'run' / 'weights.safetensors')
    assert weights.encoder.item_shape == (28, 28, 1)
    given = {'support': source, 'query': source / 'char1', 'weights': tmp_path / 'run' / 'weights.safetensors'}
    given = {name: str(path) for name, path in {**given, 'output': tmp_path / 'out'}.items()}
    assert len(classify.run(classify.Config(**given), [])) == 8


def test_a_set_of_tfds_is_enough(tmp_path):
    keys = [f'--data_dir={tmp_path}', '--image_key=image', '--label_key=colour', '--image_size=16']
    results = start(f'tfds:{Spots.name}', *keys, f'--workdir={tmp_path / "run"}')
    assert list(results['test']) == ['2-way 1-shot']
    config = folder.EXPERIMENT.parse(['--source=tfds:spots', *keys])
    assert configuration.name(folder.EXPERIMENT, config) == 'spots-4way-1shot-image_size=16-seed0'


def test_training_starts_from_trained_weights_for_images_of_another_size(source, tmp_path, monkeypatch):
    name = 'omniglot-60way-1shot'
    copy = pathlib.Path(shutil.copy(pretrained.path(name), tmp_path / 'first.safetensors'))
    stages = driver._train
    monkeypatch.setattr(driver, '_train', lambda *given: (copy.unlink(), stages(*given))[1])
    start(source, f'--init={copy}', '--image_size=32', '--learning_rate=1e-12', f'--workdir={tmp_path / "run"}')
    before, after = load_pretrained(name), load_pretrained(tmp_path / 'run' / 'weights.safetensors')
    assert after.encoder == dataclasses.replace(before.encoder, item_shape=(32, 32, 1))
    kernel = before.params['ConvBlock_0']['kernel']
    np.testing.assert_allclose(after.params['ConvBlock_0']['kernel'], kernel, atol=1e-6)
    assert after.description['trained_on'] == {'train': 6, 'validation': 2}
    assert after.description['started_from']['digest'] == before.description['digest']


@pytest.mark.parametrize(
    (('given', 'message')),
    [
        (['--source=/no/such/folder'], '--source=/no/such/folder is not a folder'),
        (['--split=0.5,0.5'], '--split=0.5,0.5 must be'),
        (['--split=half'], '--split=half is neither three fractions nor a file'),
        (['--init=omniglot-60way-1shot', '--kind=drawings'], 'remove --kind'),
        (['--data=synthetic'], '--data=synthetic is not available'),
        (['--init=miniimagenet-20way-5shot', '--image_size=42'], 'expected weights for 42x42x3 images, got 84x84x3'),
        (['--kind=drawings', '--ink=dark', '--image_size=8'], 'expected images of at least 16x16 pixels, got 8x8'),
        (['--weights=omniglot-60way-1shot', '--image_size=32'], 'remove --image_size'),
    ],
)
def test_what_does_not_fit_is_told_before_it_starts(source, tmp_path, given, message):
    with pytest.raises((ConfigError, DataError)) as error:
        start(source, f'--workdir={tmp_path / "run"}', *given)
    assert message in flags.message(error.value)
    assert not (tmp_path / 'run').exists()
