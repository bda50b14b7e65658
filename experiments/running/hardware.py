"""What a run ran on: hardware, and the state of the code."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import jax


def processor():
    """Name of this machine's processor and the number of its cores that this process may use."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path('/proc/cpuinfo')
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith('model name')]
        name = lines[0].split(':')[1].strip() if lines else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return f'{name}, {cores} core{"s" if cores > 1 else ""}'


def describe_devices(devices):
    fewer = ' (more could not share the work evenly)' if len(devices) < jax.device_count() else ''
    return f'{len(devices)} of {jax.device_count()} {devices[0].platform} devices{fewer}'


def commit(root=Path(__file__).parents[2]):
    """Commit of this or another checkout, with '-dirty' where files have been changed; None outside of one."""
    root = Path(root)
    if not (root / '.git').exists() or not shutil.which('git'):
        return None
    command = ['git', 'describe', '--always', '--dirty', '--exclude=*']
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip() or None
