"""Layout of the code: the direction of imports, commands, and names."""

import ast
import functools
import pathlib
import re
import sys

import pytest

import experiments.__main__

ROOT = pathlib.Path(__file__).parents[1]
# From the bottom to the top. A name is a module, or a package with all its modules; the longest match counts.
LAYERS = [
    ['protojax.errors', 'protojax.files'],
    ['protojax.distances', 'protojax.classifiers', 'protojax.episodes', 'protojax.devices'],
    ['protojax'],
    ['experiments.drawing', 'experiments.paper.tables', 'experiments.paper.markdown'],
    ['experiments.methods', 'experiments.running', 'experiments.own_images', 'experiments.drawing.run'],
    ['experiments.paper'],
    ['experiments'],  # commands
]
MODULES = {
    '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__'): path
    for package in ('protojax', 'experiments')
    for path in sorted((ROOT / package).rglob('*.py'))
}


def imported(tree):
    """Yield the modules of ours that a module imports, but for imports that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.dump(node.test):
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f'{node.module}.{alias.name}' for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        yield from (name for name in names if name in MODULES)
        yield from imported(node)


def layer(module):
    places = [(name, number) for number, names in enumerate(LAYERS) for name in names]
    return max((len(name), number) for name, number in places if f'{module}.'.startswith(f'{name}.'))[1]


@functools.cache
def edges():
    """Return the imports, but for those between a package and its own modules."""
    return [
        (module, target)
        for module, path in MODULES.items()
        for target in imported(ast.parse(path.read_text()))
        if not f'{module}.'.startswith(f'{target}.') and not target.startswith(f'{module}.')
    ]


def test_no_import_points_upward():
    assert len(edges()) > 100
    assert not [f'{module} imports {target}' for module, target in edges() if layer(module) < layer(target)]


def test_no_import_goes_in_a_circle():
    graph = {module: {target for source, target in edges() if source == module} for module in MODULES}
    while leaves := {module for module, targets in graph.items() if not targets}:
        graph = {module: targets - leaves for module, targets in graph.items() if module not in leaves}
    assert not graph


@pytest.mark.parametrize(
    ('argument', 'message'), [('omniglott', 'did you mean omniglot?'), ('xyz', 'see protojax --help')]
)
def test_unknown_commands(argument, message, monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['protojax', argument])
    with pytest.raises(SystemExit, match=re.escape(f"error: unknown command '{argument}'; {message}")):
        experiments.__main__.main()
