"""Several devices, and distributed runs of two processes with two devices each, against one device and one process.

Sums over devices are added in another order, so rounding differs and training amplifies the differences. In double
precision they stay far below the 1e-5 of the largest entry of each array that is required here.
"""

import json
import os
import signal
import socket

import jax
import numpy as np
import pytest

from experiments.running import multihost
from experiments.running.config import ConfigError
from tests.faults import runs
from tests.helpers import compiler, steps, tiny
from tests.helpers.forks import Program

pytestmark = pytest.mark.slow
OPTIONS = {'retrain': False, 'episodes': 16, 'learning_rate': 0.001}  # Adam amplifies rounding by the learning rate
TWO_DEVICES = {'XLA_FLAGS': compiler.flags(2)}


def free_address():
    with socket.socket() as probe:
        probe.bind(('localhost', 0))
        return f'localhost:{probe.getsockname()[1]}'


def start(workdir, *, moments=('', ''), **options):
    """Start both processes of a distributed run."""
    options = {**OPTIONS, 'workdir': workdir, 'coordinator_address': free_address(), 'num_processes': 2, **options}
    flags = [f'--{name}={value}' for name, value in options.items()]
    return [
        Program('tests.helpers.tiny', *flags, f'--process_id={i}', **TWO_DEVICES, MOMENT=moment)
        for i, moment in enumerate(moments)
    ]


def codes(processes):
    return [process.wait(900) for process in processes]


@pytest.fixture(scope='module', autouse=True)
def slow_run(tmp_path_factory):
    """A distributed run with one process that is half a minute late; it continues during the first tests."""
    workdir = tmp_path_factory.mktemp('two')
    return start(workdir, moments=('', 'slow')), workdir


@pytest.fixture(scope='module')
def two_processes(slow_run):
    """The workdir of that run after its end."""
    processes, workdir = slow_run
    assert codes(processes) == [0, 0], [process.output for process in processes]
    return workdir


def test_parameters_are_those_of_one_device_and_one_process(x64, tmp_path):
    address, files = free_address(), [tmp_path / 'first.npz', tmp_path / 'second.npz']
    arguments = [(str(file), address, '2', str(i)) for i, file in enumerate(files)]
    processes = [Program('tests.helpers.steps', *given, **TWO_DEVICES) for given in arguments]
    expected = steps.trained(jax.devices()[:1])
    assert steps.largest_difference(expected, steps.trained(jax.devices())) < 1e-5
    assert codes(processes) == [0, 0], [process.output for process in processes]
    first, second = (list(np.load(file).values()) for file in files)
    assert steps.largest_difference(expected, first) < 1e-5
    assert steps.largest_difference(first, second) == 0


def test_a_process_exits_if_process_0_dies_or_never_starts():
    """Process 0 is a socket that closes after it was reached; for the second process nothing listens."""
    addresses = [free_address(), free_address()]
    flags = ['--num_processes=2', '--process_id=1', '--coordinator_address']
    with socket.create_server(('localhost', int(addresses[0].split(':')[1]))) as process_0:
        processes = [
            Program('tests.helpers.tiny', *flags, address, MOMENT='impatient', SECONDS_TO_START=seconds)
            for address, seconds in zip(addresses, ('600', '4'), strict=True)
        ]
        for _ in range(5):  # by JAX, and by the thread that watches process 0
            process_0.accept()
    assert codes(processes) == [1, 1]
    assert f'error: process 0 at {addresses[0]} is gone; restart all processes' in processes[0].output
    assert f'error: not all processes connected to {addresses[1]} within 4 seconds' in processes[1].output
    assert 'stack trace' not in processes[1].output


def test_if_one_process_dies_the_other_exits_and_the_run_resumes(tmp_path, request):
    survivor, victim = start(tmp_path, moments=('', 'first save'))
    assert victim.wait(900) == -signal.SIGKILL
    assert survivor.wait(900) != 0
    ours_or_jax = ('a process stopped or failed', 'another task died')
    assert any(words in survivor.output for words in ours_or_jax)
    assert codes(start(tmp_path)) == [0, 0]
    assert not runs.differences(request.getfixturevalue('two_processes'), tmp_path)


def test_metrics_and_results_are_those_of_one_process(two_processes, tmp_path):
    """One process was late by more than JAX would wait for the first computation of all devices."""
    with tiny.on_devices(4):
        tiny.run(tmp_path, **OPTIONS)
    one, two = runs.metrics(tmp_path), runs.metrics(two_processes)
    assert [line['episode'] for line in one] == [line['episode'] for line in two]
    np.testing.assert_allclose([line['loss'] for line in two], [line['loss'] for line in one], rtol=1e-2)
    tables = [json.loads((workdir / 'results.json').read_text())['test'] for workdir in (tmp_path, two_processes)]
    for setting, score in tables[0].items():
        np.testing.assert_allclose(tables[1][setting]['loss'], score['loss'], rtol=1e-2)


def test_all_processes_exit_if_process_0_rejects_the_workdir(two_processes):
    processes = start(two_processes, learning_rate=0.5)
    assert codes(processes) == [1, 1]
    assert 'learning_rate (saved 0.001, now 0.5)' in processes[0].output
    assert 'process 0 cannot use' in processes[1].output


def test_invalid_setups_are_rejected():
    for setup in [('', 2, 0), ('localhost:1', 0, 1), ('localhost', 2, 0)]:
        with pytest.raises(ConfigError, match='invalid distributed setup .* expected host:port of process 0'):
            multihost.join(*setup)


def test_the_first_signal_sets_a_flag_and_a_second_ctrl_c_interrupts():
    for number in (signal.SIGINT, signal.SIGTERM):
        with multihost.StopSignals() as stop:
            assert not stop()
            os.kill(os.getpid(), number)
            assert stop()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
