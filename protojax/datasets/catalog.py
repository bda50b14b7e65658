"""Image classification sets of TFDS: images by class, read from array_record files without TensorFlow."""

import collections
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow_datasets as tfds

from protojax.datasets import prepared
from protojax.errors import DataError, first_line

Example = tuple[str, int]  # split and index
Found = tuple[str, dict[str, list[Example]], Callable[[Example], bytes]]  # title, examples by class, their images


@functools.lru_cache(maxsize=1)  # finding the classes takes a pass over all examples
@prepared.features_of_tfds()
def find(name: str, data_dir: str | None, image_key: str, label_key: str) -> Found:
    """Find the encoded images of the set `name` of TFDS, which is downloaded and prepared first if necessary.

    The splits train, validation and test are put together; others are used only if there is none of these.

    Args:
        data_dir: Folder of prepared sets; by default the folder of TFDS.
        image_key: Name of the image feature, or '' if there is only one.
        label_key: Name of the class label, or '' if there is only one.
    """
    try:
        root = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
        builder = tfds.builder(name, data_dir=root)
        if not builder.is_prepared():
            builder = tfds.builder(name, data_dir=root, file_format='array_record')
            prepared.prepare(builder)
        image = _key(builder, 'image_key', image_key, tfds.features.Image)
        label = _key(builder, 'label_key', label_key, tfds.features.ClassLabel)
        splits = [split for split in prepared.SPLITS if split in builder.info.splits] or list(builder.info.splits)
        pictures = [key for key, feature in builder.info.features.items() if isinstance(feature, tfds.features.Image)]
        encoded = dict.fromkeys(pictures, tfds.decode.SkipDecoding())
        records = {split: builder.as_data_source(split=split, decoders=encoded) for split in splits}
        examples = collections.defaultdict(list)
        for split, own in records.items():
            for index in range(len(own)):
                examples[own[index][label]].append((split, index))
        names = builder.info.features[label].int2str
        classes = {names(number): examples[number] for number in sorted(examples) if number >= 0}  # -1: unlabelled
    except DataError:
        raise
    except Exception as error:  # TFDS, its data sets and array_record have no common exception
        hint = "`pip install 'protojax[tfds]'` if a package is missing, or choose another `source`"
        raise DataError(f'`source=tfds:{name}` cannot be used ({first_line(error)}); {hint}') from error
    return builder.info.full_name, classes, lambda example: records[example[0]][example[1]][image]


def _key(builder: tfds.core.DatasetBuilder, option: str, key: str, kind: Any) -> str:
    """Return the feature of a kind: the given one, the only one, or the one that TFDS names for supervised learning."""
    keys = [name for name, feature in builder.info.features.items() if isinstance(feature, kind)]
    usual = [name for name in builder.info.supervised_keys or () if name in keys]
    chosen = [key] if key else keys if len(keys) == 1 else usual
    if len(chosen) != 1 or chosen[0] not in keys:
        text = f'set `{option}` to one of {", ".join(keys)}' if keys else f'it has no {kind.__name__}'
        raise DataError(f'tfds:{builder.name}: {text}')
    return chosen[0]
