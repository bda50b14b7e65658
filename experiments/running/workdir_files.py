"""The files of a workdir, which may be a stranger's: only ordinary ones of a possible size are read."""

from protojax.files import read_whole

LARGEST = 1 << 24  # bytes
LARGEST_METRICS = 1 << 28  # such as two million reports


def read_workdir_file(path):
    """The text of a workdir's file; ValueError of what is no ordinary file, or far too large."""
    return read_whole(path, largest=LARGEST_METRICS if path.name == 'metrics.jsonl' else LARGEST).decode()
