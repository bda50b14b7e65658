"""Omniglot: 1,623 characters of 50 alphabets, 20 drawings of each (Lake et al. 2015), as 28x28 grey images."""

import functools
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

from protojax.datasets import Data, Split
from protojax.datasets.formats.pictures import read_picture
from protojax.datasets.preparing import PreparedBuilder, load_prepared, prepared_or_synthetic
from protojax.datasets.sources import announce
from protojax.datasets.sources.downloads import RemoteFile, download
from protojax.datasets.sources.files import Files, open_files
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import DataError

# Characters of each alphabet, background set first.
ALPHABETS = {
    'Alphabet_of_the_Magi': 20, 'Anglo-Saxon_Futhorc': 29, 'Arcadian': 26, 'Armenian': 41, 'Asomtavruli_(Georgian)': 40,
    'Balinese': 24, 'Bengali': 46, 'Blackfoot_(Canadian_Aboriginal_Syllabics)': 14, 'Braille': 26,
    'Burmese_(Myanmar)': 34, 'Cyrillic': 33, 'Early_Aramaic': 22, 'Futurama': 26, 'Grantha': 43, 'Greek': 24,
    'Gujarati': 48, 'Hebrew': 22, 'Inuktitut_(Canadian_Aboriginal_Syllabics)': 16, 'Japanese_(hiragana)': 52,
    'Japanese_(katakana)': 47, 'Korean': 40, 'Latin': 26, 'Malay_(Jawi_-_Arabic)': 40, 'Mkhedruli_(Georgian)': 41,
    'N_Ko': 33, 'Ojibwe_(Canadian_Aboriginal_Syllabics)': 14, 'Sanskrit': 42, 'Syriac_(Estrangelo)': 23, 'Tagalog': 17,
    'Tifinagh': 55, 'Angelic': 20, 'Atemayar_Qelisayer': 26, 'Atlantean': 26, 'Aurek-Besh': 26, 'Avesta': 26,
    'Ge_ez': 26, 'Glagolitic': 45, 'Gurmukhi': 45, 'Kannada': 41, 'Keble': 26, 'Malayalam': 47, 'Manipuri': 40,
    'Mongolian': 30, 'Old_Church_Slavonic_(Cyrillic)': 45, 'Oriya': 46, 'Sylheti': 28, 'Syriac_(Serto)': 23,
    'Tengwar': 25, 'Tibetan': 42, 'ULOG': 26,
}  # fmt: skip
VALIDATION = ('Armenian', 'Bengali', 'Early_Aramaic', 'Hebrew', 'Mkhedruli_(Georgian)')
TEST = ('Kannada', 'Keble', 'Malayalam', 'Manipuri', 'Mongolian', 'Old_Church_Slavonic_(Cyrillic)', 'Oriya', 'Sylheti',
        'Syriac_(Serto)', 'Tengwar', 'Tibetan', 'ULOG')  # fmt: skip
TEST_CHARACTERS = tuple(f'Gurmukhi/character{n}' for n in (42, 43, 44, 45))
SPLITS = ('train', 'validation', 'test')
DRAWINGS = 20

HALVES = ('images_background', 'images_evaluation')
ADDRESS = 'https://github.com/brendenlake/omniglot/raw/master/python/'
REMOTES = tuple(
    RemoteFile(f'{ADDRESS}{half}.zip', size, sha256)
    for half, size, sha256 in (
        (HALVES[0], 9464212, 'ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640'),
        (HALVES[1], 6462886, '1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee'),
    )
)
LONGEST = 1 << 16  # bytes of a drawing's file; they have about 500
FILTERS = {'antialias': Image.Resampling.BOX, 'nearest': Image.Resampling.NEAREST}
CHARACTER = re.compile(r'[^/]+/character\d\d', re.IGNORECASE)


def load_omniglot(
    *,
    data: str = 'auto',
    source: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    resize: str = 'antialias',
    rotations: bool = True,
    seed: int = 0,
) -> Data:
    """Omniglot in memory, items uint8 [classes, 20, 28, 28, 1] with ink = 255.

    data: 'real', 'synthetic' (drawn from `seed`) or 'auto', which is synthetic where real data cannot be had.
    rotations: every character turned by 0, 90, 180 and 270 degrees is four classes.
    """
    if resize not in FILTERS:
        raise DataError(f'`resize={resize}` is unknown; choose {" or ".join(FILTERS)}')
    load_real = functools.partial(_real_omniglot, source, data_dir, resize)
    found = prepared_or_synthetic(data, real=load_real, synthetic=functools.partial(handwriting, seed))
    return found._replace(**{name: rotated_characters(getattr(found, name)) for name in SPLITS}) if rotations else found


def _real_omniglot(source, data_dir, resize: str) -> Data:
    """Omniglot as prepared, or prepared now from source or the network."""
    splits = load_prepared(
        functools.partial(OmniglotCharacters, config=resize),
        source=_find_omniglot_halves(pathlib.Path(source).expanduser()) if source else None,
        data_dir=data_dir,
        fetch=lambda root: [download(remote, root / 'downloads' / 'omniglot') for remote in REMOTES],
    )
    splits = {name: split._replace(items=split.items[..., None]) for name, split in splits.items()}
    return Data('Omniglot', False, **splits)


