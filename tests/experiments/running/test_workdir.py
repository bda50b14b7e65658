"""A workdir and its metrics: what is written, resumed and rejected."""

import errno
import json
import os

import pytest

from experiments.running import metrics
from experiments.running.workdir import Workdir, WorkdirError, read_json
from tests.helpers import tiny

REPORT = {'stage': 'train', 'episode': 4, 'split': 'train', 'loss': 0.5, 'accuracy': 0.5}


def opened(path, dataset='tiny', **options):
    return Workdir(path, tiny.EXPERIMENT.config(**options), dataset)


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(WorkdirError, match='cannot write /proc/protojax'):
        opened('/proc/protojax')
    victim = tmp_path / 'victim'
    victim.write_text('precious')
    for name, make in {'link': lambda lock: lock.symlink_to(victim), 'pipe': os.mkfifo}.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / '.lock')
        with pytest.raises(WorkdirError, match='--workdir'):
            opened(tmp_path / name)
    assert victim.read_text() == 'precious'


@pytest.mark.parametrize('content', ['', '{', '[]', '\udcff', '[' * 100_000, json.dumps({**REPORT, 'episode': 4.5})])
def test_corrupted_files_are_named(tmp_path, content):
    for name in ('config.json', 'metrics.jsonl'):
        (tmp_path / name).write_text(f'{content}\n', errors='surrogateescape')
    with pytest.raises(WorkdirError, match=r'metrics.jsonl is corrupted .*; restore it'):
        metrics.read(tmp_path)
    if 'episode' not in content:
        with pytest.raises(WorkdirError, match=r'config.json is corrupted .*; restore it'):
            read_json(tmp_path / 'config.json')


def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / 'results.json')
    (tmp_path / 'metrics.jsonl').symlink_to('/dev/zero')
    for read in (lambda: read_json(tmp_path / 'results.json'), lambda: metrics.read(tmp_path)):
        with pytest.raises(WorkdirError, match='is corrupted'):
            read()


def test_a_resumed_stage_drops_reports_after_its_checkpoint(tmp_path):
    workdir = opened(tmp_path)
    for stage, start, episodes in (('search', 0, (4, 8)), ('train', 0, (4, 8, 12)), ('train', 8, (12,))):
        writer = metrics.Writer(workdir, stage, start)
        for episode in episodes:
            writer.write(episode, 'train', loss=float(start), accuracy=0.5)
        writer._file.write('{"stage": "tra')  # killed while writing
        writer.close()
    found = [(line['stage'], line['episode'], line['loss']) for line in metrics.read(tmp_path)]
    assert found == [('search', 4, 0), ('search', 8, 0), ('train', 4, 0), ('train', 8, 0), ('train', 12, 8)]
    assert list((tmp_path / 'tensorboard' / 'train').glob('events.*'))


def test_a_full_disk_is_reported_when_metrics_are_written(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = metrics.Writer(opened(tmp_path), 'train', 0)
    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(WorkdirError, match=r'cannot write .*metrics.jsonl \(No space left on device\)'):
        writer.write(4, 'train', loss=0.5)
