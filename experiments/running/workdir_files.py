"""The files of a workdir, which may be a stranger's: only ordinary ones of a possible size are read."""

import json

from protojax.files import read_whole

LARGEST = 1 << 24  # bytes
LARGEST_METRICS = 1 << 28  # such as two million reports


def read_workdir_file(path):
    """The text of a workdir's file; ValueError of what is no ordinary file, or far too large."""
    return read_whole(path, largest=LARGEST_METRICS if path.name == 'metrics.jsonl' else LARGEST).decode()


def read_reports(path):
    """The lines of a metrics.jsonl, none where there is no such file; ValueError and others of what is no report."""
    reports = [json.loads(line) for line in read_workdir_file(path).splitlines()] if path.exists() else []
    for number, report in enumerate(reports, start=1):
        if not _is_report(report):
            raise ValueError(f'line {number} of {path.name} is no report')
    return reports


def _is_report(report):
    """Whether it has a stage, a split and an episode, and numbers beside, a loss and an accuracy among them."""
    if not isinstance(report, dict) or not report.keys() >= {'stage', 'split', 'episode', 'loss', 'accuracy'}:
        return False
    texts = [report[name] for name in ('stage', 'split')]
    numbers = [value for name, value in report.items() if name not in ('stage', 'split')]
    return all(isinstance(text, str) for text in texts) and is_whole(report['episode']) and all(map(is_number, numbers))


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool) and is_number(value)


def is_number(value):
    """Whether a value from JSON is a number that a float can hold; infinity and NaN are."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 1 << 1000)
