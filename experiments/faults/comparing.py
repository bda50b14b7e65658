"""Whether a run that was interrupted has ended as one that was not."""

import json
import pathlib

FILES = ('metrics.jsonl', 'results.json', 'weights.safetensors', 'curves.png', 'mistakes.png')


def compare_workdirs(expected: pathlib.Path, found: pathlib.Path) -> list[str]:
    """What is not the same in two workdirs of finished runs: names of files and stages."""
    files = [name for name in FILES if _compare_files(expected / name, found / name)]
    stages = [stage for stage in ('search', 'train') if _last_digest(expected / stage) != _last_digest(found / stage)]
    return [f'{found}: {name} is not as after a run without interruption' for name in files + stages]


def _compare_files(expected, found):
    """Whether a file is missing or has other bytes. Pictures need only be there, as they show the name of their run."""
    if not expected.exists():
        return False
    return not found.exists() or (expected.suffix != '.png' and expected.read_bytes() != found.read_bytes())


def _last_digest(stage):
    """Step and digest of all arrays of a stage's last checkpoint, or None."""
    steps = [int(path.name) for path in stage.glob('*') if path.name.isdigit()]
    if not steps:
        return None
    return max(steps), json.loads((stage / str(max(steps)) / 'record' / 'metadata').read_text())['digest']
