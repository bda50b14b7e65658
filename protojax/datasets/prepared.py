"""Prepare a data set once, as array_record files that need no TensorFlow to be read (TFDS), and read them.

A `Plan` describes how. Each record is a class: its `name`, `items` [n, ...] and, if it has some, `attributes` [A].
"""

import contextlib
import fcntl
import io
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow_datasets as tfds
from absl import logging

from protojax.datasets import Splits, sources
from protojax.episodes import Dataset
from protojax.errors import DataError, Missing, first_line

SPLITS = ('train', 'validation', 'test')
SOURCE = 'source.txt'  # beside the records: fingerprint and paths of their source
TEMPORARY = 'preparing-'
Paths = Sequence[pathlib.Path]
Records = Mapping[str, Iterable[dict[str, Any]]]  # by split; the records of a split are made one at a time


class Plan(NamedTuple):
    """Functions and settings to find, read and store one data set."""

    title: str
    folder: str  # folder of the records below `data_dir`: name/version
    features: Mapping[str, tfds.features.FeatureConnector]  # features of a record besides its name
    find: Callable[[pathlib.Path], Paths]  # source -> its folders and archives
    records: Callable[[list[pathlib.Path]], Records]  # folders, including unpacked archives -> records
    remotes: Sequence[sources.Remote] = ()  # files to download, if the data set is public


def load(
    plan: Plan,
    *,
    data: str,
    source: str | os.PathLike | None,
    data_dir: str | os.PathLike | None,
    synthetic: Callable[[], Splits],
    splits: Sequence[str] = SPLITS,
) -> Splits:
    """Load a data set that was prepared before, or prepare it from `source` or from the network.

    Args:
        data: 'real', 'synthetic', or 'auto', which is synthetic if real data are unavailable.
        source: The user's copy of the data; without it, any prepared data are used.
        splits: Names of the splits to read.
    """
    if data not in ('auto', 'real', 'synthetic'):
        raise DataError(f'unknown `data={data}`; choose auto, real or synthetic')
    if data == 'synthetic':
        return synthetic()
    path = pathlib.Path(source).expanduser() if source else None
    if path and not path.exists():
        raise DataError(f'`source={source}` does not exist')
    try:
        found = _real(plan, plan.find(path) if path else (), data_dir, splits)
        return Splits(plan.title, False, *(found.get(name) for name in SPLITS))
    except Missing as error:
        if data == 'real':
            raise
        fallback = synthetic()
        logging.warning('%s; continuing with %s', error, fallback.title)
        return fallback


def _real(plan: Plan, paths: Paths, data_dir: str | os.PathLike | None, splits: Sequence[str]) -> dict[str, Dataset]:
    """Return {split: Dataset}, prepared first if necessary."""
    if '://' in str(data_dir):
        raise DataError(f'`data_dir={data_dir}` is not a local folder; choose one')
    root = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser().absolute()
    folder, mark = root / plan.folder, sources.fingerprint(paths) if paths else None
    found, problem = _read(plan, folder, mark, splits)
    if found is not None:
        return found
    try:
        paths = paths or [sources.download(remote, root / 'downloads' / plan.title.lower()) for remote in plan.remotes]
        if not paths:
            raise Missing(f'{plan.title} is not prepared in {root} and cannot be downloaded; pass yours as `source`')
        with _alone(folder.parent):
            found, problem = _read(plan, folder, mark, splits)  # another process may just have prepared them
            if found is None:
                _write(plan, paths, folder)
                found, problem = _read(plan, folder, None, splits)
    except Missing as error:
        if problem:  # with corrupted data, the user does not want synthetic data
            raise DataError(f'{folder} is corrupted ({problem}) and {error}') from error
        raise
    except DataError:
        raise
    except Exception as error:  # array_record, for example, raises RuntimeError if the disk is full
        hint = 'free some space, or choose another `source` or `data_dir`'
        raise DataError(f'cannot prepare {folder}: {first_line(error)}; {hint}') from error
    if found is None:
        raise DataError(f'{folder} cannot be read back ({problem}); remove it, or choose another `data_dir`')
    return found


