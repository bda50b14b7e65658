"""Files of a stranger's workdir."""

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


@pytest.mark.parametrize('kind', ['link', 'pipe'])
def test_a_lock_that_is_no_file_of_its_own_is_refused(tmp_path, kind):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'victim').write_text('precious')
    place = tmp_path / 'run' / '.lock'
    place.symlink_to(tmp_path / 'victim') if kind == 'link' else os.mkfifo(place)
    with pytest.raises(WorkdirError, match='--workdir'):
        Workdir(tmp_path / 'run', omniglot.RECIPE, 'Omniglot')
    assert (tmp_path / 'victim').read_text() == 'precious'