def rotated_characters(split: Split) -> Split:
    """Each class four times, turned counter-clockwise: [L, I, H, W, C] -> [4 L, I, H, W, C]."""
    turned = np.stack([np.rot90(split.items, turns, (2, 3)) for turns in range(4)], 1)
    names = tuple(f'{name}/rot{90 * turns:03}' for name in split.names for turns in range(4))
    return Split(turned.reshape(-1, *split.items.shape[1:]), np.repeat(split.counts, 4), names)


class _OmniglotCharacter(NamedTuple):
    """Where the drawings of a character are."""

    path: pathlib.Path  # a folder or an archive
    files: list[str]


class OmniglotCharacters(PreparedBuilder):
    """One record per character, unlike TFDS's own omniglot with one per drawing."""

    VERSION = tfds.core.Version('1.0.0')
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in FILTERS]
    FEATURES = {'items': tfds.features.Tensor(shape=(None, 28, 28), dtype=np.uint8)}
    alphabets = ALPHABETS

    def _split_generators(self, dl_manager):
        found = _omniglot_inventory(self.source)
        _check_omniglot_completeness(found, self.alphabets, self.source)
        splits = {split: {} for split in SPLITS}
        for name in expected_characters(self.alphabets):
            splits[split_of_character(name)][name] = found[name]
        return {split: self._generate_examples(characters) for split, characters in splits.items()}

    def _generate_examples(self, characters: Mapping[str, _OmniglotCharacter]) -> Iterator[tuple[str, dict]]:
        for path in self.source:
            with open_files(path) as files:
                for name, character in characters.items():
                    if character.path == path:
                        drawings = [_shrink_drawing(files, file, self.builder_config.name) for file in character.files]
                        yield name, {'name': name, 'items': np.stack(drawings)}


def _shrink_drawing(files: Files, name: str, resize: str) -> np.ndarray:
    """A drawing, 105x105 with ink = 0 in its file -> uint8 [28, 28] with ink = 255."""
    contents = files.contents(name, LONGEST)
    drawing = read_picture(contents, files.path / name, size=(105, 105), mode='L', formats=('PNG',))
    return 255 - np.asarray(drawing.resize((28, 28), FILTERS[resize]))


def expected_characters(alphabets: Mapping[str, int]) -> list[str]:
    """Names of all characters: 'Korean/character03'."""
    return [f'{alphabet}/character{n:02}' for alphabet, count in alphabets.items() for n in range(1, count + 1)]


def split_of_character(character: str) -> str:
    """The official split, which goes by alphabets but for four characters of Gurmukhi."""
    alphabet = character.split('/')[0]
    if alphabet in TEST or character in TEST_CHARACTERS:
        return 'test'
    return 'validation' if alphabet in VALIDATION else 'train'


def _find_omniglot_halves(source: pathlib.Path) -> list[pathlib.Path]:
    """The two halves, folders or archives: in the folder `source`, beside the one that it names, or in one archive."""
    if not os.path.exists(source):
        raise DataError(f'`source={source}` does not exist')
    if source.is_file() and not source.name.startswith(HALVES):
        return [source]
    place = source if source.is_dir() and source.name not in HALVES else source.parent
    places = [[path for path in (place / f'{half}.zip', place / half) if path.exists()] for half in HALVES]
    for half, paths in zip(HALVES, places, strict=True):
        if not paths:
            raise DataError(f'`source={source}` has no {half}, as a folder or as {half}.zip; put both halves there')
    return [source if source in paths else paths[0] for paths in places]


def _omniglot_inventory(paths: Sequence[pathlib.Path]) -> dict[str, _OmniglotCharacter]:
    """The characters below paths by name; all else, such as notes and hidden files, is passed over."""
    found = {}
    for path in paths:
        with open_files(path) as files:
            for file in files.names:
                name = '/'.join(file.split('/')[-3:-1])
                if CHARACTER.fullmatch(name) and file.lower().endswith('.png'):
                    character = found.setdefault(name, _OmniglotCharacter(path, []))
                    if character.path == path:  # not a copy in another archive
                        character.files.append(file)
    return found


def _check_omniglot_completeness(
    found: Mapping[str, _OmniglotCharacter], alphabets: Mapping[str, int], paths: Sequence[pathlib.Path]
) -> None:
    """DataError if a character is missing; a line if drawings are."""
    missing = [name for name in expected_characters(alphabets) if name not in found]
    if missing:
        wholly = [alphabet for alphabet in alphabets if not any(name.startswith(f'{alphabet}/') for name in found)]
        names = [f'all of {a}' for a in wholly] + [name for name in missing if name.split('/')[0] not in wholly]
        few = ', '.join(names[:4] + ['...'] * (len(names) > 4))
        where = ' and '.join(map(str, paths))
        raise DataError(f'{where} lack {len(missing)} characters ({few}); get the whole data set')
    lacking = [name for name in expected_characters(alphabets) if len(found[name].files) < DRAWINGS]
    if lacking:
        drawings = sum(DRAWINGS - len(found[name].files) for name in lacking)
        announce(f'{drawings} drawings are missing, of {len(lacking)} characters ({lacking[0]} the first)')
