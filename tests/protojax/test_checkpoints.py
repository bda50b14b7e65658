"""Checkpoints: exact round trips, and every kind of damage to the files that hold them."""

import re
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging

from protojax.checkpoints import Checkpoints
from protojax.errors import CheckpointError

# Where one array of a damaged checkpoint cannot be read, Orbax abandons the reading of the others.
pytestmark = pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')


class State(NamedTuple):
    """As a training state: a tuple of nested dictionaries, scalars and several types."""

    step: Any
    params: Any
    nothing: Any = ()


def state(step):
    rng = np.random.default_rng(step)
    weights = rng.normal(size=(40, 3)).astype(np.float32)
    weights[0] = np.nan, -0.0, np.float32(1e-42)
    half = jnp.asarray(rng.normal(size=6), jnp.bfloat16)
    return State(
        jnp.int32(step),
        {'block': {'weights': jnp.asarray(weights), 'half': half}, 'bytes': np.arange(3, dtype=np.uint8)},
    )


def same(a, b):
    """Whether two trees agree in structure, types, shapes and every bit."""
    a, b = (jax.tree.map(np.asarray, tree) for tree in (a, b))
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)


@pytest.fixture
def warnings(monkeypatch):
    """The warnings of damage that are logged during the test."""
    messages = []

    def note(message, *args):
        if 'damaged' in message:  # Orbax has warnings of its own
            messages.append(message % args)

    monkeypatch.setattr(logging, 'warning', note)
    return messages


@pytest.fixture(scope='session')
def pristine(tmp_path_factory):
    """A folder with the undamaged checkpoints of steps 10 and 20."""
    folder = tmp_path_factory.mktemp('pristine') / 'checkpoints'
    checkpoints = Checkpoints(folder)
    for step in (10, 20):
        checkpoints.save(step, state(step))
    checkpoints.close()
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / 'checkpoints')


def files(checkpoint):
    return sorted(path for path in checkpoint.rglob('*') if path.is_file())


def restore(folder):
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.restore(state(0))
    finally:
        checkpoints.close()


def check_falls_back(folder, warnings):
    """The damaged step 20 gives way to step 10 with a warning, is kept aside, and can be written again."""
    checkpoints = Checkpoints(folder)
    step, tree = checkpoints.restore(state(0))
    assert step == 10
    assert same(tree, state(10))
    assert len(warnings) == 1
    assert warnings[0].startswith('checkpoint 20 is damaged')
    assert (folder / '20.damaged').is_dir()
    assert checkpoints.steps() == [10]
    checkpoints.save(20, state(20))
    assert same(checkpoints.restore(state(0)), (20, state(20)))
    checkpoints.close()


def test_round_trip_bit_for_bit(folder):
    found = restore(folder)
    assert same(found, (20, state(20)))
    assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in jax.tree.leaves(found[1]))


def test_nothing_there(tmp_path):
    assert restore(tmp_path / 'new') is None


@pytest.mark.parametrize('keep', [1, 2])
def test_keeps_the_newest(tmp_path, keep):
    checkpoints = Checkpoints(tmp_path, keep=keep)
    for step in (1, 2, 3, 11):
        checkpoints.save(step, state(step))
    assert checkpoints.steps() == [1, 2, 3, 11][-keep:]
    assert checkpoints.restore(state(0))[0] == 11
    checkpoints.close()


def test_continues_in_a_folder_of_an_earlier_run(folder):
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.save(30, state(30))
    assert checkpoints.steps() == [20, 30]
    checkpoints.close()
    assert same(restore(folder), (30, state(30)))


