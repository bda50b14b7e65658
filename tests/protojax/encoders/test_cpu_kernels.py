"""The C++ kernels against the plain JAX path, which test_block compares with the textbook."""

import functools
import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax.encoders import block, cpu
from protojax.encoders.cpu import build

needs_kernels = pytest.mark.skipif(cpu._unavailable() is not None, reason=f'no kernels: {cpu._unavailable()}')


def kernel_block(x, kernel, *args, **options):
    """Apply a block with the kernels."""
    return block.apply(x, kernel, *args, **options, steps=cpu.steps(x, kernel))


def arguments(n, h, w, c, *, seed=0, flat=False):
    """Return images, kernel, scale with a zero and negative values, bias; flat images are blocks of zeros and ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, h, w, c))
    if flat:
        x = np.kron(rng.normal(size=(n, h // 4 + 1, w // 4 + 1, c)) > 0.5, np.ones((1, 4, 4, 1)))[:, :h, :w]
    scale = 1 + 0.6 * rng.normal(size=64)
    scale[:2] = 0, -1.3
    return x, rng.normal(size=(3, 3, c, 64)) / (9 * c) ** 0.5, scale, 0.3 * rng.normal(size=64)


def loss_weights(args, statistics=None, *, ties=False):
    """Return weights of a loss on all outputs, zero where rounding might change the winner or cross the ReLU.

    With `ties`, windows with several winners count as well.
    """
    rng, (x, kernel, scale, bias) = np.random.default_rng(1), args
    with jax.enable_x64(True):
        y = np.asarray(block.convolution(jnp.asarray(x), jnp.asarray(kernel * np.where(scale < 0, -1, 1))))
    mean, var = statistics or (y.mean((0, 1, 2)), y.var((0, 1, 2)))
    n, h, w, f = y.shape
    windows = y[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, f)
    pooled = windows.max((2, 4), keepdims=True)
    near = pooled - windows < 1e-4
    close = (near & (pooled - windows > 1e-12)).any((2, 4)) if ties else near.sum((2, 4)) > 1
    pooled = pooled[:, :, 0, :, 0] * np.where(scale < 0, -1, 1)
    activations = (pooled - mean) / np.sqrt(var + block.EPSILON) * scale + bias
    clear = ~close & (np.abs(activations) > 1e-4)
    assert clear[..., 1:].mean() > 0.3
    return rng.normal(size=clear.shape) * clear, rng.normal(size=f), rng.normal(size=f)


def outputs_and_gradients(function, args, loss_weights, dtype=jnp.float32):
    """Return outputs and gradients of a compiled block, without the slope at the scale of zero, which has a kink."""

    def loss(*args):
        activations, statistics = function(*args)
        outputs = (activations, *statistics)
        return sum(jnp.sum(a * b) for a, b in zip(outputs, cast(loss_weights, dtype), strict=True)), outputs

    (x, kernel, scale, bias), outputs = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(*cast(args, dtype))
    return outputs, (x, kernel, scale[1:], bias)


def cast(tree, dtype):
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)


def assert_close(actual, expected, tolerance):
    """Compare the relative error of entire arrays: single elements may cancel."""
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        assert np.linalg.norm(a - b) <= tolerance * max(np.linalg.norm(b), 1e-3)


def compare(shape, *, flat=False, statistics=None, ties=False):
    """Compare the kernels in float32 with plain JAX in float64."""
    args = arguments(*shape, flat=flat)
    loss = loss_weights(args, statistics, ties=ties)

    def given(function, dtype):
        return functools.partial(function, statistics=statistics and block.Statistics(*cast(statistics, dtype)))

    actual = outputs_and_gradients(given(kernel_block, jnp.float32), args, loss)
    with jax.enable_x64(True):
        expected = outputs_and_gradients(given(block.apply, jnp.float64), args, loss, jnp.float64)
    if ties:  # the gradient of the images depends on who wins
        actual, expected = actual[1][1:], expected[1][1:]
    assert_close(actual, expected, 1e-5)


SHAPES = [(2, 28, 28, 1), (1, 42, 20, 3), (1, 21, 21, 64), (20, 3, 3, 64), (4, 2, 2, 1), (2, 10, 13, 64)]


@needs_kernels
@pytest.mark.parametrize(('shape', 'flat'), [*((s, False) for s in SHAPES), ((3, 9, 7, 64), True)], ids=str)
def test_batch_block_agrees_with_float64(shape, flat):
    compare(shape, flat=flat)


@needs_kernels
@pytest.mark.parametrize('shape', [(3, 28, 28, 1), (2, 14, 14, 64)], ids=str)
def test_gradients_of_parameters_do_not_depend_on_who_wins_a_tie(shape):
    compare(shape, flat=True, ties=True)


@needs_kernels
@pytest.mark.parametrize('shape', [(1, 9, 8, 3), (18, 21, 11, 64)], ids=str)
def test_block_with_given_statistics_agrees_with_float64(shape):
    compare(shape, statistics=(0.1 * np.arange(64) / 64, 0.5 + np.arange(64) / 64))


@needs_kernels
def test_statistics_and_gradients_are_shared_along_an_axis():
    args = arguments(8, 5, 6, 64)
    loss = loss_weights(args)
    shards = [np.reshape(a, (4, 2, *a.shape[1:])) for a in (args[0], loss[0])]

    def run(function):
        sharded = functools.partial(function, axis_name='devices')
        results = jax.pmap(lambda x, w: outputs_and_gradients(sharded, (x, *args[1:]), (w, *loss[1:])), 'devices')
        return results(*cast(shards, jnp.float32))

    assert_close(run(kernel_block), run(block.apply), 1e-5)


@needs_kernels
def test_scan_and_vmap_agree_with_single_calls():
    args = cast([arguments(2, 6, 6, 64, seed=i) for i in range(3)], jnp.float32)
    stacked = [jnp.stack(a) for a in zip(*args, strict=True)]
    gradient = jax.grad(lambda *a: kernel_block(*a)[0].sum(), (0, 1))
    single = [gradient(*a) for a in args]
    _, scanned = jax.jit(lambda s: jax.lax.scan(lambda c, a: (c, gradient(*a)), 0, s))(stacked)
    for results in (jax.vmap(gradient)(*stacked), scanned):
        assert_close([[r[i] for r in results] for i in range(3)], single, 1e-5)


@needs_kernels
def test_nan_is_not_lost():
    x, *args = cast(arguments(2, 4, 4, 64), jnp.float32)
    activations, _ = kernel_block(x.at[0, 0, 0].set(jnp.nan), *args, block.Statistics(jnp.zeros(64), jnp.ones(64)))
    assert np.isnan(activations[0, 0, 0]).sum() >= 63  # all but the filter of scale zero at most
    assert np.isfinite(activations[1]).all()


@needs_kernels
def test_same_bits_again_and_in_another_process_on_one_core():
    code = 'import os; os.sched_setaffinity(0, [0]); import test_cpu_kernels as t; print(t.fingerprint())'
    environment = os.environ | {'PYTHONPATH': os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    other = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=True)
    assert fingerprint() == fingerprint() == other.stdout.strip()


def fingerprint():
    """Hash every bit of the outputs and gradients of two blocks."""
    args = [arguments(40, 9, 9, c) for c in (3, 64)]
    results = [outputs_and_gradients(kernel_block, a, (np.ones((40, 4, 4, 64)), *a[2:])) for a in args]
    return hashlib.sha256(b''.join(np.asarray(a).tobytes() for a in jax.tree.leaves(results))).hexdigest()


@needs_kernels
@pytest.mark.parametrize('shape', [(2, 8, 8, 1), (2, 8, 8, 64)], ids=str)
def test_bfloat16_is_about_as_exact_as_in_plain_jax(shape):
    args = arguments(*shape)
    loss = loss_weights(args)

    def run(function, dtype, other=jnp.float32):
        x, *params = args
        rounded = (jnp.asarray(x, dtype).astype(other), *params)
        results = outputs_and_gradients(lambda x, *params: function(x.astype(dtype), *params), rounded, loss, other)
        assert results[0][0].dtype == dtype
        return [np.asarray(a, np.float64) for a in jax.tree.leaves(results)]

    actual, plain = run(kernel_block, jnp.bfloat16), run(block.apply, jnp.bfloat16)
    with jax.enable_x64(True):
        exact = run(block.apply, jnp.float64, jnp.float64)
    for a, b, c in zip(actual, plain, exact, strict=True):
        # Rounding makes equal outputs common: plain JAX shares the gradient among them, which errs less.
        assert np.linalg.norm(a - c) <= 2 * np.linalg.norm(b - c) + 1e-3 * np.linalg.norm(c)


@pytest.fixture
def explanations(caplog):
    """The messages about the plain path, of which each is logged once."""
    cpu._explain.cache_clear()
    return lambda: [message for message in caplog.messages if 'plain JAX instead' in message]


@pytest.mark.parametrize(
    ('shape', 'filters', 'dtype'),
    [((6, 6, 2), 64, 'float32'), ((6, 6, 3), 32, 'float32'), ((1, 6, 64), 64, 'float32'), ((6, 6, 1), 64, 'float16')],
)
def test_unsupported_inputs_use_the_plain_path(shape, filters, dtype, explanations):
    for _ in range(2):
        assert cpu.steps(jnp.zeros((2, *shape), dtype), jnp.zeros((3, 3, shape[-1], filters))) is block.PLAIN
    assert len(explanations()) == 1


@pytest.mark.parametrize(
    ('compiler', 'reason'), [('false', 'false fails'), ('/nonexistent/c++', '/nonexistent/c++ not found')]
)
def test_without_compiler_the_plain_path_is_used(compiler, reason, tmp_path, monkeypatch, explanations):
    monkeypatch.setenv('CXX', compiler)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(cpu, '_unavailable', functools.cache(cpu._unavailable.__wrapped__))
    for _ in range(2):
        assert cpu.steps(jnp.zeros((1, 4, 4, 64)), jnp.zeros((3, 3, 64, 64))) is block.PLAIN
    (line,) = explanations()
    assert reason in line


@needs_kernels
def test_damaged_library_is_built_again(tmp_path, monkeypatch, caplog):
    source = tmp_path / 'small.cc'  # the kernels themselves take long to compile
    source.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setattr(build, 'SOURCES', [source])
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    compiler = build._compiler()
    corrupted = build._compile(compiler, build._folder(), build._key(compiler))
    corrupted.write_bytes(corrupted.read_bytes()[:1000])
    library = build.load()
    assert 'corrupted' in caplog.text
    assert library._name == str(next(corrupted.parent.iterdir()))  # and no temporary file is left
    assert library.answer() == 42
    assert corrupted.parent.stat().st_mode & 0o777 == 0o700


def test_cache_of_another_user_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(os, 'getuid', lambda: 12345678)
    with pytest.raises(build.BuildError, match='another user'):
        build.load()
