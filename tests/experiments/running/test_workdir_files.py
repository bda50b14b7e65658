"""Files of a stranger's workdir."""

import json
import os

import pytest

from experiments import omniglot
from experiments.running.workdir import Workdir, WorkdirError
from experiments.running.workdir_files import LARGEST, read_workdir_file


def test_pipes_devices_and_what_is_far_too_large_are_not_read(tmp_path):
    os.mkfifo(tmp_path / 'config.json')
    (tmp_path / 'metrics.jsonl').symlink_to('/dev/zero')
    for name in ('config.json', 'metrics.jsonl'):
        with pytest.raises(ValueError, match='it is no ordinary file'):
            read_workdir_file(tmp_path / name)
    for name in ('results.json', 'long/metrics.jsonl'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with open(tmp_path / name, 'wb') as file:
            file.truncate(LARGEST + 1)
    with pytest.raises(ValueError, match='far more than'):
        read_workdir_file(tmp_path / 'results.json')
    assert len(read_workdir_file(tmp_path / 'long/metrics.jsonl')) == LARGEST + 1


REPORT = {'stage': 'train', 'split': 'train', 'episode': 4, 'loss': 0.5, 'accuracy': 0.5}


@pytest.mark.parametrize(
    'line',
    [
        {},
        5,
        None,
        [],
        'train',
        {'split': 'train'},
        {**REPORT, 'loss': 'text'},
        {**REPORT, 'loss': None},
        {**REPORT, 'loss': 10**400},
        {**REPORT, 'learning_rate': []},
        {**REPORT, 'episode': 4.0},
        {**REPORT, 'episode': True},
        {**REPORT, 'stage': []},
        {**REPORT, 'split': 0},
    ],
    ids=lambda line: str(line)[:90],
)
def test_lines_that_are_no_reports_are_told_in_one_line(tmp_path, line):
    workdir = Workdir(tmp_path, omniglot.RECIPE, 'Omniglot')
    assert workdir.metrics() == []
    (tmp_path / 'metrics.jsonl').write_text(json.dumps(REPORT) + '\n')
    assert workdir.metrics() == [REPORT]
    (tmp_path / 'metrics.jsonl').write_text(f'{json.dumps(REPORT)}\n{json.dumps(line)}\n')
    with pytest.raises(WorkdirError, match=r'metrics.jsonl is damaged \(line 2 of metrics.jsonl is no report\)'):
        workdir.metrics()


@pytest.mark.parametrize('kind', ['link', 'pipe'])
def test_a_lock_that_is_no_file_of_its_own_is_refused(tmp_path, kind):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'victim').write_text('precious')
    place = tmp_path / 'run' / '.lock'
    place.symlink_to(tmp_path / 'victim') if kind == 'link' else os.mkfifo(place)
    with pytest.raises(WorkdirError, match='--workdir'):
        Workdir(tmp_path / 'run', omniglot.RECIPE, 'Omniglot')
    assert (tmp_path / 'victim').read_text() == 'precious'
