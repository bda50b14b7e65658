"""Opens a source of miniImageNet: a folder, an archive (.zip, .tar, .tar.gz), a folder of archives or a pickle."""

import contextlib
import pathlib
from collections.abc import Iterator

from protojax.datasets.formats.pickle import read_pickle
from protojax.datasets.sources import miniimagenet_forms as forms
from protojax.datasets.sources.files import ARCHIVES, open_files, read_file
from protojax.errors import DataError

FORMS = {
    'lists': forms.miniimagenet_form_of_lists,
    'arrays': forms.miniimagenet_form_of_arrays,
    'folders': forms.miniimagenet_form_of_folders,
}


@contextlib.contextmanager
def open_miniimagenet_files(path: pathlib.Path) -> Iterator[tuple[dict[str, forms.Classes], str]]:
    """The splits that a source holds, to be read while it is open, and a few words on where they were found."""
    splits, places = {}, []
    below = sorted(path.iterdir()) if path.is_dir() else []
    parts = [path, *(file for file in below if file.name.lower().endswith(ARCHIVES))]  # those directly in a folder
    with contextlib.ExitStack() as stack:
        for part in parts:
            form, found = _miniimagenet_splits(part, stack)
            for name in found:
                if name in splits:
                    raise DataError(f'{part} holds the {name} split a second time; leave just one in `source`')
            splits |= found
            places += [f'{form} in {part}'] if found else []
        if not splits:
            raise DataError(
                f'{path} holds no train.csv, val.csv or test.csv, no folders train, val or test and no '
                'mini-imagenet-cache-*.pkl; give a `source` with one of these'
            )
        yield splits, ', '.join(places)


def _miniimagenet_splits(path: pathlib.Path, stack: contextlib.ExitStack) -> tuple[str, dict[str, forms.Classes]]:
    """The form and splits of one folder, archive or pickle: of the first form that is there."""
    if path.is_file() and (split := forms.split_in_form_of_arrays(path.name)):
        return 'arrays', {split: forms.classes_in_form_of_arrays(read_pickle(read_file(path), path), path, split)}
    if path.is_file() and not path.name.lower().endswith(ARCHIVES):
        raise DataError(
            f'{path} is no folder, {", ".join(ARCHIVES)} or mini-imagenet-cache-*.pkl; give such a `source`'
        )
    files = stack.enter_context(open_files(path))
    for form, find in FORMS.items():
        if splits := find(files):
            return form, splits
    return '', {}
