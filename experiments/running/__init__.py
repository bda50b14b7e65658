"""Runs experiments. A program defines an `Experiment` and calls `launch`."""

from experiments.running.cli import launch as launch
from experiments.running.config import Experiment as Experiment
