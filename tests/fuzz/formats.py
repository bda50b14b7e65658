"""Every format that is read: valid inputs, mutations that suit it, and its reader. Another format is another row."""

import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from experiments import cub as experiment
from experiments.running import metrics, workdir
from protojax import checkpoints, encoders, images, pretrained
from protojax.datasets import cub, miniimagenet, readers, sources
from protojax.encoders import Conv4, LinearMap, ResNet12
from protojax.images import ImageForm
from protojax.prototype_classifier import PrototypeClassifier
from tests.fuzz import mutations, requests, seeds
from tests.fuzz.mutations import Input, Mutation


class Format(NamedTuple):
    seeds: Callable[[], Sequence[Input]]
    read: Callable[[pathlib.Path], Any]  # a folder with the files of an input -> plain values
    mutations: Sequence[Mutation] = ()


SAVED = 'x.safetensors'


def named(name, *contents):
    """Inputs of one file each."""
    return [{name: data} for data in contents]


def read_images(folder):
    """All images of a source of miniImageNet with any number of classes."""
    small = mock.patch.multiple(miniimagenet, SIZE=seeds.SIZE, check=lambda *_: None)
    place = tempfile.TemporaryDirectory()
    with small, place, sources.opened(miniimagenet.find(folder), pathlib.Path(place.name)) as folders:
        return {split: list(records) for split, records in miniimagenet.records(folders).items()}


def read_birds(folder):
    return {split: list(records) for split, records in cub.records([folder]).items()}


def read_picture(folder):
    data = images.contents(folder / 'x')
    return [images.decode_image(data, ImageForm(shape)) for shape in ((28, 28, 1), (32, 32, 3))]


def pictures(format, *options):
    return named('x', *(seeds.picture(format=format, size=16, **option) for option in options))


def saved(save, **options):
    """The bytes that a function writes to a file."""
    with tempfile.TemporaryDirectory() as place:
        save(path := pathlib.Path(place, SAVED), **options)
        return path.read_bytes()


def weights():
    """Weights of a small encoder of each kind."""
    kinds = Conv4(filters=3, item_shape=(16, 16, 1), kernels=False), LinearMap(4, mean=(0.0, 0.0), item_shape=(2,))
    for encoder in (*kinds, ResNet12(widths=(2, 2, 2, 2), item_shape=(16, 16, 3))):
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), encoders.shapes(encoder))
        found = pretrained.Pretrained(encoder, *ones, {})
        yield saved(pretrained.save_pretrained, pretrained=found, item_shape=encoder.item_shape)


def classes():
    classifier = PrototypeClassifier(('owl', 'tit'), np.ones((2, 3)), np.array([2, 1], np.int32))
    return saved(classifier.save, encoder='abc')


def read_weights(folder):
    return pretrained.load_pretrained(folder / SAVED).params


def read_classes(folder):
    return PrototypeClassifier.load(folder / SAVED).prototypes


CONFIG = experiment.EXPERIMENT.parse([])
STATE = {'weights': np.arange(6, dtype=np.float32).reshape(2, 3), 'step': np.int32(7)}


def checkpoint():
    with tempfile.TemporaryDirectory() as place:
        writer = checkpoints.Checkpoints(place)
        writer.save(7, STATE)
        writer.close()
        files = [path for path in sorted(pathlib.Path(place).rglob('*')) if path.is_file()]
        return {str(path.relative_to(place)): path.read_bytes() for path in files}


def read_checkpoint(folder):
    """Restore exactly what was saved, or raise; reading moves a corrupted checkpoint aside."""
    with tempfile.TemporaryDirectory() as place:
        stage = checkpoints.Checkpoints(shutil.copytree(folder, pathlib.Path(place, 'stage')))
        try:
            found = stage.restore(STATE)
        finally:
            stage.close()
    assert found and found[0] == 7 and all((found[1][name] == STATE[name]).all() for name in STATE), 'another state'
    return found


def run():
    with tempfile.TemporaryDirectory() as place:
        workdir.Workdir(place, CONFIG, 'birds')
        saved_config = pathlib.Path(place, 'config.json').read_bytes()
    line = b'{"stage": "train", "episode": 4, "split": "train", "loss": 0.5, "accuracy": 0.5}\n'
    return {'config.json': saved_config, 'metrics.jsonl': line * 3, 'timing.json': b'{"seconds": 1.5}'}


def read_run(folder):
    opened = workdir.Workdir(folder, CONFIG, 'birds')
    opened.add_seconds(1.0)
    metrics.Writer(opened, 'train', 4).close()
    return metrics.read(folder)


MODES = [{'mode': mode} for mode in ('1', 'L', 'LA', 'P', 'RGB', 'RGBA')]
JPEGS = {'mode': 'L'}, {'mode': 'CMYK'}, {'progressive': True}
TIFFS = {}, {'mode': 'L'}, {'compression': 'tiff_lzw'}, {'compression': 'tiff_deflate'}, {'compression': 'jpeg'}
TORCH = [seeds.torch_file(np.arange(24.0).reshape(2, 3, 4), order) for order in '<>']
MATLAB, NAMES = [seeds.matlab(compressed) for compressed in (False, True)], ('features', 'names')
TEXT, JSON = (mutations.words,), (mutations.json_lines,)
FEATURES = seeds.npy(np.ones((8, 5), np.float16))
FORMATS = {
    'pkl': Format(lambda: named('cache-train.pkl', *seeds.pickles()), read_images, (mutations.opcodes,)),
    'csv': Format(lambda: [seeds.images()], read_images, TEXT),
    'zip': Format(lambda: named('x.zip', seeds.zip(0), seeds.zip(8)), read_images),
    'tar': Format(lambda: named('x.tar', seeds.tar('w')), read_images),
    'tar.gz': Format(lambda: named('x.tar.gz', seeds.tar('w:gz')), read_images),
    't7': Format(lambda: named('x.t7', *TORCH), lambda folder: readers.torch_tensor(folder / 'x.t7')),
    'mat': Format(lambda: named('x.mat', *MATLAB), lambda folder: readers.matlab(folder / 'x.mat', NAMES)),
    'npy': Format(lambda: named('x.npy', FEATURES), lambda folder: readers.array(folder / 'x.npy'), TEXT),
    'lists': Format(lambda: [{**seeds.BIRDS, 'features.npy': FEATURES}], read_birds, TEXT),
    'png': Format(lambda: pictures('PNG', *MODES), read_picture),
    'jpeg': Format(lambda: pictures('JPEG', *JPEGS), read_picture),
    'webp': Format(lambda: pictures('WEBP', {'lossless': True}, {'mode': 'RGBA'}), read_picture),
    'gif': Format(lambda: pictures('GIF', {}, {'mode': 'L'}), read_picture),
    'bmp': Format(lambda: pictures('BMP', {}, {'mode': 'P'}), read_picture),
    'tiff': Format(lambda: pictures('TIFF', *TIFFS), read_picture),
    'weights': Format(lambda: named(SAVED, *weights()), read_weights, (mutations.safetensors,)),
    'classes': Format(lambda: named(SAVED, classes()), read_classes, (mutations.safetensors,)),
    'checkpoint': Format(lambda: [checkpoint()], read_checkpoint, JSON),
    'workdir': Format(lambda: [run()], read_run, JSON),
    'page': Format(lambda: named('request', *requests.examples()), requests.send, (requests.other_body,)),
}
