"""Documents: Python snippets run, named files and functions exist, docs/api.md is current."""

import ast
import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

import protojax
from protojax.datasets.synthetic import handwriting
from tests import api_page
from tests.helpers import compiler
from tests.helpers.forks import Program

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = {path.name: path for path in (ROOT / 'README.md', ROOT / 'BUILD.md', *sorted(ROOT.glob('docs/*.md')))}
TEXTS = {name: path.read_text() for name, path in DOCUMENTS.items()}
SNIPPET = re.compile(r'(<!-- not run.*-->\n)?^```python\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SNIPPETS = {name: [code for skip, code in SNIPPET.findall(text) if not skip] for name, text in TEXTS.items()}
TINY = '--data=synthetic --episodes=4 --validate_every=2 --validation_episodes=4 --test_episodes=4 --pictures=off '
TINY += '--way=5 --query=2 --test_way=5 --validation_way=5 --test_shot=1 --compilation_cache=off'
FEW = 'from functools import partial\nfrom protojax.datasets import omniglot\n'
FEW += 'omniglot.handwriting = partial(omniglot.handwriting, alphabets=(2, 1, 1))\n'
DRAWINGS = functools.cache(handwriting.handwriting)


@pytest.mark.parametrize('name', [name for name, codes in SNIPPETS.items() if codes])
def test_snippets_run(name, tmp_path, monkeypatch, capsys):
    """All snippets of a document share a namespace; `print(...)  # text` must print the text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(handwriting, 'handwriting', DRAWINGS)
    monkeypatch.setattr(protojax, 'usable_devices', lambda _: jax.devices()[:1])  # compiles faster than eight
    names = {'__name__': name}
    for code in SNIPPETS[name]:
        exec(compile(code, name, 'exec'), names)
        printed = capsys.readouterr().out
        assert all(text in printed for text in re.findall(r'^print\(.*\)  # (.*)$', code, re.MULTILINE))
        if 'learner =' in code:
            trace_loss(names['learner'])


def trace_loss(learner):
    """Trace the loss for drawings of 28x28 pixels, without compiling or computing them."""
    data, key = protojax.Dataset(jnp.zeros((20, 20, 28, 28, 1), jnp.uint8), jnp.full(20, 20)), jax.random.key(0)
    params, batch_stats = jax.eval_shape(learner.init, key)
    loss, _ = jax.eval_shape(lambda *args: learner.loss(*args, data, key), params, batch_stats)
    assert loss.shape == ()


@pytest.mark.parametrize('code', [c for codes in SNIPPETS.values() for c in codes if '__main__' in c])
def test_programs_run(code, tmp_path):
    (tmp_path / 'mine.py').write_text(FEW + code)
    flags = [*TINY.split(), f'--workdir={tmp_path / "run"}']
    program = Program(str(tmp_path / 'mine.py'), *flags, XLA_FLAGS=compiler.flags())
    assert program.wait() == 0, program.output
    assert (tmp_path / 'run' / 'results.json').exists()


@functools.cache
def names_in(path):
    """Return the functions, classes and constants at the top level of a Python file."""
    names = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        names |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        names |= {t.id for t in getattr(node, 'targets', [getattr(node, 'target', None)]) if isinstance(t, ast.Name)}
    return names


@pytest.mark.parametrize('name', DOCUMENTS)
def test_named_places_exist(name):
    places = re.findall(r'`((?:protojax|experiments|tests)/[\w/]+\.\w+)(?::{1,2}(\w+))?`', TEXTS[name])
    assert not [p for p in places if not (ROOT / p[0]).is_file() or p[1] and p[1] not in names_in(p[0])]
    assert not [n for n in re.findall(r'\bprotojax\.([A-Za-z]\w+)\b(?!/)', TEXTS[name]) if not hasattr(protojax, n)]


@pytest.mark.parametrize('name', DOCUMENTS)
def test_links_lead_somewhere(name):
    links = re.findall(r'\]\(([^)]+)\)', TEXTS[name]) + re.findall(r'^\[.*\]: (.*)$', TEXTS[name], re.MULTILINE)
    for path, _, anchor in (link.partition('#') for link in links if not link.startswith('http')):
        target = DOCUMENTS[name].parent / path if path else DOCUMENTS[name]
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), anchor


def anchors(path):
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
    return {re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-') for heading in headings}


def test_ci_runs_the_test_command_of_the_readme():
    (command,) = re.findall(r'<!-- test command -->\n```sh\n(.*)\n```', TEXTS['README.md'])
    assert command in (ROOT / '.ci/run').read_text().splitlines()


def test_the_page_of_public_names_is_current():
    assert TEXTS['api.md'] == api_page.page(), 'run python -m tests.api_page'