def test_any_file_flipped_cut_or_missing(pristine, tmp_path, warnings):
    damages = {
        'flipped': lambda content: bytes(byte ^ 1 for byte in content),
        'middle': lambda content: content[: len(content) // 2] + b'\x5a' + content[len(content) // 2 + 1 :],
        'cut': lambda content: content[: len(content) // 2],
        'empty': lambda content: b'',
        'missing': None,
    }
    noticed = {name: 0 for name in damages}
    for number, original in enumerate(files(pristine / '20')):
        for name, damage in damages.items():
            folder = shutil.copytree(pristine, tmp_path / f'{number}-{name}')
            path = folder / original.relative_to(pristine)
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage(path.read_bytes()))
            # Orbax does not need all its files: without the others the checkpoint is still whole.
            step, tree = restore(folder)
            assert same(tree, state(step)), (path, name)
            assert step in (10, 20)
            noticed[name] += step == 10
            assert (step == 10) == (folder / '20.damaged').exists()
    assert all(count >= 3 for count in noticed.values()), noticed
    assert len(warnings) == sum(noticed.values())


def test_a_damaged_record_does_not_pass_for_another_program(folder, warnings):
    record = folder / '20' / 'record' / 'metadata'
    content = record.read_text()
    assert '[40, 3]' in content
    record.write_text(content.replace('[40, 3]', '[41, 3]'))
    check_falls_back(folder, warnings)


def test_damaged_notes_of_orbax_cost_nothing(folder):
    notes = folder / '10' / '_CHECKPOINT_METADATA'
    notes.write_text(notes.read_text().replace('performance_metrics', 'performance_metbics'))
    assert same(restore(folder), (20, state(20)))


def test_damaged_data(folder, warnings):
    for path in files(folder / '20' / 'tree'):
        path.write_bytes(path.read_bytes()[:-1])
    check_falls_back(folder, warnings)


@pytest.mark.parametrize('part', ['tree', 'record', ''])
def test_empty_folder(folder, warnings, part):
    shutil.rmtree(folder / '20' / part)
    (folder / '20' / part).mkdir()
    check_falls_back(folder, warnings)


def test_damaged_again_and_again(folder, warnings):
    for _ in range(2):
        (folder / '20' / 'tree' / 'manifest.ocdbt').write_bytes(b'')
        checkpoints = Checkpoints(folder)
        assert checkpoints.restore(state(0))[0] == 10
        checkpoints.save(20, state(20))
        checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ['10', '20', '20.damaged', '20.damaged1']


def test_all_damaged(folder):
    for step in ('10', '20'):
        (folder / step / 'tree' / 'manifest.ocdbt').unlink()
    with pytest.raises(CheckpointError, match=f'(?s)^all checkpoints in {folder} are damaged .steps 10, 20.*delete'):
        restore(folder)
    assert (folder / '20').is_dir()


def test_an_interrupted_save_is_ignored(folder):
    names = {'30.orbax-checkpoint-tmp', '30.orbax-checkpoint-tmp-1700000000'}
    for name in names:
        shutil.copytree(folder / '20', folder / name)
    checkpoints = Checkpoints(folder)
    assert checkpoints.steps() == [10, 20]
    assert same(checkpoints.restore(state(0)), (20, state(20)))
    checkpoints.save(30, state(30))
    assert same(checkpoints.restore(state(0)), (30, state(30)))
    checkpoints.close()


def test_shapes_that_do_not_fit(folder):
    wider = state(0)
    wider.params['block']['weights'] = np.zeros((40, 4), np.float32)
    del wider.params['bytes']
    checkpoints = Checkpoints(folder)
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(wider)
    message = str(error.value)
    assert 'float32[40, 3] there, float32[40, 4] here' in message
    assert re.search(r"\['bytes'\]: uint8\[3\] there, absent here", message)
    assert '\n' not in message
    assert checkpoints.steps() == [10, 20]  # it is no damage
    checkpoints.close()


def test_other_type_does_not_fit(folder):
    double = state(0)
    double.params['block']['weights'] = np.zeros((40, 3))
    checkpoints = Checkpoints(folder)
    with pytest.raises(CheckpointError, match='float32.* there, float64.* here'):
        checkpoints.restore(double)
    checkpoints.close()


FULL_DISK = """
import resource, sys
import numpy as np
from protojax.errors import CheckpointError
from protojax.checkpoints import Checkpoints

checkpoints = Checkpoints(sys.argv[1])
tree = {'noise': np.random.default_rng(0).integers(0, 256, 2**20, dtype=np.uint8)}
checkpoints.save(1, tree)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, resource.RLIM_INFINITY))
try:
    checkpoints.save(2, tree)
except CheckpointError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(checkpoints.restore(tree)[0])
checkpoints.save(2, tree)
print(checkpoints.restore(tree)[0])
"""


def test_full_disk(tmp_path):
    # A limit on the size of files stands for the end of the disk; it belongs to a process, hence one of its own.
    command = [sys.executable, '-c', FULL_DISK, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    message, before, after = run.stdout.splitlines()
    assert message.startswith(f'cannot save step 2 in {tmp_path}')
    assert 'earlier checkpoints are intact' in message
    assert (before, after) == ('1', '2')
