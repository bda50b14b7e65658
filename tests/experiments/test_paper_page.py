"""The page that leads from the paper to the code: its places exist, and its one-liners are what they are called."""

import ast
import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import protojax
from experiments import cub, miniimagenet, omniglot
from protojax.episodes import Episode

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'experiments/PAPER.md').read_text()
PLACES = sorted(set(re.findall(r'`((?:protojax|experiments|tests)/[\w/]+\.py)(?::{1,2}(\w+))?`', PAGE)))


@functools.cache
def names_in(path):
    """What a module defines at its top: functions, classes and constants."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


@pytest.mark.parametrize('path, name', PLACES)
def test_places_exist(path, name):
    assert (ROOT / path).is_file()
    assert not name or name in names_in(path)


def test_rows_have_a_place_and_a_test():
    rows = [line.split(' | ') for line in PAGE.split('## Claims')[0].splitlines() if ' | ' in line]
    rows = [row for row in rows if row[0] not in ('| paper', '| ---')]
    assert len(rows) > 50
    for row in rows:
        assert len(row) == 4 and '`tests/' in row[3]
        assert re.search(r'`(protojax|experiments)/[\w/]+\.py:\w+`', row[2]) or row[2] == 'below'


def section(title):
    """The lines of a table in one section, as lists of cells."""
    lines = PAGE.split(f'## {title}\n')[1].split('\n## ')[0].splitlines()
    rows = [[cell.strip() for cell in line.strip('|').split(' | ')] for line in lines if line.startswith('| ')]
    return [row for row in rows if set(row[0]) != {'-'}]


def test_claims_are_confirmed_or_not_and_lead_to_the_results():
    heads = re.findall(r'^## (.*)$', (ROOT / 'experiments/RESULTS.md').read_text(), re.MULTILINE)
    anchors = {re.sub(r'[^\w -]', '', head.lower()).replace(' ', '-') for head in heads}
    links = dict(re.findall(r'^\[(.*)\]: RESULTS.md#(.*)$', PAGE, re.MULTILINE))
    assert set(links.values()) <= anchors
    for _, _, found, *where in section('Claims')[1:]:
        assert re.search('confirmed|not measured|assumption', found)
        places = re.findall(r'\[(.*?)\]', where[0]) if where else []
        assert set(places) <= links.keys() and (places or 'not measured' in found)


def test_accuracies_are_those_of_the_results():
    quoted = re.findall(r'\b\d{1,2}\.\d\d\b', PAGE.split('## Claims')[1].replace('0.06 to 0.11 points', ''))
    assert len(quoted) > 20
    assert set(quoted) <= set(re.findall(r'\d+\.\d\d', (ROOT / 'experiments/RESULTS.md').read_text()))


def test_every_deviation_has_a_reason_and_a_cost():
    rows = section('Where protojax deviates')
    systems = rows.index(['system', 'protojax', 'reason'])
    assert all(len(row) == 4 and all(row) for row in rows[:systems])
    assert all(len(row) == 3 and all(row) for row in rows[systems:])


def test_flags_exist():
    known = {field for e in (omniglot, miniimagenet, cub) for field in e.RECIPE.__dataclass_fields__}
    flags = {flag.removeprefix('no') if flag not in known else flag for flag in re.findall(r'--(\w+)', PAGE)}
    assert flags - {'list', 'figure'} <= known  # those of experiments.tables and experiments.figures


def one_liner(name):
    """The value that a snippet of the page gives to a name, as a function of what else it may use."""
    (line,) = re.findall(rf'^{name} = (.*)$', PAGE, re.MULTILINE)
    return lambda **values: eval(line, {**vars(protojax), 'jnp': jnp, **values})


def test_neighbourhood_components_are_matching_networks():
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(6, 3)), np.array([0, 1, 0, 1, 1, 0])
    nca = one_liner('nca')(z=jnp.asarray(z), labels=jnp.asarray(labels), way=2)
    for i in range(6):
        weights = np.exp(-((z - z[i]) ** 2).sum(1)) * (np.arange(6) != i)
        expected = -np.log(weights[labels == labels[i]].sum() / weights.sum())
        np.testing.assert_allclose(nca(i)[0], expected, rtol=1e-4)


def test_nearest_class_mean_is_a_linear_prototypical_network():
    task = one_liner('nearest_class_mean')()
    params, batch_stats = task.initialize(jax.random.key(0))
    rng = np.random.default_rng(0)
    support, queries, labels = rng.normal(size=(20, 7)), rng.normal(size=(9, 7)), np.repeat(np.arange(4), 5)
    embedded = (task.embed(params, batch_stats, jnp.float32(points)) for points in (support, queries))
    points, asked = embedded
    logits = task.classify(params, Episode(points, jnp.asarray(labels), asked, None, jnp.arange(4)))
    kernel = np.asarray(params['encoder']['Dense_0']['kernel'])
    means = np.stack([support[labels == k].mean(0) for k in range(4)])
    distances = (((queries[:, None] - means[None]) @ kernel) ** 2).sum(-1)
    np.testing.assert_array_equal(logits.argmax(1), distances.argmin(1))
