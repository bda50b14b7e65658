"""Publishes finished runs: experiments/results, and from it RESULTS.md and the tables of the README.

    python -m experiments.publish --add=runs/omniglot-60way-1shot-seed0
    python -m experiments.publish

The first command appends the run in a workdir to experiments/results/<experiment>.jsonl and then does as the second,
which writes experiments/RESULTS.md from experiments/results/page.md.
"""

import dataclasses
from pathlib import Path

from experiments.publishing import records
from experiments.publishing.comparison import TEMPLATE, comparison_has_ours, comparisons_of_page, draw_comparison
from experiments.publishing.records import append_record, check_record, read_record, record_command, training_record
from experiments.publishing.results_page import published_page, published_readme
from experiments.running.command import launch_command
from experiments.running.config import CommandConfig, ConfigError, option
from experiments.running.progress import phase
from experiments.tables import EXPERIMENTS
from protojax.errors import first_line
from protojax.files import write_whole

ROOT = Path(__file__).parents[1]
README, PAGE = ROOT / 'README.md', ROOT / 'experiments/RESULTS.md'
TITLES = {'Omniglot': 'omniglot', 'miniImageNet': 'miniimagenet', 'CUB-200-2011': 'cub'}  # of data sets -> experiment


@dataclasses.dataclass(frozen=True)
class PublishConfig(CommandConfig):
    add: tuple[str, ...] = option((), 'Workdir of a finished run to publish first; may be given several times.')


def run_publish(config):
    """Publish the runs of --add and write all pages anew."""
    if not (TEMPLATE.exists() and README.exists()):
        raise ConfigError(f'{ROOT} is no checkout of protojax; publish writes into one, so start it there')
    template, before = TEMPLATE.read_text(), {path: path.read_text() for path in records.PUBLISHED.glob('*.jsonl')}
    try:
        for workdir in config.add:
            publish_run(workdir)
        page, readme = published_page(template), published_readme(README.read_text())
    except BaseException as error:  # records that no page can be made of are not kept
        for path in records.PUBLISHED.glob('*.jsonl'):
            write_whole(path, before[path]) if path in before else path.unlink()
        if config.add and isinstance(error, Exception) and not isinstance(error, ConfigError | OSError):
            raise ConfigError(f'no pages can be made with {", ".join(config.add)} ({first_line(error)})') from error
        raise
    with phase('writing tables and charts'):
        write_whole(PAGE, page)
        write_whole(README, readme)
        for name, found, _ in comparisons_of_page(template):
            if comparison_has_ours(found):
                draw_comparison(name, found, records.PUBLISHED / 'figures')
    print(f'written to {PAGE} and {README}')


def publish_run(workdir):
    """Publish the run in a workdir."""
    record = read_record(workdir)
    if record is None:
        raise ConfigError(f'there is no {workdir}/results.json; --add wants the workdir of a finished run')
    if record['synthetic'] or record['dataset'] not in TITLES:
        raise ConfigError(
            f"{workdir} is a run on {record['dataset']}; only runs on the paper's data sets are published"
        )
    experiment = EXPERIMENTS[TITLES[record['dataset']]]
    try:
        record = {'command': '', **training_record(record)}  # the command comes first
        check_record(record)
        record['command'] = record_command(experiment, record)
    except Exception as error:  # damage takes many forms
        raise ConfigError(f'{workdir} cannot be published ({first_line(error)})') from error
    append_record(experiment.name, record)


if __name__ == '__main__':
    launch_command(PublishConfig(), run_publish)
