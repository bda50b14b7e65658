"""Atomic Orbax checkpoints, verified by a digest when restored.

A checkpoint contains a tree of arrays and a record: shape and type of every array and a digest of their bytes. Orbax
writes to a temporary name and renames it at the end, so an interrupted save leaves no checkpoint. Later corruption is
detected by the digest, and the previous checkpoint is used.
"""

import contextlib
import hashlib
import os
import re
import time
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from protojax.errors import CheckpointError, first_line


class Checkpoints:
    """The newest checkpoints of one training, numbered by step."""

    def __init__(self, directory: str | os.PathLike, *, keep: int = 3):
        self.directory = epath.Path(directory)
        options = {'max_to_keep': keep, 'enable_async_checkpointing': False}
        options |= {'lightweight_initialize': True}  # Orbax's metadata may be corrupted: not needed
        with _storage_errors(f'cannot use {self.directory}', 'choose another directory'):
            self._manager = ocp.CheckpointManager(self.directory, options=ocp.CheckpointManagerOptions(**options))

    def save(self, step: int, tree: Any) -> None:
        """Write a checkpoint of a tree that every process holds completely."""
        tree = jax.device_get(tree)
        record = {'arrays': _shapes(tree), 'digest': digest(tree)}
        arguments = {'tree': ocp.args.StandardSave(tree), 'record': ocp.args.JsonSave(record)}
        hint = 'free some space or choose another directory and restart; earlier checkpoints are intact'
        with _storage_errors(f'cannot save step {step} in {self.directory}', hint):
            self._manager.save(step, args=ocp.args.Composite(**arguments), force=True)

    def restore(self, template: Any) -> tuple[int, Any] | None:
        """Restore the newest valid checkpoint.

        Args:
            template: Tree with the expected shapes and types.

        Returns:
            Step and tree of NumPy arrays, or None if no checkpoint exists.

        Raises:
            CheckpointError: If all checkpoints are corrupted or the newest valid one does not fit `template`.
        """
        problems: dict[int, Exception] = {}
        for step in reversed(self.steps()):
            try:
                tree = self._read(step, template)
            except jax.errors.JaxRuntimeError:  # see _storage_errors
                raise
            except Exception as error:  # corrupted files raise many types
                problems[step] = error
                continue
            for later, problem in problems.items():
                logging.warning('checkpoint %s is corrupted (%s); using step %s', later, first_line(problem), step)
            self._put_aside(problems)
            return step, tree
        if not problems:
            return None
        misfits = [problem for problem in problems.values() if isinstance(problem, CheckpointError)]
        if misfits:
            raise misfits[0]
        steps, hint = sorted(problems), 'restore them from a backup, or delete the folder to train from scratch'
        raise CheckpointError(f'all checkpoints in {self.directory} are corrupted (steps {steps}); {hint}')

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, valid or not, in order."""
        return sorted(int(path.name) for path in self.directory.iterdir() if re.fullmatch(r'\d+', path.name))

    def close(self) -> None:
        """Release the directory."""
        self._manager.close()

    def _read(self, step, template):
        record = self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore())).record
        found, expected = record['arrays'], _shapes(template)
        for name in sorted(found.keys() | expected.keys()):
            got, wanted = found.get(name, 'nothing'), expected.get(name, 'nothing')
            if got != wanted:
                problem = f'does not fit this program ({name}: expected {wanted}, got {got})'
                hint = 'use the protojax version and settings that wrote it, or another directory'
                raise CheckpointError(f'the checkpoint in {self.directory} {problem}; {hint}')
        blank = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), template)
        tree = self._manager.restore(step, args=ocp.args.Composite(tree=ocp.args.StandardRestore(blank))).tree
        if digest(tree) != record['digest']:
            raise ValueError('digest mismatch')
        return tree

    def _put_aside(self, steps):
        """Rename corrupted checkpoints, so that training can write these steps again and no file is lost."""
        for step in steps if jax.process_index() == 0 else ():
            (self.directory / str(step)).rename(self.directory / f'{step}.corrupted-{time.time_ns()}')
        if steps:
            self._manager.reload()


def digest(tree: Any) -> str:
    """Return the SHA-256 of the paths and bytes of all arrays of a tree."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found.update(jax.tree_util.keystr(path).encode())
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def _storage_errors(problem, hint):
    """Convert errors of the storage to CheckpointError."""
    try:
        yield
    except jax.errors.JaxRuntimeError:  # another process of a distributed run has died; the storage is not the cause
        raise
    except Exception as error:  # Orbax and its storage raise many types, from OSError to ValueError
        raise CheckpointError(f'{problem} ({first_line(error)}); {hint}') from error


def _shapes(tree):
    """Return {path: 'dtype[shape]'} of all leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f'{np.dtype(leaf.dtype)}{list(leaf.shape)}' for path, leaf in leaves}
