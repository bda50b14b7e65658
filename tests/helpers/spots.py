"""A small data set of TFDS, which registers it when this module is imported."""

import io

import tensorflow_datasets as tfds
from PIL import Image


class Spots(tfds.core.GeneratorBasedBuilder):
    """Eight colours in PNG files, which TFDS stores without TensorFlow; two features are images, and two are labels."""

    VERSION = tfds.core.Version('1.0.0')
    url_infos = None

    def _info(self):
        features = {name: tfds.features.Image() for name in ('image', 'mask')}
        features['colour'] = tfds.features.ClassLabel(names=[f'colour{k}' for k in range(8)])
        features['size'] = tfds.features.ClassLabel(num_classes=2)
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {'train': self._generate_examples(range(24)), 'test': self._generate_examples(range(24, 40))}

    def _generate_examples(self, numbers):
        for number in numbers:
            Image.new('RGB', (20, 30), (30 * (number % 8), number, 99)).save(file := io.BytesIO(), 'PNG')
            pictures = {name: io.BytesIO(file.getvalue()) for name in ('image', 'mask')}
            yield number, {**pictures, 'colour': number % 8, 'size': number % 2}
