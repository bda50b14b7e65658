"""Trials: separate processes."""

from pathlib import Path

from experiments.paper import trials


def test_a_trial_is_executed_as_a_separate_process(tmp_path):
    code = f'import pathlib, sys; pathlib.Path({str(tmp_path / "made")!r}).touch(); sys.exit(4)'
    trial = trials.Trial(('python', '-c', code), Path(tmp_path), None)
    assert trials.execute(trial) == 4 and (tmp_path / 'made').exists()
