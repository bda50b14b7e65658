"""Weights for images of one's own."""

import dataclasses

import numpy as np
import pytest

from experiments.own_images import loading
from experiments.running.config import ConfigError
from protojax.pretrained import load_pretrained, save_pretrained


def test_weights_with_a_learned_distance_are_rejected(tmp_path):
    weights = dataclasses.replace(load_pretrained('omniglot-60way-1shot'), classifier=np.ones(64, np.float32))
    save_pretrained(tmp_path / 'w.safetensors', weights, (28, 28, 1))
    with pytest.raises(ConfigError, match='plain squared Euclidean distances'):
        loading.load_weights(str(tmp_path / 'w.safetensors'))
