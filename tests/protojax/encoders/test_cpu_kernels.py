"""The C++ kernels against the plain JAX path, which tests of its own hold against the textbook."""

import functools
import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax.encoders import block as blocks
from protojax.encoders import cpu
from protojax.encoders.cpu import build

NAMES = ('x', 'kernel', 'scale', 'bias')
needs_kernels = pytest.mark.skipif(cpu._unavailable() is not None, reason=f'no kernels: {cpu._unavailable()}')


def kernel_batch_block(x, kernel, scale, bias, *, axis_name=None):
    """Batch block on the kernels."""
    return blocks.batch_block(x, kernel, scale, bias, axis_name=axis_name, steps=cpu.steps(x, kernel))


def kernel_fixed_block(x, kernel, scale, bias, statistics):
    """Fixed block on the kernels."""
    return blocks.fixed_block(x, kernel, scale, bias, statistics, steps=cpu.steps(x, kernel))


def arguments(n, h, w, c, *, seed=0, flat=False):
    """Images, kernel, scale with a zero and negative values, bias; flat images hold blocks of zeros and ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, h, w, c))
    if flat:
        x = np.kron(rng.normal(size=(n, h // 4 + 1, w // 4 + 1, c)) > 0.5, np.ones((1, 4, 4, 1)))[:, :h, :w]
    scale = 1 + 0.6 * rng.normal(size=64)
    scale[:2] = 0, -1.3
    return x, rng.normal(size=(3, 3, c, 64)) / (9 * c) ** 0.5, scale, 0.3 * rng.normal(size=64)


def loss_weights(args, statistics=None, *, seed=1, ties=False):
    """Weights of a loss on all outputs of a block, zero where rounding might change the winner or cross the ReLU.

    With `ties` windows with several winners count as well.
    """
    rng = np.random.default_rng(seed)
    x, kernel, scale, bias = args
    with jax.enable_x64(True):
        y = np.asarray(blocks.convolution(jnp.asarray(x), jnp.asarray(kernel * np.where(scale < 0, -1, 1))))
    mean, var = statistics or (y.mean((0, 1, 2)), y.var((0, 1, 2)))
    n, h, w, f = y.shape
    windows = y[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, f)
    pooled = windows.max((2, 4), keepdims=True)
    near = pooled - windows < 1e-4
    close = near.sum((2, 4)) > 1
    if ties:
        close = (near & (pooled - windows > 1e-12)).any((2, 4))
    pooled = pooled[:, :, 0, :, 0] * np.where(scale < 0, -1, 1)
    activations = (pooled - mean) / np.sqrt(var + blocks.EPSILON) * scale + bias
    clear = ~close & (np.abs(activations) > 1e-4)
    assert clear[..., 1:].mean() > 0.3
    return rng.normal(size=clear.shape) * clear, rng.normal(size=f), rng.normal(size=f)


def value_and_gradients(block, args, loss_weights, dtype=jnp.float32):
    """Outputs and gradients of a compiled batch block."""

    def loss(*args):
        activations, statistics = block(*args)
        outputs = (activations, *statistics)
        return sum(jnp.sum(a * b) for a, b in zip(outputs, cast(loss_weights, dtype), strict=True)), outputs

    gradients, outputs = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*cast(args, dtype))
    return outputs, gradients


def fixed(fixed_block, statistics):
    """A fixed block in the form of a batch block."""

    def block(*args):
        given = blocks.BlockStatistics(*(s.astype(args[0].dtype) for s in statistics))
        return fixed_block(*args, given), given

    return block


def cast(tree, dtype):
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)


def assert_close(actual, expected, tolerance):
    """Relative error of each whole array: single elements may cancel."""
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        assert np.linalg.norm(a - b) <= tolerance * max(np.linalg.norm(b), 1e-3)


SHAPES = [(3, 28, 28, 1), (1, 84, 84, 3), (3, 14, 14, 64), (1, 42, 42, 64), (2, 21, 21, 64), (5, 7, 7, 64)]
SHAPES += [(20, 3, 3, 64), (1, 5, 7, 1), (2, 3, 2, 3), (4, 2, 2, 1), (1, 7, 5, 64), (7, 2, 3, 64), (2, 10, 13, 64)]
CASES = [(shape, False) for shape in SHAPES] + [((3, 28, 28, 1), True), ((2, 14, 14, 64), True), ((3, 9, 7, 64), True)]


def without_kink(results):
    """Outputs and gradients but that of a zero scale, where any slope between those of both sides will do."""
    outputs, (x, kernel, scale, bias) = results
    return outputs, (x, kernel, scale[1:], bias)


@needs_kernels
@pytest.mark.parametrize(('shape', 'flat'), CASES, ids=str)
def test_batch_block_agrees_with_float64(shape, flat):
    args = arguments(*shape, flat=flat)
    loss = loss_weights(args)
    actual = value_and_gradients(kernel_batch_block, args, loss)
    with jax.enable_x64(True):
        expected = value_and_gradients(blocks.batch_block, args, loss, jnp.float64)
    assert_close(without_kink(actual), without_kink(expected), 1e-5)


@needs_kernels
@pytest.mark.parametrize('shape', [(3, 28, 28, 1), (2, 14, 14, 64), (3, 9, 7, 64), (2, 18, 18, 64)], ids=str)
def test_gradients_of_parameters_do_not_depend_on_who_wins_a_tie(shape):
    args = arguments(*shape, flat=True)
    loss = loss_weights(args, ties=True)
    actual = value_and_gradients(kernel_batch_block, args, loss)
    with jax.enable_x64(True):
        expected = value_and_gradients(blocks.batch_block, args, loss, jnp.float64)
    assert_close(without_kink(actual)[1][1:], without_kink(expected)[1][1:], 1e-5)


@needs_kernels
@pytest.mark.parametrize(
    'shape', [(2, 28, 28, 1), (1, 9, 8, 3), (2, 14, 14, 64), (3, 5, 3, 64), (18, 21, 11, 64)], ids=str
)
def test_fixed_block_agrees_with_float64(shape):
    args, statistics = arguments(*shape), (0.1 * np.arange(64) / 64, 0.5 + np.arange(64) / 64)
    loss = loss_weights(args, statistics)
    actual = value_and_gradients(fixed(kernel_fixed_block, statistics), args, loss)
    with jax.enable_x64(True):
        expected = value_and_gradients(fixed(blocks.fixed_block, statistics), args, loss, jnp.float64)
    assert_close(without_kink(actual), without_kink(expected), 1e-5)


def chain(batch_block, params, x):
    for kernel, scale, bias in params:
        x, _ = batch_block(x, kernel, scale, bias)
    return x


@needs_kernels
@pytest.mark.parametrize('shape', [(10, 28, 28, 1), (3, 84, 84, 3)], ids=str)
def test_four_blocks_round_like_float32(shape):
    """Winograd's tiles of 4x4 and 6x6 pixels round 3 and 9 times as much as the plain sum, a layer of them."""
    x = arguments(*shape)[0]
    params = [arguments(1, 2, 2, c, seed=i)[1:] for i, c in enumerate((shape[-1], 64, 64, 64))]

    def run(batch_block, dtype):
        def loss(params, x):
            embeddings = chain(batch_block, params, x)
            return jnp.sum(embeddings**2), embeddings

        gradients, embeddings = jax.jit(jax.grad(loss, has_aux=True))(*cast((params, x), dtype))
        return jax.tree.map(lambda a: np.asarray(a, np.float64), (embeddings, gradients))

    actual, plain = run(kernel_batch_block, jnp.float32), run(blocks.batch_block, jnp.float32)
    with jax.enable_x64(True):
        exact = run(blocks.batch_block, jnp.float64)
    assert np.abs(actual[0] - exact[0]).max() <= 9 * np.abs(plain[0] - exact[0]).max()
    assert_close(actual[1], exact[1], 0.03)  # rounding changes the winner of a window here and there


