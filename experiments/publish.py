"""Publish finished runs: update experiments/results, docs/results.md, and the tables of README.md and docs/speed.md.

    python -m experiments.publish --add=runs/omniglot-60way-1shot-seed0
    python -m experiments.publish

The first command appends the run of a workdir to experiments/results/<experiment>.jsonl; both write the pages.
"""

import json
from pathlib import Path

from experiments.benchmark.report import speed_table
from experiments.drawing.charts import CHARTS
from experiments.paper import comparison, pages, records
from experiments.running import cli, progress
from experiments.running.config import ConfigError, Part, option
from experiments.running.workdir import reading
from experiments.tables import EXPERIMENTS
from protojax.files import write_whole

ROOT = Path(__file__).parents[1]
TITLES = {'Omniglot': 'omniglot', 'miniImageNet': 'miniimagenet', 'CUB-200-2011': 'cub'}  # data set -> experiment


class PublishConfig(Part):
    add: tuple[str, ...] = option((), 'Workdir of a finished run to publish first.')


def written() -> dict[Path, str]:
    """Return all published pages: {path: text}."""
    template, benchmark = records.PUBLISHED / 'page.md', records.PUBLISHED / 'benchmark.json'
    speed = speed_table(json.loads(benchmark.read_text()))
    tables = {ROOT / 'README.md': pages.main(), ROOT / 'docs/speed.md': speed}
    found = {path: pages.marked(path.read_text(), table) for path, table in tables.items()}
    return {ROOT / 'docs/results.md': pages.results(template.read_text()), **found}


def add(workdir: str | Path) -> dict:
    """Publish the run of a workdir and return its record."""
    record = records.read(workdir)
    if record is None:
        raise ConfigError(f'{workdir}/results.json does not exist; --add expects the workdir of a finished run')
    with reading(Path(workdir, 'results.json')):
        if record['synthetic'] or record['dataset'] not in TITLES:
            raise ConfigError(f"{workdir} is a run on {record['dataset']}; only runs on the paper's data are published")
        experiment = EXPERIMENTS[TITLES[record['dataset']]]
        record = records.of_training(record)
        command = {'command': records.command(experiment, record)}
    record = command | record | command  # the command comes first
    records.append(experiment.name, record)
    return record


def run(config: PublishConfig) -> None:
    """Publish the runs of --add and write all pages."""
    if not (records.PUBLISHED / 'page.md').exists():
        raise ConfigError(f'{ROOT} is not a checkout of protojax; run publish in one')
    for workdir in config.add:
        rows = pages.rows_with(add(workdir), (records.PUBLISHED / 'page.md').read_text())
        print(f'{workdir} is shown in {"; ".join(rows) or "no row of a table: its flags match none, or a longer run"}')
    with progress.phase('writing tables and charts'):
        for path, text in written().items():
            write_whole(path, text)
        for name in CHARTS:
            comparison.draw(name, comparison.published(name), ROOT / 'docs/figures')
    print(f'pages written to {ROOT}')


if __name__ == '__main__':
    cli.launch_command(PublishConfig, run)
