"""Every format that is read, with whole files to begin with, the mutations that suit it, and its reader.

Another format is one more row of FORMATS. All of it runs in a folder that is removed
in the end.
"""

import contextlib
import json
import pathlib
import shutil
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.fuzzing import seeds
from experiments.fuzzing.mutations import (
    mutate_bytes,
    mutate_json_lines,
    mutate_json_value,
    mutate_matlab,
    mutate_opcodes,
    mutate_png,
    mutate_tar,
    mutate_tar_gz,
    mutate_words,
    mutate_zip,
)
from experiments.fuzzing.requests import changed_request, sample_requests, send_request
from experiments.fuzzing.seeds import (
    seed_archive_members,
    seed_compressed_matlab,
    seed_legacy_pth,
    seed_matlab_variables,
    seed_npy,
    seed_pickles,
    seed_picture,
    seed_tar_gzs,
    seed_tars,
    seed_torch7,
    seed_zips,
)
from experiments.running import workdir
from experiments.running.config import ZeroShotConfig
from experiments.running.identity import config_to_json
from protojax import checkpoints, class_files, files, images, pretrained
from protojax.datasets.formats.matlab import read_matlab
from protojax.datasets.formats.pictures import read_picture
from protojax.datasets.formats.torch7 import read_torch7
from protojax.datasets.formats.torch_legacy import read_torch_legacy
from protojax.datasets.sources import miniimagenet_forms
from protojax.datasets.sources.cub_forms import read_cub_features, read_cub_form
from protojax.datasets.sources.files import read_file
from protojax.datasets.sources.miniimagenet_files import open_miniimagenet_files
from protojax.encoders import Conv4, LinearMap, ResNet12, initialize_shapes
from protojax.errors import DataError
from protojax.images import ImageForm
from protojax.known_classes import KnownClasses


class Format(NamedTuple):
    """How to make files of a format and how to read them."""

    seeds: Callable[[], list[bytes]]
    mutations: tuple[Callable, ...]  # besides damage of any bytes and splicing
    read: Callable[[bytes, pathlib.Path], Any]  # contents, an empty folder -> what was read


def _write_mutant(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _read_source(path):
    """All images of a source of miniImageNet."""
    miniimagenet_forms.SIZE = seeds.SIDE
    with open_miniimagenet_files(path) as (splits, _):
        return {split: {label: own.images() for label, own in found.items()} for split, found in splits.items()}


def _source(name):
    """A reader of files of miniImageNet that are called so."""
    return lambda data, folder: _read_source(_write_mutant(folder, name, data))


def _read_mutant_list(data, folder):
    for name, contents in (seed_archive_members() | {'val.csv': data}).items():
        _write_mutant(folder, name, contents)
    return _read_source(folder)


BIRDS = {
    'classes.txt': '1 001.Owl\n2 002.Tit\n3 003.Auk\n4 004.Jay\n',
    'images.txt': ''.join(f'{k} a/{k}.jpg\n' for k in range(1, 9)),
    'image_class_labels.txt': ''.join(f'{k} {-(-k // 2)}\n' for k in range(1, 9)),
    'class_attribute_labels_continuous.txt': '0.5 1e2 3\n' * 4,
    'trainvalclasses.txt': '001.Owl\n002.Tit\n003.Auk\n',
    'testids.txt': '4\n',
}


def _read_mutant_lists(data, folder):
    name, contents = _unbundled(data)
    files = {key: text.encode() for key, text in BIRDS.items()} | {name: contents}
    for name, contents in (files | {'features.npy': seed_npy(np.ones((8, 5), np.float16))}).items():
        _write_mutant(folder, name, contents)
    birds = read_cub_form(folder)
    classes = [name for names in birds.division.values() for name in names]
    return {name: [birds.features(name), birds.attributes[name]] for name in classes}


def _bundled(files):
    """Files of which one is to be changed: its name stands in the first line."""
    return [name.encode() + b'\n' + (data.encode() if isinstance(data, str) else data) for name, data in files.items()]


def _unbundled(data):
    name, _, contents = data.partition(b'\n')
    return str(name, 'ascii'), contents


def _in_bundle(mutation):
    """A mutation of a bundled file, which leaves the name alone."""

    def changed(rng, data):
        name, contents = _unbundled(data)
        return name.encode() + b'\n' + mutation(rng, contents)

    changed.bundled = True
    return changed


def _read_mutant_image(data, folder):
    path = _write_mutant(folder, 'x', data)
    with contextlib.suppress(DataError):
        images.read_image(path, ImageForm((32, 32, 3)))
        images.read_image(path, ImageForm((28, 28, 1)))
    return np.asarray(read_picture(data, path, size=(16, 16), mode='RGB', formats=images.FORMATS))


PICTURES = {  # options of Pillow for each file
    'PNG': [
        *({'mode': mode} for mode in ('1', 'L', 'LA', 'P', 'RGB', 'RGBA')),
        {'mode': 'P', 'transparency': b'\0\x80'},
    ],
    'JPEG': [{'mode': 'L'}, {'mode': 'CMYK'}, {'progressive': True}, {'quality': 95, 'subsampling': 0}],
    'WEBP': [{'lossless': True}, {'quality': 50}, {'mode': 'RGBA'}],
}


def _pictures(format):
    return lambda: [seed_picture(format=format, size=(16, 16), **options) for options in PICTURES[format]]


def _weights():
    """Of a small encoder of each kind, with what would be learned set to ones."""
    encoders = [Conv4(filters=3, item_shape=(16, 16, 1), kernels=False), LinearMap(4, mean=(0.0, 0.0), item_shape=(2,))]
    encoders.append(ResNet12(widths=(2, 2, 2, 2), item_shape=(16, 16, 3)))
    found = []
    for encoder in encoders:
        ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), initialize_shapes(encoder))
        weights = pretrained.Pretrained(encoder, *ones, {})
        found.append(_saved_bytes(pretrained.save_pretrained, weights, encoder.item_shape))
    return found


