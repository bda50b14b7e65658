"""Several devices, and jobs of two processes with half of the devices each, against one device and one process.

Sums over devices have another order than those on one, so rounding differs, and training makes differences grow. After
fifty steps in double precision parameters differ by 2e-10 of the greatest entry of each array, far below the 1e-5 that
is asked for here; in single precision the same fifty steps end 0.5 to 5 per cent apart.
"""

import dataclasses
import json
import signal
import socket
import time

import jax
import numpy as np
import pytest
import quick_compiler
import tiny
from fifty_steps import fifty_steps, greatest_difference
from forks import Forks

from experiments.faults.comparing import compare_workdirs
from experiments.running import driver
from experiments.running.config import ConfigError, FewShotConfig
from experiments.running.driver import Experiment, run_experiment
from experiments.running.flags import parse_flags
from experiments.running.hardware import describe_devices
from experiments.running.job import join_job
from protojax.datasets.synthetic.handwriting import handwriting

pytestmark = pytest.mark.slow

# A small learning rate, as Adam makes steps of it even from gradients that are zero but for rounding.
FLAGS = ['--noretrain', '--episodes=16', '--learning_rate=0.001']
FIFTY_STEPS = tiny.__file__.replace('tiny', 'fifty_steps')


@pytest.fixture(scope='module')
def start(tmp_path_factory):
    """A function that starts a program which sees so many devices."""
    forks = Forks(tmp_path_factory.mktemp('programs'))

    def start(*arguments, devices, moment=''):
        return forks.start(*arguments, XLA_FLAGS=quick_compiler.flags(devices), MOMENT=moment)

    yield start
    forks.end()


@pytest.fixture(scope='module')
def start_job(start, tmp_path_factory):
    """A function that starts both processes of a run."""
    command = [tiny.__file__, f'--compilation_cache={tmp_path_factory.mktemp("compiled")}', *FLAGS]

    def start_job(workdir, *flags, moments=('', '')):
        job = [f'--workdir={workdir}', f'--coordinator_address={free_address()}', '--num_processes=2', *flags]
        return [
            start(*command, *job, f'--process_id={i}', devices=2, moment=moment) for i, moment in enumerate(moments)
        ]

    return start_job


@pytest.fixture(scope='module')
def one_process(tmp_path_factory):
    """The workdir of a run in one process, which is this one."""
    workdir = tmp_path_factory.mktemp('one')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, 'devices_for', lambda config, task: jax.devices()[:4])
        run_experiment(parse_flags(tiny.RECIPE, [*FLAGS, f'--workdir={workdir}']), tiny.EXPERIMENT)
    return workdir


@pytest.fixture(scope='module', autouse=True)
def slow_job(start_job, tmp_path_factory):
    """The same run in two processes of which one is slower by more than half a minute: under way during first tests."""
    workdir = tmp_path_factory.mktemp('two')
    job = start_job(workdir, moments=('', 'slow'))
    yield job, workdir
    for process in job:
        process.kill()


@pytest.fixture(scope='module')
def two_processes(slow_job):
    """The workdir of that run, which has ended."""
    job, workdir = slow_job
    assert wait(job, seconds=600) == [0, 0], [process.output for process in job]
    return workdir


def free_address():
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return f'localhost:{probe.getsockname()[1]}'


