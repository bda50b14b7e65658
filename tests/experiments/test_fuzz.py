"""A short run of experiments.fuzz over all formats, and a look at whether it would see defects."""

import collections

import pytest
from deadly import formats as deadly_formats

from experiments.fuzzing import pool
from experiments.fuzzing.formats import FORMATS
from experiments.fuzzing.mutations import mutant
from experiments.fuzzing.pool import MutantJob

pytestmark = pytest.mark.slow
MUTANTS = collections.defaultdict(lambda: 150, {'weights': 40, 'checkpoint': 15, 'workdir': 40, 'page': 60})


def test_mutants_of_all_formats(tmp_path):
    jobs = [MutantJob(name, 100, number) for name in FORMATS for number in range(MUTANTS[name])]
    outcomes = {job: outcome for job, outcome in pool.attack(jobs, tmp_path)}
    assert list(outcomes) == jobs
    assert not {job: outcome for job, outcome in outcomes.items() if outcome not in ('read', 'refused')}
    assert not list(tmp_path.iterdir())
    for name in FORMATS:  # the mutations are neither all harmless nor all deadly
        assert {outcome for job, outcome in outcomes.items() if job.format == name} == {'read', 'refused'}, name


def test_defects_are_seen_and_their_files_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, 'SECONDS', 1)  # as deadly.py does where files are read
    jobs = [MutantJob(name, 0, 0) for name in ('crash', 'fail', 'fill_memory', 'compute')]
    outcomes = [outcome for _, outcome in pool.attack(jobs, tmp_path, deadly_formats)]
    assert outcomes == [
        'ended by SIGSEGV',
        'KeyError: "\'x\'"',
        'takes more memory than there is',
        'computes for more than 1 s',
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, jobs))


def test_the_same_job_is_the_same_mutant():
    format = FORMATS['t7']
    seeds = format.seeds()
    first, again, other = (mutant(format, seeds, MutantJob('t7', seed, 3)) for seed in (0, 0, 1))
    assert first == again != other
