"""Files of runs: what they contain so far, and whether two finished runs agree."""

import contextlib
import json
import pathlib

FILES = ('metrics.jsonl', 'results.json', 'weights.safetensors', 'curves.png', 'mistakes.png')


def metrics(workdir: pathlib.Path) -> list[dict]:
    """Return the complete lines of the metrics so far."""
    file = workdir / 'metrics.jsonl'
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith('\n')]


def unfinished_saves(workdir: pathlib.Path) -> set[tuple[pathlib.Path, int]]:
    """Return the checkpoints that are being written, or were when a run was killed."""
    found = set()
    for path in workdir.glob('*/*.orbax-checkpoint-tmp*'):
        with contextlib.suppress(FileNotFoundError):  # it has just got its final name
            found.add((path, path.stat().st_ctime_ns))
    return found


def differences(expected: pathlib.Path, found: pathlib.Path) -> list[str]:
    """Compare the workdirs of two finished runs. Returns one line per file and stage that is not the same."""
    names = [name for name in FILES if _differs(expected / name, found / name)]
    names += [stage for stage in ('search', 'train') if _last_digest(expected / stage) != _last_digest(found / stage)]
    return [f'{found}: {name} is not as after an uninterrupted run' for name in names]


def _differs(expected: pathlib.Path, found: pathlib.Path) -> bool:
    """Return whether a file is missing or has other bytes. Plots must only exist: they show the name of their run."""
    if not expected.exists():
        return False
    return not found.exists() or (expected.suffix != '.png' and expected.read_bytes() != found.read_bytes())


def _last_digest(stage: pathlib.Path) -> tuple[int, str] | None:
    """Return step and digest of the last checkpoint of a stage."""
    steps = [int(path.name) for path in stage.glob('*') if path.name.isdigit()]
    if not steps:
        return None
    return max(steps), json.loads((stage / str(max(steps)) / 'record' / 'metadata').read_text())['digest']