@contextlib.contextmanager
def features_of_tfds() -> Iterator[None]:
    """Raise KeyError if a features.json names an unknown feature; TFDS would import its module."""
    base = tfds.features.FeatureConnector
    original, base.cls_from_name = base.cls_from_name, base._registered_features.__getitem__
    try:
        yield
    finally:
        base.cls_from_name = original


@features_of_tfds()
def _read(plan: Plan, folder: pathlib.Path, mark: str | None, splits: Sequence[str]) -> tuple[dict | None, str]:
    """Return the splits, or None and the problem: '' if there are none, or none from the source with this mark."""
    if not folder.exists():
        return None, ''
    try:
        if mark not in (None, (folder / SOURCE).read_text().split()[0]):
            return None, ''
        builder = tfds.builder_from_directory(folder)
        found = {name: builder.as_data_source(split=name) for name in builder.info.splits}
        if not found or any(repr(builder.info.features[name]) != repr(own) for name, own in plan.features.items()):
            return None, 'it has no splits or other features'
        return {name: _stacked(found[name]) for name in splits if name in found}, ''
    except Exception as error:  # array_record, protobuf and TFDS have no common exception
        return None, first_line(error)


def _stacked(source: Sequence[dict]) -> Dataset:
    """Stack the classes of a split in order of their names."""
    records = sorted((source[k] for k in range(len(source))), key=lambda record: record['name'])
    classes = {record['name'].decode(): record for record in records}
    attributes = {name: r['attributes'] for name, r in classes.items()} if 'attributes' in records[0] else None
    return Dataset.from_classes({name: record['items'] for name, record in classes.items()}, attributes)


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Writer of given records; a subclass sets the name and the version of the data set."""

    url_infos = None  # checksums of TFDS's downloads, which need a package that TFDS does not install

    def __init__(self, features: Mapping[str, tfds.features.FeatureConnector], records: Records, **options):
        self.features, self.records = features, records
        super().__init__(file_format='array_record', **options)

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict({'name': tfds.features.Text(), **self.features})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(records) for split, records in self.records.items()}

    def _generate_examples(self, records):
        return ((record['name'], record) for record in records)


def prepare(builder: tfds.core.DatasetBuilder) -> None:
    """Write the files of a builder, with a progress bar in a terminal."""
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints sizes that are unknown here
        builder.download_and_prepare()


def _write(plan: Plan, paths: Paths, folder: pathlib.Path) -> None:
    """Write the records beside `folder`, then move them there, so that `folder` is never incomplete."""
    logging.info('preparing %s from %s (once)', folder, ', '.join(map(str, paths)))
    name = plan.folder.split('/')[0]
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
        inside, mark = pathlib.Path(temporary), sources.fingerprint(paths)  # now: a source may change while it is read
        own = {'name': name, 'VERSION': tfds.core.Version(folder.name)}
        builder_type = type(name, (_Builder,), own, skip_registration=True)
        with sources.opened(paths, inside / 'unpacked') as folders:
            builder = builder_type(plan.features, plan.records(folders), data_dir=inside)
            prepare(builder)
        made = pathlib.Path(builder.data_dir)
        (made / SOURCE).write_text(f'{mark} {" ".join(map(str, paths))}\n')
        if folder.exists():
            folder.rename(inside / 'replaced')
        made.rename(folder)


@contextlib.contextmanager
def _alone(parent: pathlib.Path) -> Iterator[None]:
    """Let one process at a time prepare data below a folder, and remove temporary files of killed processes."""
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / '.lock', 'a') as file:
        with contextlib.suppress(OSError):  # file system without locks: each process prepares the data
            fcntl.flock(file, fcntl.LOCK_EX)
            for left in parent.glob(f'{TEMPORARY}*'):
                shutil.rmtree(left, ignore_errors=True)
        yield
