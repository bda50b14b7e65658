"""Data are prepared once by a TFDS builder, as array_record files that need no TensorFlow, and afterwards read whole.

A builder is made with `source` (the paths that it reads) and stores one record per class: `name`, `items` and, where
classes have them, `attributes`. `load_prepared` takes what was prepared before; else it prepares from the source, or
from what `fetch` brings.
"""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds

from protojax.datasets import Data, Split, padded_classes
from protojax.datasets.sources import announce
from protojax.errors import DataError, Missing, first_line

SOURCE = 'source.txt'  # beside the records: what they were prepared from
TEMPORARY = 'preparing-'
Paths = Sequence[pathlib.Path]
Fetch = Callable[[pathlib.Path], Paths]  # brings files into a folder, or raises Missing


class PreparedBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Base of the builders: one record per class with its name and FEATURES, `items` [m, ...] among them."""

    FEATURES: dict[str, tfds.features.FeatureConnector]
    url_infos = None  # checksums of TFDS's own downloads; looking for them needs a package that TFDS does not install

    def __init__(self, *, source: Paths | None = None, **kwargs):
        self.source = source
        super().__init__(file_format='array_record', **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict({'name': tfds.features.Text(), **self.FEATURES})
        return tfds.core.DatasetInfo(builder=self, features=features)


Make = Callable[..., PreparedBuilder]  # of data_dir and source


def prepared_or_synthetic(data: str, *, real: Callable[[], Data], synthetic: Callable[[], Data]) -> Data:
    """The data set that `data` asks for: 'auto' takes the stand-in where there are no real data."""
    if data not in ('auto', 'real', 'synthetic'):
        raise DataError(f'`data={data}` is unknown; choose auto, real or synthetic')
    if data == 'synthetic':
        return synthetic()
    try:
        return real()
    except Missing as error:
        if data == 'real':
            raise
        stand_in = synthetic()
        announce(f'{error}; going on with {stand_in.title}')
        return stand_in


def load_prepared(
    make: Make,
    *,
    source: Paths | None,
    data_dir: str | os.PathLike | None,
    fetch: Fetch,
    wanted: Sequence[str] | None = None,
) -> dict[str, Split]:
    """The splits of make(data_dir=, source=), prepared first where need be; without a source, whatever is prepared.

    wanted: names of the splits to read, where that is not all.
    """
    if '://' in str(data_dir):
        raise DataError(f'`data_dir={data_dir}` is not a folder of this machine; choose one that is')
    root = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser().absolute()
    mark = _fingerprint_of_source(source) if source else None
    nowhere = pathlib.Path(os.devnull)  # asked of a builder elsewhere, as damaged records stop one
    folder = root / pathlib.Path(make(data_dir=nowhere, source=None).data_dir).relative_to(nowhere)
    splits, damage = _read_prepared(make, root, folder, mark, wanted)
    if splits is None:
        with _writing_prepared(folder):
            source = source or _fetch_again(fetch, root, folder, damage)
            with _preparing_alone(folder.parent):
                # Another process may just have prepared them.
                splits, damage = _read_prepared(make, root, folder, mark, wanted)
                if splits is None:
                    _prepare(make, source, folder)
                    splits, damage = _read_prepared(make, root, folder, None, wanted)
    if splits is None:
        raise DataError(f'{folder} cannot be read back ({damage}); remove it, or choose another `data_dir`')
    return splits


def _read_prepared(
    make: Make, root: pathlib.Path, folder: pathlib.Path, mark: str | None, wanted: Sequence[str] | None
) -> tuple[dict[str, Split] | None, str]:
    """The wanted splits, or None and what is wrong with them: '' if none are there, or of another source than mark."""
    if not folder.exists():
        return None, ''
    try:
        if mark not in (None, (folder / SOURCE).read_text().split()[0]):
            return None, ''
        builder = make(data_dir=root, source=None)
        sources = {name: builder.as_data_source(split=name) for name in builder.info.splits}
        if not sources:
            return None, 'it names no splits'
        names = [name for name in sources if wanted is None or name in wanted]
        return {name: _stack_prepared([sources[name][k] for k in range(len(sources[name]))]) for name in names}, ''
    except Exception as error:  # array_record, protobuf and TFDS have no error in common
        return None, first_line(error)


def _stack_prepared(records: list[dict]) -> Split:
    """Classes by name: n x {name, items [m, ...]} -> Split. Takes the items away from the records."""
    records.sort(key=lambda record: record['name'])
    names = tuple(record['name'].decode() for record in records)
    attributes = np.stack([r['attributes'] for r in records]) if 'attributes' in records[0] else None
    return Split(*padded_classes([record.pop('items') for record in records]), names, attributes)


def _prepare(make: Make, source: Paths, folder: pathlib.Path) -> None:
    """Write the records of source beside folder, then move them into place: folder is never half there."""
    announce(f'preparing {folder} from {", ".join(map(str, source))} (once)')
    start = time.monotonic()
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as place:
        mark = _fingerprint_of_source(source)  # before reading, so that a source that changes meanwhile is read again
        builder = make(data_dir=pathlib.Path(place), source=source)
        with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints sizes that it does not know
            builder.download_and_prepare()
        made = pathlib.Path(builder.data_dir)
        (made / SOURCE).write_text(f'{mark} {" ".join(map(str, source))}\n')
        if folder.exists():
            folder.rename(pathlib.Path(place) / 'replaced')
        made.rename(folder)
    announce(f'prepared in {time.monotonic() - start:.0f} s')


def _fetch_again(fetch: Fetch, root: pathlib.Path, folder: pathlib.Path, damage: str) -> Paths:
    """What fetch brings. Damaged data are an error and not Missing: whoever had real data wants no stand-in."""
    try:
        return fetch(root)
    except Missing as error:
        if damage:
            raise DataError(f'{folder} is damaged ({damage}) and {error}') from error
        raise


def _fingerprint_of_source(paths: Paths) -> str:
    """Digest of the names, sizes and times of change of paths and of all files below them."""
    digest = hashlib.sha256()
    for path in map(os.path.abspath, paths):
        below = sorted(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)
        for file in [path, *below]:
            stat = os.lstat(file)
            digest.update(os.fsencode(f'{file} {stat.st_size} {stat.st_mtime_ns}\n'))
    return digest.hexdigest()


@contextlib.contextmanager
def _writing_prepared(folder: pathlib.Path) -> Iterator[None]:
    """Failures to write below folder, such as a full disk, as DataError."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # array_record has RuntimeError for a failed write
        raise DataError(
            f'cannot prepare {folder}: {first_line(error)}; make room or allow writing, or choose another `data_dir`'
        ) from error


@contextlib.contextmanager
def _preparing_alone(place: pathlib.Path) -> Iterator[None]:
    """One process at a time prepares in place, the next finds the data ready; what a killed one left is removed."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / '.lock', 'a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # some cluster file systems have no locks; then each prepares for itself
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        else:
            for left in place.glob(f'{TEMPORARY}*'):
                shutil.rmtree(left, ignore_errors=True)
        yield