def wait(processes, seconds=120):
    """Exit codes of processes, which must all end in time."""
    try:
        return [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()


def metrics(workdir):
    return [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]


def test_parameters_are_those_of_one_process(start, x64, tmp_path):
    address = free_address()
    outputs = [tmp_path / f'{name}.npz' for name in ('first', 'second')]
    job = [start(FIFTY_STEPS, str(outputs[i]), address, '2', str(i), devices=2) for i in range(2)]
    one = fifty_steps(jax.devices()[:4])
    assert wait(job, seconds=600) == [0, 0], [process.output for process in job]
    first, second = (list(np.load(output).values()) for output in outputs)
    assert greatest_difference(one, first) < 1e-5
    assert greatest_difference(first, second) == 0


WAITING = """
import dataclasses
import tiny
from experiments.running import job

job.SECONDS_TO_LIVE, job.SECONDS_TO_START = 2, {seconds}
job.join_job(dataclasses.replace(tiny.RECIPE, coordinator_address={address!r}, num_processes=2, process_id=1))
"""


@pytest.fixture
def waiting(start):
    """A function that starts a process 1 which waits so long for process 0."""
    return lambda address, seconds: start('-c', WAITING.format(address=address, seconds=seconds), devices=1)


def test_when_process_0_dies_before_all_have_met_the_other_ends(waiting):
    address = free_address()
    process = waiting(address, seconds=100)
    with socket.create_server(('localhost', int(address.split(':')[1]))) as process_0:
        process_0.accept()
        time.sleep(1)  # long enough to be seen by all that looks for it
    assert wait([process]) == [1]
    assert f'error: process 0 at {address} is gone; start all again' in process.output


def test_when_process_0_never_comes_the_other_ends(waiting):
    process = waiting(free_address(), seconds=4)
    assert wait([process]) == [1]
    assert 'error: not all processes came to localhost' in process.output and 'stack trace' not in process.output


def test_parameters_agree_with_those_of_one_device(x64):
    expected = fifty_steps(jax.devices()[:1])
    for count in (2, 8):
        assert greatest_difference(expected, fifty_steps(jax.devices()[:count])) < 1e-5


def test_a_run_says_how_many_devices_share_it(tmp_path, capsys):
    assert describe_devices(jax.devices()) == '8 of 8 cpu devices'
    four = dataclasses.replace(tiny.RECIPE, episodes=8, episodes_per_step=4, workdir=str(tmp_path))
    run_experiment(four, tiny.EXPERIMENT)
    assert '4 of 8 cpu devices (more could not share the work evenly); workdir' in capsys.readouterr().out


def test_a_run_in_bfloat16(tmp_path):
    sizes = {'way': 4, 'shot': 1, 'query': 3, 'test_way': (4,), 'test_shot': (1,), 'test_query': 3, 'test_episodes': 40}
    config = FewShotConfig(**sizes, episodes=2, precision='bfloat16', kernels='off', workdir=str(tmp_path))
    small = handwriting(alphabets=(1, 1, 1), characters=6, drawings=6)
    experiment = Experiment('small', config, lambda config: small)
    results = run_experiment(config, experiment)
    assert results['test']['4-way 1-shot']['accuracy'] > 35  # by chance: 25


def test_when_one_process_dies_the_other_ends_and_the_job_resumes(start_job, tmp_path, request):
    for victim, moment in (1, 'first save'), (0, 'later save'):
        job = start_job(tmp_path, moments=[moment if i == victim else '' for i in range(2)])
        codes = wait(job)
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] != 0
        words = ('a process of the job is gone', 'another task died')  # ours, or JAX's where it is quicker
        assert any(said in job[1 - victim].output for said in words)
    assert wait(start_job(tmp_path)) == [0, 0]
    assert not compare_workdirs(request.getfixturevalue('two_processes'), tmp_path)  # by now it has ended


def test_a_host_may_be_slower_by_more_than_a_first_meeting_of_devices_may_take(two_processes):
    assert (two_processes / 'results.json').exists()


def test_a_run_ends_as_in_one_process(one_process, two_processes):
    one, two = metrics(one_process), metrics(two_processes)
    assert [(line['stage'], line['episode'], line['split']) for line in one] == [
        (line['stage'], line['episode'], line['split']) for line in two
    ]
    np.testing.assert_allclose([line['loss'] for line in two], [line['loss'] for line in one], rtol=1e-2)
    results = [json.loads((workdir / 'results.json').read_text())['test'] for workdir in (one_process, two_processes)]
    for setting, score in results[0].items():
        np.testing.assert_allclose(results[1][setting]['loss'], score['loss'], rtol=1e-2)


def test_all_processes_end_where_the_first_refuses(start_job, two_processes):
    job = start_job(two_processes, '--learning_rate=0.5')
    assert wait(job) == [1, 1]
    assert 'learning_rate (0.001 there, 0.5 now)' in job[0].output
    assert 'process 0 cannot use' in job[1].output


@pytest.mark.parametrize('values', [{'num_processes': 2}, {'coordinator_address': 'localhost:1', 'process_id': 1}])
def test_flags_that_make_no_job_are_refused(values):
    with pytest.raises(ConfigError, match='make no job; give host:port of process 0'):
        join_job(dataclasses.replace(tiny.RECIPE, **values))