@needs_kernels
@pytest.mark.parametrize('transform', [jax.vmap, jax.pmap], ids=['vmap', 'pmap'])
@pytest.mark.parametrize('shape', [(2, 6, 6, 1), (2, 5, 6, 64)], ids=str)
def test_statistics_and_gradients_are_shared_along_an_axis(transform, shape):
    devices = 4
    assert jax.device_count() >= devices, 'needs XLA_FLAGS=--xla_force_host_platform_device_count=8'
    args = arguments(devices * shape[0], *shape[1:])
    loss = loss_weights(args)
    spread = [np.reshape(a, (devices, shape[0], *a.shape[1:])) for a in (args[0], loss[0])]

    def run(batch_block):
        block = functools.partial(batch_block, axis_name='devices')
        mapped = transform(lambda x, w: value_and_gradients(block, (x, *args[1:]), (w, *loss[1:])), axis_name='devices')
        return mapped(*cast(spread, jnp.float32))

    assert_close(run(kernel_batch_block), run(blocks.batch_block), 1e-5)


@needs_kernels
def test_scan_and_vmap_agree_with_single_calls():
    args = cast([arguments(2, 6, 6, 64, seed=i) for i in range(3)], jnp.float32)
    stacked = [jnp.stack(a) for a in zip(*args, strict=True)]
    single = [jax.grad(lambda *a: kernel_batch_block(*a)[0].sum(), (0, 1))(*a) for a in args]
    gradient = jax.grad(lambda *a: kernel_batch_block(*a)[0].sum(), (0, 1))
    _, scanned = jax.jit(lambda s: jax.lax.scan(lambda c, a: (c, gradient(*a)), 0, s))(stacked)
    for results in (jax.vmap(gradient)(*stacked), scanned):
        assert_close([[r[i] for r in results] for i in range(3)], single, 1e-5)


