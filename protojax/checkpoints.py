"""Checkpoints that are either whole or not there: Orbax writes them, a digest shows damage when they are read.

A checkpoint holds a tree of arrays and a record of it: the shape and type of every array and a digest of their bytes.
Orbax writes to a temporary name and renames at the end, so an interrupted save leaves nothing that could be taken for a
checkpoint. Whatever happens to the files afterwards is found by the digest, and the checkpoint before is used.
"""

import contextlib
import hashlib
import json
import os
import re
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from protojax.errors import CheckpointError, first_line

ORBAX = os.path.dirname(ocp.__file__)


# What goes wrong is raised by the calls below. The threads of Orbax need not log it too, some of them long afterwards.
logging.get_absl_logger().addFilter(
    lambda record: record.levelno < logging.converter.STANDARD_ERROR or not record.pathname.startswith(ORBAX)
)


class Checkpoints:
    """The newest few checkpoints of one training, each under the number of its step."""

    def __init__(self, directory: str | os.PathLike, *, keep: int = 3):
        self.directory = epath.Path(directory)
        with _using_storage(f'cannot use {self.directory}', 'choose another directory'):
            self._manager = _open_checkpoints(self.directory, keep)

    def save(self, step: int, tree: Any) -> None:
        """Write a checkpoint of the tree, which every process of a job holds whole."""
        tree = jax.device_get(tree)
        arrays, digest = _checkpoint_shapes(tree), _checkpoint_digest(tree)
        record = {'arrays': arrays, 'digest': digest, 'seal': _checkpoint_seal(arrays, digest)}
        arguments = {'tree': ocp.args.StandardSave(tree), 'record': ocp.args.JsonSave(record)}
        advice = 'free some space or choose another directory, then start again: earlier checkpoints are intact'
        with _using_storage(f'cannot save step {step} in {self.directory}', advice):
            self._manager.save(step, args=ocp.args.Composite(**arguments), force=True)

    def restore(self, template: Any) -> tuple[int, Any] | None:
        """The newest undamaged checkpoint as (step, tree of NumPy arrays), or None where none was ever written.

        `template` is a tree with the shapes and types that are expected.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                tree = self._read(step, template)
            except (CheckpointError, jax.errors.JaxRuntimeError):  # the latter as in _using_storage
                raise
            except Exception as error:  # damage takes many forms
                logging.warning('checkpoint %s is damaged (%s); trying the one before', step, first_line(error))
                continue
            self._put_aside([later for later in steps if later > step])
            return step, tree
        if steps:
            raise CheckpointError(
                f'all checkpoints in {self.directory} are damaged (steps {", ".join(map(str, steps))}); '
                'restore them from a backup, or delete the folder to begin anew'
            )
        return None

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, damaged or not, in order."""
        names = [path.name for path in self.directory.iterdir()]
        return sorted(int(name) for name in names if re.fullmatch(r'\d+', name))

    def close(self) -> None:
        """Let go of the folder."""
        self._manager.close()

    def _read(self, step, template):
        record = self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore())).record
        if record['seal'] != _checkpoint_seal(record['arrays'], record['digest']):
            raise ValueError('its record does not match its seal')
        _check_checkpoint_fit(record['arrays'], _checkpoint_shapes(template), self.directory)
        blank = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
        arguments = ocp.args.Composite(tree=ocp.args.StandardRestore(blank))
        tree = self._manager.restore(step, args=arguments).tree
        if _checkpoint_digest(tree) != record['digest']:
            raise ValueError('its contents do not match their digest')
        return tree

    def _put_aside(self, steps):
        """Rename damaged checkpoints, so that training can write these steps again and nothing is lost."""
        if jax.process_index() == 0:
            for step in steps:
                names = (f'{step}.damaged{number or ""}' for number in range(1000))
                free = next(name for name in names if not (self.directory / name).exists())
                (self.directory / str(step)).rename(self.directory / free)
        if steps:
            self._manager.reload()


@contextlib.contextmanager
def _using_storage(problem, advice):
    """Turns what the storage raises into a CheckpointError."""
    try:
        yield
    except jax.errors.JaxRuntimeError:  # another process of the job is gone: this says nothing of the storage
        raise
    except Exception as error:  # Orbax and its storage raise anything from OSError to ValueError
        raise CheckpointError(f'{problem} ({first_line(error)}); {advice}') from error


def _open_checkpoints(directory, keep):
    """The manager of a folder. Where its notes on some checkpoint are damaged, which it can do without, they go."""
    options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
    try:
        return ocp.CheckpointManager(directory, options=options)
    except OSError:
        raise
    except Exception:
        for notes in directory.glob('*/_CHECKPOINT_METADATA'):
            with contextlib.suppress(FileNotFoundError):  # another process of the job was quicker
                notes.rename(notes.with_name(f'{notes.name}.damaged'))
        return ocp.CheckpointManager(directory, options=options)


def _checkpoint_seal(arrays, digest):
    """Digest of the record itself: a damaged one must not pass for a checkpoint of another program."""
    return hashlib.sha256(json.dumps([arrays, digest], sort_keys=True).encode()).hexdigest()


def _checkpoint_shapes(tree):
    """Path -> 'dtype[shape]' of every leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f'{np.dtype(leaf.dtype)}{list(leaf.shape)}' for path, leaf in leaves}


def _checkpoint_digest(tree):
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _check_checkpoint_fit(found, expected, directory):
    names = sorted(found.keys() | expected.keys())
    differing = [n for n in names if found.get(n) != expected.get(n)]
    if differing:
        pairs = [(name, found.get(name, 'absent'), expected.get(name, 'absent')) for name in differing[:3]]
        shown = '; '.join(f'{name}: {there} there, {here} here' for name, there, here in pairs)
        raise CheckpointError(
            f'the checkpoint in {directory} does not fit this program: {shown}'
            f'{f" and {len(differing) - 3} more" if len(differing) > 3 else ""}; '
            'use the version of protojax and the settings that wrote it, or another directory'
        )
