"""Vision Transformers give the embeddings of Hugging Face's code, whose outputs tests/make_vit_references.py writes."""

import functools
import io
import json
import os
import pathlib
import shutil
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import protojax
from protojax import hub_weights, pretrained
from protojax.encoders.images import scaled_pixels
from protojax.encoders.vit import VisionTransformer
from protojax.errors import WeightsError
from protojax.images import decode_image, image_form
from protojax.pretrained import save_pretrained

FOLDER = pathlib.Path(__file__).parent / 'vit'
KINDS = ('dinov2', 'dinov2_with_registers', 'clip')
SIZES = ('70x70', '42x56', '98x84')  # as in training; with fewer and with more patches


@functools.cache
def arrays(name):
    return np.load(FOLDER / name)


@functools.cache
def loaded(kind):
    return protojax.load_pretrained(FOLDER / kind / 'model.safetensors')


def embed(kind, images, **settings):
    weights = loaded(kind)
    encoder = weights.encoder.clone(unit_length=False, scale=1.0, **settings)
    return jax.jit(encoder.apply)({'params': weights.params}, images)


@pytest.mark.parametrize('kind', KINDS)
def test_embeddings_agree_with_hugging_face(kind):
    for size in SIZES:
        found = embed(kind, arrays('inputs.npz')[size])
        np.testing.assert_allclose(found, arrays(f'{kind}/outputs.npz')[size], rtol=0, atol=1e-5)


@pytest.mark.parametrize('kind', KINDS)
def test_files_are_read_as_hugging_face_processes_them(kind):
    """Exactly: resized pixels are integers, and only the normalisation rounds."""
    encoder = loaded(kind).encoder
    for size, picture in arrays('pictures.npz').items():
        file = io.BytesIO()
        Image.fromarray(picture).save(file, 'PNG')
        pixels = decode_image(file.getvalue(), image_form(encoder.clone(item_shape=(28, 28, 3))))
        found = scaled_pixels(jnp.asarray(pixels)[None], encoder.mean, encoder.std, jnp.float32)[0]
        np.testing.assert_allclose(found, arrays(f'{kind}/outputs.npz')[f'pixels {size}'], rtol=0, atol=1e-6)


def test_image_specs_are_those_of_the_hub():
    dinov2, clip = loaded('dinov2').encoder, loaded('clip').encoder
    assert (dinov2.item_shape, dinov2.crop) == ((224, 224, 3), 224 / 256)  # resized to 256, cropped to 224
    assert (clip.item_shape, clip.crop) == ((70, 70, 3), 1.0)  # resized and cropped to the size of training


def test_it_keeps_the_contract_of_encoders(tmp_path):
    weights = loaded('clip')
    images = arrays('inputs.npz')['70x70']
    embeddings = weights.embed(images)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 4, rtol=1e-5)
    rough = jax.jit(weights.encoder.clone(dtype=jnp.bfloat16).apply)({'params': weights.params}, images)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, embeddings, atol=0.1)
    save_pretrained(tmp_path / 'saved.safetensors', weights, weights.encoder.item_shape)
    again = protojax.load_pretrained(tmp_path / 'saved.safetensors')
    np.testing.assert_array_equal(again.embed(images), embeddings)
    with pytest.raises(ValueError, match='patches of 14 pixels'):
        weights.encoder.apply({'params': weights.params}, np.zeros((1, 70, 71, 3), np.uint8))


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(FOLDER / 'clip', tmp_path / 'clip')
    return tmp_path / 'clip' / 'model.safetensors'


def reconfigured(file, **changes):
    config = file.with_name('config.json')
    config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))


def resized(file):
    config = file.with_name('config.json')
    config.write_text(config.read_text().replace('"image_size": 70', '"image_size": 75'))


def piped(file):
    file.with_name('config.json').unlink()
    os.mkfifo(file.with_name('config.json'))


BAD = {
    'model_type dinov2, dinov2_with_registers, clip, got bert': lambda file: reconfigured(file, model_type='bert'),
    r'tensor encoder\.layer\.0\.': lambda file: reconfigured(file, model_type='dinov2', patch_size=14, image_size=70),
    r'visual_projection\.weight: expected .* \(16, 13\)': lambda file: reconfigured(file, projection_dim=13),
    'cannot have blocks=1000000000': lambda file: reconfigured(file, vision_config={'num_hidden_layers': 10**9}),
    'divisible into patches of 14': resized,
    'No such file': lambda file: file.with_name('config.json').unlink(),
    'not a regular file': piped,
    'Expecting value': lambda file: file.with_name('config.json').write_text(''),
    'holds no weights|usable': lambda file: file.write_bytes(file.read_bytes()[:-4]),
}


@pytest.mark.parametrize('message', BAD)
def test_a_file_of_another_network_is_one_line_that_names_the_problem(copied, message):
    BAD[message](copied)
    with pytest.raises(WeightsError, match=message) as raised:
        protojax.load_pretrained(copied)
    assert '\n' not in str(raised.value)


def test_a_name_is_downloaded_once(copied, monkeypatch):
    cached = []

    def look_up(*file, revision):
        return str(copied.with_name(file[1])) if file in cached else None

    def download(*file, revision):
        cached.append(file)
        return str(copied.with_name(file[1]))

    fake = types.SimpleNamespace(try_to_load_from_cache=look_up, hf_hub_download=download)
    monkeypatch.setitem(sys.modules, 'huggingface_hub', fake)
    for _ in range(2):
        weights = protojax.load_pretrained('clip-vit-base-patch16')
    assert isinstance(weights.encoder, VisionTransformer)
    assert cached == [('openai/clip-vit-base-patch16', name) for name in hub_weights.FILES]
    assert pretrained.name_of(weights.description['digest']) == 'clip-vit-base-patch16'
    cached.clear()
    fake.hf_hub_download = None  # any failure
    for package, message in ((fake, 'cannot be downloaded'), (None, r"pip install 'protojax\[hub\]'$")):
        monkeypatch.setitem(sys.modules, 'huggingface_hub', package)
        with pytest.raises(WeightsError, match=message):
            protojax.load_pretrained('clip-vit-base-patch16')
