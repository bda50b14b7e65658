"""A short run of tests.fuzz over all formats, and a check that it detects defects."""

import collections

import pytest

from tests.fuzz import pool
from tests.fuzz.formats import FORMATS

pytestmark = pytest.mark.slow
INPUTS = collections.defaultdict(lambda: 100, {'mat': 4, 'weights': 40, 'checkpoint': 20, 'workdir': 40, 'page': 60})


def test_corrupted_files_of_all_formats(tmp_path):
    jobs = [pool.Job(name, 100, number) for name in FORMATS for number in range(INPUTS[name])]
    outcomes = dict(pool.attack(jobs, tmp_path))
    assert list(outcomes) == jobs
    assert not {job: outcome for job, outcome in outcomes.items() if outcome not in pool.EXPECTED}
    assert not list(tmp_path.iterdir())
    for name in FORMATS:  # some inputs are still valid, some are not
        assert {outcome for job, outcome in outcomes.items() if job.format == name} == {'read', 'rejected'}, name


def test_defects_are_found_and_their_files_kept(tmp_path):
    jobs = [pool.Job(name, 0, 0) for name in ('crash', 'fail', 'compute')]
    outcomes = [outcome for _, outcome in pool.attack(jobs, tmp_path, 'tests.helpers.deadly', seconds=1)]
    assert outcomes == ['ended the process', 'KeyError: "\'x\'"', 'ended the process']
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, jobs))