def _saved_bytes(save, *arguments, **options):
    """The bytes that a function writes to a file."""
    path = pathlib.Path('seed.safetensors')
    save(path, *arguments, **options)
    return path.read_bytes()


def _classes():
    known = KnownClasses(('owl', 'tit'), np.ones((2, 3)), np.array([2, 1], np.int32), np.float32(1), np.float32(2))
    return [_saved_bytes(class_files.save_classes, known, encoder='abc')]


def _header(rng, data):
    """A safetensors file with a value of its header changed."""
    (length,) = struct.unpack('<Q', data[:8])
    changed = json.dumps(mutate_json_value(rng, json.loads(data[8 : 8 + length]))).encode()
    return struct.pack('<Q', len(changed)) + changed + data[8 + length :]


def _resealed(rng, data):
    """A safetensors file with another description or arrays of other values, and a digest that is right."""
    path = pathlib.Path('mutant.safetensors')
    path.write_bytes(data)
    arrays, description = files.read_arrays(path, largest=1 << 30)
    if rng.random() < 0.5:
        name = rng.choice(list(arrays))
        odd = rng.choice((np.nan, np.inf, -1, 0, 3e38, 1e-45))
        changes = [
            np.full_like(arrays[name], odd),
            arrays[name][:0],
            arrays[name].astype(np.float64),
            arrays[name][None],
        ]
        arrays[name] = rng.choice(changes) if arrays[name].dtype.kind == 'f' else np.full_like(arrays[name], -1)
    else:
        description = mutate_json_value(rng, description)
    if 'digest' in description:
        description['digest'] = pretrained._pretrained_digest(description, arrays)
    files.write_arrays(path, arrays, description)
    return path.read_bytes()


STATE = {'weights': np.arange(6, dtype=np.float32).reshape(2, 3), 'step': np.int32(7)}


def _checkpoint_folder():
    folder = pathlib.Path('checkpoint').absolute()
    if not folder.exists():
        written_by = checkpoints.Checkpoints(folder)
        written_by.save(7, STATE)
        written_by.close()
    return folder


def _checkpoint_files():
    folder = _checkpoint_folder()
    return _bundled({str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()})


def _read_mutant_checkpoint(data, folder):
    """A checkpoint with one file changed is either refused or exactly what was saved."""
    shutil.copytree(_checkpoint_folder(), folder / 'stage')
    _write_mutant(folder / 'stage', *_unbundled(data))
    stage = checkpoints.Checkpoints(folder / 'stage')
    try:
        step, tree = stage.restore(STATE)
    finally:
        stage.close()
    assert step == 7 and all((tree[name] == STATE[name]).all() for name in STATE), 'another state was restored'
    return tree


