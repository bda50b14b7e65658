"""A small run for faults to happen to: all stages of an experiment, from files of a source to pictures."""

import json
import pathlib
import subprocess
import sys

import numpy as np

CLASSES, IMAGES, DIMENSIONS = 20, 12, 16  # of the source
FLAGS = ['--data=real', '--way=5', '--query=5', '--dimensions=8', '--learning_rate=0.05', '--patience=3'] + [
    '--log_every=4',
    '--validate_every=8',
    '--checkpoint_every=4',
]


def small_run_command(folder: pathlib.Path) -> list[str]:
    """The command of a run but for its workdir, with a source and a cache of compiled programs in the folder."""
    _write_small_source(folder / 'source')
    data = [f'--source={folder}/source', f'--data_dir={small_run_data_dir(folder)}']
    return [sys.executable, '-m', 'experiments.cub', *FLAGS, *data, f'--compilation_cache={folder}/compiled']


def small_run_data_dir(folder: pathlib.Path) -> pathlib.Path:
    return folder / 'prepared'


def _write_small_source(folder: pathlib.Path) -> None:
    """Features and attributes of a few invented birds, in the form of CUB."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    attributes = rng.normal(size=(CLASSES, 6))
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    features = (attributes @ rng.normal(size=(6, DIMENSIONS)))[labels] + rng.normal(size=(len(labels), DIMENSIONS))
    np.save(folder / 'features.npy', features.astype(np.float32))
    names = [f'{number:03}.Bird' for number in range(1, CLASSES + 1)]
    lines = {
        'classes': [f'{number} {name}' for number, name in enumerate(names, 1)],
        'image_class_labels': [f'{number} {label + 1}' for number, label in enumerate(labels, 1)],
        'class_attribute_labels_continuous': [' '.join(map(str, row)) for row in attributes],
        'trainvalclasses': names[5:],
        'testclasses': names[:5],
    }
    for name, content in lines.items():
        (folder / f'{name}.txt').write_text('\n'.join(content))


def finish_small_run(command: list[str], workdir: pathlib.Path) -> None:
    """Start a run and let it end."""
    subprocess.run([*command, f'--workdir={workdir}'], check=True, capture_output=True)


def start_small_run(command: list[str], workdir: pathlib.Path, *flags: str) -> subprocess.Popen:
    """Start a run, whose output goes to a file beside its workdir."""
    with open(small_run_log(workdir), 'wb') as file:
        return subprocess.Popen([*command, f'--workdir={workdir}', *flags], stdout=file, stderr=file)


def small_run_log(workdir: pathlib.Path) -> pathlib.Path:
    return workdir.with_name(f'{workdir.name}.log')


def small_run_metrics(workdir) -> list[dict]:
    """The whole lines of a run's metrics so far."""
    file = workdir / 'metrics.jsonl'
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith('\n')]