@needs_kernels
def test_nan_is_not_lost():
    x, *args = cast(arguments(2, 4, 4, 64), jnp.float32)
    activations = kernel_fixed_block(
        x.at[0, 0, 0].set(jnp.nan), *args, blocks.BlockStatistics(jnp.zeros(64), jnp.ones(64))
    )
    assert np.isnan(activations[0, 0, 0]).sum() >= 63  # all but the filter of scale zero at most
    assert np.isfinite(activations[1]).all()


@needs_kernels
def test_training_step_of_first_block_holds_no_plain_convolution():
    args = cast(arguments(2, 8, 8, 3), jnp.float32)
    step = jax.jit(jax.grad(lambda k, s, b: kernel_batch_block(args[0], k, s, b)[0].sum(), (0, 1, 2)))
    text = step.lower(*args[1:]).compile().as_text()
    assert 'convolve_pool_relu_gradient' in text
    assert 'convolution(' not in text


@needs_kernels
def test_same_bits_again_and_in_another_process_on_one_core():
    code = 'import os; os.sched_setaffinity(0, [0]); import test_cpu_kernels as t; print(t.fingerprint())'
    environment = os.environ | {'PYTHONPATH': os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    other = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=True)
    assert fingerprint() == fingerprint() == other.stdout.strip()


def fingerprint():
    """Every bit of the outputs and gradients of two blocks."""
    args = [arguments(40, 9, 9, c) for c in (3, 64)]
    results = [value_and_gradients(kernel_batch_block, a, (np.ones((40, 4, 4, 64)), *a[2:])) for a in args]
    return hashlib.sha256(b''.join(np.asarray(a).tobytes() for a in jax.tree.leaves(results))).hexdigest()