def _resealed_record(rng, data):
    """The record of a checkpoint with another value and a right seal; other files as they are."""
    name, contents = _unbundled(data)
    if not name.endswith('record/metadata'):
        return data
    record = mutate_json_value(rng, json.loads(contents))
    if isinstance(record, dict):
        parts = (record.get('arrays'), record.get('digest'))
        record['seal'] = checkpoints._checkpoint_seal(*parts)
    return name.encode() + b'\n' + json.dumps(record).encode()


def _workdir_files():
    line = '{"stage": "train", "episode": 4, "split": "train", "loss": 0.5, "accuracy": 0.5}\n'
    config = json.dumps({**config_to_json(ZeroShotConfig()), 'dataset': 'birds'}, indent=2)
    return _bundled({'config.json': config, 'metrics.jsonl': line * 3, 'timing.json': '{"seconds": 1.5}'})


def _read_mutant_workdir(data, folder):
    for seed in _workdir_files():
        _write_mutant(folder, *_unbundled(seed))
    _write_mutant(folder, *_unbundled(data))
    opened = workdir.Workdir(folder, ZeroShotConfig(), 'birds')
    workdir.commit = lambda: None  # which starts git
    opened.add_seconds(1.0)
    lines = opened.metrics()
    workdir.WorkdirMetrics(opened, 'train', 4).close()
    return lines


FORMATS = {
    'pkl': Format(seed_pickles, (mutate_opcodes,), _source('mini-imagenet-cache-train.pkl')),
    't7': Format(
        lambda: [seed_torch7(seeds.TABLE), seed_torch7(seeds.TABLE, '>'), seed_torch7(seeds.TABLE['features'])],
        (),
        lambda data, folder: read_torch7(read_file(_write_mutant(folder, 'x.t7', data)), 'x.t7'),
    ),
    'pth': Format(
        lambda: [seed_legacy_pth()], (mutate_opcodes,), lambda data, folder: read_torch_legacy(data, 'x.pth')
    ),
    'mat': Format(
        lambda: [
            seeds.MATLAB + b''.join(seed_matlab_variables()),
            seeds.MATLAB + b''.join(map(seed_compressed_matlab, seed_matlab_variables())),
        ],
        (mutate_matlab,),
        lambda data, folder: read_matlab(data, ('features', 'labels', 'names'), 'x.mat'),
    ),
    'tar': Format(seed_tars, (mutate_tar, mutate_tar), _source('x.tar')),
    'tar.gz': Format(seed_tar_gzs, (mutate_tar_gz, mutate_tar_gz), _source('x.tar.gz')),
    'zip': Format(seed_zips, (mutate_zip, mutate_zip), _source('x.zip')),
    'npy': Format(
        lambda: [seed_npy(np.ones((30, 4), np.float16)), seed_npy(np.ones((9, 3, 5), np.float32))],
        (mutate_words,),
        lambda data, folder: read_cub_features(_write_mutant(folder, 'features.npy', data)),
    ),
    'csv': Format(lambda: [seed_archive_members()['val.csv']], (mutate_words, mutate_words), _read_mutant_list),
    'lists': Format(lambda: _bundled(BIRDS), (_in_bundle(mutate_words), _in_bundle(mutate_bytes)), _read_mutant_lists),
    'png': Format(_pictures('PNG'), (mutate_png, mutate_png), _read_mutant_image),
    'jpeg': Format(_pictures('JPEG'), (), _read_mutant_image),
    'webp': Format(_pictures('WEBP'), (), _read_mutant_image),
    'weights': Format(
        _weights,
        (_header, _resealed, _resealed),
        lambda data, f: pretrained.load_pretrained(_write_mutant(f, 'x.safetensors', data)).params,
    ),
    'classes': Format(
        _classes,
        (_header, _resealed),
        lambda data, f: class_files.load_classes(_write_mutant(f, 'x.safetensors', data)).prototypes,
    ),
    'checkpoint': Format(_checkpoint_files, (_in_bundle(mutate_bytes), _resealed_record), _read_mutant_checkpoint),
    'workdir': Format(_workdir_files, (_in_bundle(mutate_json_lines), _in_bundle(mutate_bytes)), _read_mutant_workdir),
    'page': Format(sample_requests, (changed_request, changed_request), send_request),
}
