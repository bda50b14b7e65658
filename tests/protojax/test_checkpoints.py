"""Checkpoints: exact round trips, and every kind of corruption of their files."""

import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from protojax.checkpoints import Checkpoints
from protojax.errors import CheckpointError

# If one array of a corrupted checkpoint cannot be read, Orbax abandons the reading of the others.
pytestmark = pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')


def state(step):
    """Nested dictionaries, scalars and several types."""
    rng = np.random.default_rng(step)
    weights = rng.normal(size=(40, 3)).astype(np.float32)
    weights[0] = np.nan, -0.0, np.float32(1e-42)
    half = jnp.asarray(rng.normal(size=6), jnp.bfloat16)
    return {'step': jnp.int32(step), 'block': {'weights': weights, 'half': half}, 'bytes': np.arange(3, dtype=np.uint8)}


def same(a, b):
    """Return whether two trees agree in structure, types, shapes and every bit."""

    def bits(leaf):
        array = np.asarray(leaf)
        return f'{array.dtype}{array.shape}', array.tobytes()

    return jax.tree.map(bits, a) == jax.tree.map(bits, b)


def warnings(caplog):
    return [
        message for message in caplog.messages if re.match(r'checkpoint \d+ is corrupted', message)
    ]  # Orbax logs others


@pytest.fixture(scope='session')
def pristine(tmp_path_factory):
    """A folder with valid checkpoints of steps 10 and 20."""
    folder = tmp_path_factory.mktemp('pristine') / 'checkpoints'
    checkpoints = Checkpoints(folder)
    for step in (10, 20):
        checkpoints.save(step, state(step))
    checkpoints.close()
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / 'checkpoints')


def restore(folder):
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.restore(state(0))
    finally:
        checkpoints.close()


def test_round_trip_bit_for_bit(folder, tmp_path):
    assert same(restore(folder), (20, state(20)))
    assert restore(tmp_path / 'new') is None


def test_keeps_the_newest_also_of_an_earlier_run(folder):
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.save(30, state(30))
    assert checkpoints.steps() == [20, 30]
    checkpoints.close()
    assert same(restore(folder), (30, state(30)))


def test_any_file_flipped_or_truncated(pristine, tmp_path, caplog):
    noticed = {'flipped': 0, 'truncated': 0}
    for number, original in enumerate(sorted(path for path in (pristine / '20').rglob('*') if path.is_file())):
        for damage in noticed:
            folder = shutil.copytree(pristine, tmp_path / f'{number}-{damage}')
            path = folder / original.relative_to(pristine)
            content = path.read_bytes()
            middle = len(content) // 2
            path.write_bytes(content[:middle] + (b'\x5a' + content[middle + 1 :] if damage == 'flipped' else b''))
            step, tree = restore(folder)  # 20 if Orbax does not need the file
            assert same(tree, state(step)), (path, damage)
            assert step in (10, 20)
            noticed[damage] += step == 10
            assert (step == 10) == any(folder.glob('20.corrupted-*'))
    assert all(count >= 3 for count in noticed.values()), noticed
    assert len(warnings(caplog)) == sum(noticed.values())


def test_a_corrupted_record_is_not_mistaken_for_another_program(folder, caplog):
    record = folder / '20' / 'record' / 'metadata'
    content = record.read_text()
    assert '[40, 3]' in content
    record.write_text(content.replace('[40, 3]', '[41, 3]'))
    checkpoints = Checkpoints(folder)
    assert same(checkpoints.restore(state(0)), (10, state(10)))
    (warning,) = warnings(caplog)
    assert warning.startswith('checkpoint 20 is corrupted')
    assert checkpoints.steps() == [10] and any(folder.glob('20.corrupted-*'))
    checkpoints.save(20, state(20))  # the step can be written again
    assert same(checkpoints.restore(state(0)), (20, state(20)))
    checkpoints.close()


def test_arrays_of_another_step_are_noticed(folder, caplog):
    shutil.rmtree(folder / '20' / 'tree')
    shutil.copytree(folder / '10' / 'tree', folder / '20' / 'tree')
    assert same(restore(folder), (10, state(10)))
    (warning,) = warnings(caplog)
    assert 'digest' in warning


def test_all_corrupted(folder):
    for step in ('10', '20'):
        (folder / step / 'tree' / 'manifest.ocdbt').unlink()
    with pytest.raises(CheckpointError, match=f'(?s)^all checkpoints in {folder} are corrupted .steps .10, 20.*delete'):
        restore(folder)
    assert (folder / '20').is_dir()


def test_shapes_that_do_not_fit(folder):
    wider = state(0)
    wider['block']['weights'] = np.zeros((40, 4), np.float32)
    del wider['bytes']
    checkpoints = Checkpoints(folder)
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(wider)
    message = str(error.value)
    assert 'expected float32[40, 4], got float32[40, 3]' in message
    assert '\n' not in message
    assert checkpoints.steps() == [10, 20]  # not corrupted
    checkpoints.close()
