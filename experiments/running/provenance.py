"""Hardware and code version of a run."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import jax


def machine() -> dict[str, str | None]:
    """Return devices, processor and commit, as written to timing.json."""
    devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
    return {'devices': devices, 'processor': processor(), 'commit': commit()}


def processor() -> str:
    """Return the name of the processor and the number of cores that this process may use."""
    cpuinfo = Path('/proc/cpuinfo')
    found = re.search(r'^model name\s*: (.*)', cpuinfo.read_text(), re.M) if cpuinfo.exists() else None
    name = found[1].strip() if found else platform.processor() or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    return f'{name}, {cores} core{"s" if cores > 1 else ""}'


def describe_devices(devices: Sequence[jax.Device]) -> str:
    fewer = ' (more could not share the work evenly)' if len(devices) < jax.device_count() else ''
    return f'{len(devices)} of {jax.device_count()} {devices[0].platform} devices{fewer}'


def commit(root: str | os.PathLike = Path(__file__).parents[2]) -> str | None:
    """Return the commit of a checkout, with '-dirty' if files have been changed; None outside of a checkout."""
    if not (Path(root) / '.git').exists() or not shutil.which('git'):
        return None
    command = ['git', 'describe', '--always', '--dirty', '--exclude=*']
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip() or None