@pytest.mark.parametrize(
    ('shape', 'filters', 'dtype', 'reason'),
    [
        ((2, 6, 6, 2), 64, jnp.float32, 'from 1, 3 or 64 channels'),
        ((2, 6, 6, 3), 32, jnp.float32, 'to 64 filters'),
        ((2, 1, 6, 64), 64, jnp.float32, 'images of 2x2 pixels'),
        ((2, 6, 6, 1), 64, jnp.float16, 'float32 and bfloat16 images'),
    ],
    ids=['channels', 'filters', 'size', 'type'],
)
def test_plain_path_takes_over(shape, filters, dtype, reason, caplog):
    cpu._explain.cache_clear()
    x, kernel, scale, bias = cast(arguments(*shape), jnp.float32)
    args = (x.astype(dtype), kernel[..., :filters], scale[:filters], bias[:filters])
    for _ in range(2):
        actual = kernel_batch_block(*args)
        fixed_actual = kernel_fixed_block(*args, actual[1])
    expected = blocks.batch_block(*args)
    for a, b in zip(jax.tree.leaves((actual, fixed_actual)), jax.tree.leaves((expected, expected[0])), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(jnp.float32), b.astype(jnp.float32), rtol=1e-2, atol=1e-2)
    lines = [message for message in caplog.messages if 'Plain JAX instead' in message]
    assert len(lines) == 1
    assert reason in lines[0]


@pytest.mark.parametrize(
    ('compiler', 'reason'), [('/nonexistent/c++', 'not found'), ('false', 'false fails')], ids=['missing', 'failing']
)
def test_without_compiler_the_plain_path_takes_over(compiler, reason, tmp_path):
    code = (
        'import jax.numpy as jnp, numpy as np; import test_cpu_kernels as t;'
        'from protojax.encoders import block as blocks;'
        'a = t.cast(t.arguments(1, 4, 4, 64), jnp.float32);'
        '[np.testing.assert_array_equal(t.kernel_batch_block(*a)[0], blocks.batch_block(*a)[0]) for _ in range(2)]'
    )
    environment = os.environ | {'CXX': compiler, 'XDG_CACHE_HOME': str(tmp_path)}
    environment['PYTHONPATH'] = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    run = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=True)
    assert run.stderr.count('Plain JAX instead of the CPU kernels: ') == 1
    assert reason in run.stderr


@needs_kernels
def test_damaged_library_is_built_again(tmp_path, monkeypatch, caplog):
    source = tmp_path / 'small.cc'  # the kernels themselves take long to compile
    source.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setattr(build, 'SOURCES', [source])
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    compiler = build._compiler()
    damaged = build._compile(compiler, build._cache_directory(), build._key(compiler))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    library = build.load_kernels()
    assert 'damaged' in caplog.text
    assert library._name == str(next(damaged.parent.iterdir()))  # and no temporary file is left
    assert library.answer() == 42
    assert damaged.parent.stat().st_mode & 0o777 == 0o700


def test_cache_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(os, 'getuid', lambda: 12345678)
    with pytest.raises(build.BuildError, match='another user'):
        build._cache_directory()


@needs_kernels
@pytest.mark.parametrize('shape', [(3, 28, 28, 1), (2, 20, 20, 3), (3, 14, 14, 64), (2, 18, 18, 64)], ids=str)
def test_bfloat16_is_about_as_exact_as_in_plain_jax(shape):
    args = arguments(*shape)
    loss = loss_weights(args)

    def run(batch_block, dtype, other=jnp.float32):
        x, *params = args
        block = lambda x, *params: batch_block(x.astype(dtype), *params)  # noqa: E731
        results = value_and_gradients(block, (jnp.asarray(x, dtype).astype(other), *params), loss, other)
        assert results[0][0].dtype == dtype
        return [np.asarray(a, np.float64) for a in jax.tree.leaves(without_kink(results))]

    actual, plain = run(kernel_batch_block, jnp.bfloat16), run(blocks.batch_block, jnp.bfloat16)
    with jax.enable_x64(True):
        exact = run(blocks.batch_block, jnp.float64, jnp.float64)
    for a, b, c in zip(actual, plain, exact, strict=True):
        # Rounding makes equal outputs common: plain JAX shares the gradient among them, which errs less.
        assert np.linalg.norm(a - c) <= 2 * np.linalg.norm(b - c) + 1e-3 * np.linalg.norm(c)
