"""Every format that is read, with whole files to begin with, the mutations that suit it, and its reader.

Another format is one more row of FORMATS. All of it runs in a folder that is removed in the end.
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

from experiments.fuzzing import mutations, seeds
from experiments.running import workdir
from experiments.running.config import ZeroShotConfig
from protojax import checkpoints, class_files, files, images, pretrained
from protojax.datasets.formats.matlab import read_matlab
from protojax.datasets.formats.pictures import read_picture
from protojax.datasets.formats.torch7 import read_torch7
from protojax.datasets.formats.torch_legacy import read_torch_legacy
from protojax.datasets.sources import cub_forms, miniimagenet_files, miniimagenet_forms
from protojax.datasets.sources.files import read_file
from protojax.encoders import Conv4, LinearMap, ResNet12
from protojax.errors import DataError
from protojax.known_classes import KnownClasses


class Format(NamedTuple):
    """How to make files of a format and how to read them."""

    seeds: Callable[[], list[bytes]]
    mutations: tuple[Callable, ...]  # besides damage of any bytes and splicing
    read: Callable[[bytes, pathlib.Path], Any]  # contents, an empty folder -> what was read


def written(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def source(name):
    """A reader of files of miniImageNet that are called so."""

    def read(data, folder):
        miniimagenet_forms.SIZE = seeds.SIDE
        with miniimagenet_files.open_source(written(folder, name, data)) as (splits, _):
            return {split: {label: own.images() for label, own in found.items()} for split, found in splits.items()}

    return read


def read_list(data, folder):
    miniimagenet_forms.SIZE = seeds.SIDE
    for name, contents in (seeds.members() | {'val.csv': data}).items():
        written(folder, name, contents)
    with miniimagenet_files.open_source(folder) as (splits, _):
        return {label: own.images() for label, own in splits['validation'].items()}


BIRDS = {
    'classes.txt': '1 001.Owl\n2 002.Tit\n3 003.Auk\n4 004.Jay\n',
    'images.txt': ''.join(f'{k} a/{k}.jpg\n' for k in range(1, 9)),
    'image_class_labels.txt': ''.join(f'{k} {-(-k // 2)}\n' for k in range(1, 9)),
    'class_attribute_labels_continuous.txt': '0.5 1e2 3\n' * 4,
    'trainvalclasses.txt': '001.Owl\n002.Tit\n003.Auk\n',
    'testids.txt': '4\n',
}


def read_birds(folder):
    birds = cub_forms.read_source(folder)
    classes = [name for names in birds.division.values() for name in names]
    return {name: [birds.features(name), birds.attributes[name]] for name in classes}


def read_text_list(data, folder):
    name, contents = unbundled(data)
    files = {key: text.encode() for key, text in BIRDS.items()} | {name: contents}
    for name, contents in (files | {'features.npy': seeds.npy(np.ones((8, 5), np.float16))}).items():
        written(folder, name, contents)
    return read_birds(folder)


def bundled(files):
    """Files of which one is to be changed: its name stands in the first line."""
    return [name.encode() + b'\n' + (data.encode() if isinstance(data, str) else data) for name, data in files.items()]


def unbundled(data):
    name, _, contents = data.partition(b'\n')
    return str(name, 'ascii'), contents


def inside(mutation):
    """A mutation of a bundled file, which leaves the name alone."""

    def changed(rng, data):
        name, contents = unbundled(data)
        return name.encode() + b'\n' + mutation(rng, contents)

    changed.bundled = True
    return changed


def read_image(data, folder):
    path = written(folder, 'x', data)
    with contextlib.suppress(DataError):
        images.read_image(path, images.Form((32, 32, 3)))
        images.read_image(path, images.Form((28, 28, 1)))
    return np.asarray(read_picture(data, path, size=(16, 16), mode='RGB', formats=('PNG', 'JPEG')))


def pngs():
    kinds = [{'mode': mode} for mode in ('1', 'L', 'LA', 'P', 'RGB', 'RGBA')] + [
        {'mode': 'P', 'transparency': b'\0\x80'}
    ]
    return [seeds.picture(size=(16, 16), **kind) for kind in kinds]


def jpegs():
    kinds = [{'mode': 'L'}, {'mode': 'CMYK'}, {'progressive': True}, {'quality': 95, 'subsampling': 0}]
    return [seeds.picture(format='JPEG', size=(16, 16), **kind) for kind in kinds]


def weights():
    """Of a small encoder of each kind, with what would be learned set to ones."""
    encoders = [Conv4(filters=3, item_shape=(16, 16, 1), kernels=False), LinearMap(4, mean=(0.0, 0.0), item_shape=(2,))]
    encoders.append(ResNet12(widths=(2, 2, 2, 2), item_shape=(16, 16, 3)))
    return [saved_weights(encoder) for encoder in encoders]


def saved_weights(encoder):
    shapes = pretrained.initialize_shapes(encoder)
    params, batch_stats = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    return saved(
        pretrained.save_pretrained, pretrained.Pretrained(encoder, params, batch_stats, {}), encoder.item_shape
    )


def saved(save, *arguments, **options):
    """The bytes that a function writes to a file."""
    path = pathlib.Path('seed.safetensors')
    save(path, *arguments, **options)
    return path.read_bytes()


def classes():
    known = KnownClasses(('owl', 'tit'), np.ones((2, 3)), np.array([2, 1], np.int32), np.float32(1), np.float32(2))
    return [saved(class_files.save_classes, known, encoder='abc')]


def header(rng, data):
    """A safetensors file with a value of its header changed."""
    (length,) = struct.unpack('<Q', data[:8])
    changed = json.dumps(mutations.json_value(rng, json.loads(data[8 : 8 + length]))).encode()
    return struct.pack('<Q', len(changed)) + changed + data[8 + length :]


def resealed(rng, data):
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
        description = mutations.json_value(rng, description)
    if 'digest' in description:
        description['digest'] = pretrained._digest(description, arrays)
    files.write_arrays(path, arrays, description)
    return path.read_bytes()


STATE = {'weights': np.arange(6, dtype=np.float32).reshape(2, 3), 'step': np.int32(7)}


def checkpoint_folder():
    folder = pathlib.Path('checkpoint').absolute()
    if not folder.exists():
        written_by = checkpoints.Checkpoints(folder)
        written_by.save(7, STATE)
        written_by.close()
    return folder


def checkpoint_files():
    folder = checkpoint_folder()
    return bundled({str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()})


def read_checkpoint(data, folder):
    """A checkpoint with one file changed is either refused or exactly what was saved."""
    shutil.copytree(checkpoint_folder(), folder / 'stage')
    written(folder / 'stage', *unbundled(data))
    stage = checkpoints.Checkpoints(folder / 'stage')
    try:
        step, tree = stage.restore(STATE)
    finally:
        stage.close()
    assert step == 7 and all((tree[name] == STATE[name]).all() for name in STATE), 'another state was restored'
    return tree


def resealed_record(rng, data):
    """The record of a checkpoint with another value and a right seal; other files as they are."""
    name, contents = unbundled(data)
    if not name.endswith('record/metadata'):
        return data
    record = mutations.json_value(rng, json.loads(contents))
    if isinstance(record, dict):
        parts = (record.get('arrays'), record.get('digest'))
        record['seal'] = checkpoints._seal(*parts)
    return name.encode() + b'\n' + json.dumps(record).encode()


def workdir_files():
    line = '{"stage": "train", "episode": 4, "split": "train", "loss": 0.5}\n'
    config = json.dumps({**workdir.to_json(ZeroShotConfig()), 'dataset': 'birds'}, indent=2)
    return bundled({'config.json': config, 'metrics.jsonl': line * 3, 'timing.json': '{"seconds": 1.5}'})


def read_workdir(data, folder):
    for seed in workdir_files():
        written(folder, *unbundled(seed))
    written(folder, *unbundled(data))
    opened = workdir.Workdir(folder, ZeroShotConfig(), 'birds')
    workdir.commit = lambda: None  # which starts git
    opened.add_seconds(1.0)
    lines = opened.metrics()
    workdir.Metrics(opened, 'train', 4).close()
    return lines


FORMATS = {
    'pkl': Format(seeds.pickles, (mutations.opcodes,), source('mini-imagenet-cache-train.pkl')),
    't7': Format(
        lambda: [seeds.torch7(seeds.TABLE), seeds.torch7(seeds.TABLE, '>'), seeds.torch7(seeds.TABLE['features'])],
        (),
        lambda data, folder: read_torch7(read_file(written(folder, 'x.t7', data)), 'x.t7'),
    ),
    'pth': Format(
        lambda: [seeds.legacy_pth()], (mutations.opcodes,), lambda data, folder: read_torch_legacy(data, 'x.pth')
    ),
    'mat': Format(
        lambda: [
            seeds.MATLAB + b''.join(seeds.matlab_variables()),
            seeds.MATLAB + b''.join(map(seeds.compressed, seeds.matlab_variables())),
        ],
        (mutations.recompressed_matlab,),
        lambda data, folder: read_matlab(data, ('features', 'labels', 'names'), 'x.mat'),
    ),
    'tar': Format(seeds.tars, (mutations.sealed_tar, mutations.sealed_tar), source('x.tar')),
    'tar.gz': Format(seeds.tar_gzs, (mutations.regzipped, mutations.regzipped), source('x.tar.gz')),
    'zip': Format(seeds.zips, (mutations.rezipped, mutations.rezipped), source('x.zip')),
    'npy': Format(
        lambda: [seeds.npy(np.ones((30, 4), np.float16)), seeds.npy(np.ones((9, 3, 5), np.float32))],
        (mutations.words,),
        lambda data, folder: cub_forms.read_features(written(folder, 'features.npy', data)),
    ),
    'csv': Format(lambda: [seeds.members()['val.csv']], (mutations.words, mutations.words), read_list),
    'lists': Format(lambda: bundled(BIRDS), (inside(mutations.words), inside(mutations.damage)), read_text_list),
    'png': Format(pngs, (mutations.sealed_png, mutations.sealed_png), read_image),
    'jpeg': Format(jpegs, (), read_image),
    'weights': Format(
        weights,
        (header, resealed, resealed),
        lambda data, f: pretrained.load_pretrained(written(f, 'x.safetensors', data))[1],
    ),
    'classes': Format(
        classes,
        (header, resealed),
        lambda data, f: class_files.load_classes(written(f, 'x.safetensors', data)).prototypes,
    ),
    'checkpoint': Format(checkpoint_files, (inside(mutations.damage), resealed_record), read_checkpoint),
    'workdir': Format(workdir_files, (inside(mutations.json_lines), inside(mutations.damage)), read_workdir),
}
