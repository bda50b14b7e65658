"""The published pages are what the command writes, and their commands reproduce the runs behind them."""

import json
import re
import shlex

import pytest

from experiments import cub, miniimagenet, omniglot, publish
from experiments.paper import pages, records
from experiments.running.config import ConfigError
from experiments.running.workdir import WorkdirError

PROGRAMS = {'omniglot': omniglot, 'miniimagenet': miniimagenet, 'cub': cub}
PUBLISHED = [record for name in PROGRAMS for record in records.published(name)]
LAST = records.published('omniglot')[-1]
PAGE = (publish.ROOT / 'docs/results.md').read_text()


def parsed(command):
    """The config of a command."""
    program, *given = command.split()[2:]
    return PROGRAMS[program.removeprefix('experiments.')].EXPERIMENT.parse([*given, '--data=real'])


def test_pages_are_what_the_command_writes():
    for path, text in publish.written().items():
        assert path.read_text() == text


def test_records_are_valid_and_name_no_path():
    for record in PUBLISHED:
        records.check(record)
        assert not record['synthetic'] and not {'workdir', 'data_dir', 'source'} & set(record['config'])
        assert shlex.join(record['command'].split()) == record['command']


def test_commands_lead_to_the_configs_of_their_runs():
    for record in PUBLISHED:
        try:
            made = parsed(record['command']).flat
        except ConfigError:
            assert records.without_seed(record) not in PAGE  # a flag that has been removed since
            continue
        config = {name: value for name, value in record['config'].items() if name in made}
        if config['retrain'] or made['patience'] * made['validate_every'] >= config['episodes'] > 0:
            config.pop('patience', None)  # cannot end the run, so its default may have changed
        assert {name: made[name] for name in config} == config, record['command']


def test_every_command_on_the_page_is_valid():
    commands = re.findall(r'python -m experiments\.(?:omniglot|miniimagenet|cub)[^`\n]*', PAGE)
    assert len(commands) > 30 and all(map(parsed, commands))


def test_the_rows_that_show_a_run():
    template = (records.PUBLISHED / 'page.md').read_text()
    for flags, row in (
        ({'way': 60, 'shot': 1, 'query': 5}, '1-shot, 5 queries, 60-way (table 4)'),
        ({'way': 60, 'shot': 1, 'resize': 'nearest'}, 'nearest-neighbour resizing'),
    ):
        record = records.select_published('omniglot', flags)[0]
        assert row in pages.rows_with(record, template)
        assert pages.rows_with({**record, 'seed': 99}, template) == []


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """The workdir of a published run, and an empty directory of records."""
    monkeypatch.setattr(records, 'PUBLISHED', tmp_path / 'results')
    (tmp_path / 'results').mkdir()
    (tmp_path / 'results.json').write_text(json.dumps({**LAST, 'command': 5}))
    return tmp_path


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        ({'synthetic': True, 'dataset': 'synthetic handwriting'}, "only runs on the paper's data"),
        ({'features': '$(reboot) --way'}, 'would need quotes'),
        ({'weights': {'config': {}}}, 'does not contain the config'),
        ({'config': {'shot': 1, 'episodes': 1}}, "is corrupted .'way'."),
        ({'dataset': []}, 'is corrupted .unhashable'),
    ],
)
def test_other_runs_are_rejected_in_one_line(workdir, values, message):
    (workdir / 'results.json').write_text(json.dumps({**LAST, **values}))
    with pytest.raises((ConfigError, WorkdirError), match=f'^.*{message}.*$'):
        publish.add(workdir)
    with pytest.raises(ConfigError, match='expects the workdir of a finished run'):
        publish.add(workdir / 'nothing')
    assert records.published('omniglot') == []


def test_the_command_adds_a_run_and_writes_pages_and_charts(workdir, monkeypatch, capsys):
    monkeypatch.setattr(publish, 'ROOT', workdir)
    monkeypatch.setattr(publish, 'written', lambda: {workdir / 'page.md': 'text'})
    (workdir / 'results/page.md').touch()
    (workdir / 'docs/figures').mkdir(parents=True)
    monkeypatch.setattr(publish, 'CHARTS', ['way'])
    publish.run(publish.PublishConfig(add=(str(workdir),)))
    assert f'{workdir} is shown in ' in capsys.readouterr().out
    (record,) = records.published('omniglot')
    assert record['command'] == LAST['command'] and record['config'] == LAST['config']
    assert (workdir / 'page.md').read_text() == 'text'
    assert (workdir / 'docs/figures/way.png').read_bytes().startswith(b'\x89PNG')
