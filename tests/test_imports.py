"""The direction of imports: a module knows those of lower layers and its own, never those above it."""

import ast
import dataclasses
import pathlib
import re

import pytest

from experiments.running.config import FewShotConfig, ZeroShotConfig

ROOT = pathlib.Path(__file__).parents[1]

# From the bottom to the top. A name stands for a module, or for a package with all that it holds; the longest counts.
LAYERS = [
    ['protojax.errors', 'protojax.files'],
    ['protojax.datasets.formats', 'protojax.images'],
    ['protojax.distances', 'protojax.devices', 'protojax.augmentation', 'protojax.episodes'],
    ['protojax.prototypes', 'protojax.hosted'],
    ['protojax.classifiers', 'protojax.known_classes'],
    ['protojax.class_files'],
    ['protojax.encoders.block', 'protojax.encoders.cpu.build', 'protojax.encoders.pixels'],
    ['protojax.encoders.cpu', 'protojax.encoders.sphere'],
    ['protojax.encoders.conv4'],
    ['protojax.encoders'],
    ['protojax.photo_weights'],
    ['protojax.tasks', 'protojax.training', 'protojax.evaluation', 'protojax.checkpoints', 'protojax.pretrained'],
    ['protojax.exporting'],
    ['protojax.datasets'],
    ['protojax.datasets.sources', 'protojax.datasets.synthetic'],
    ['protojax.datasets.preparing'],
    [
        'protojax.datasets.folder',
        'protojax.datasets.omniglot',
        'protojax.datasets.miniimagenet',
        'protojax.datasets.cub',
    ],
    ['protojax'],
    ['experiments.compared', 'experiments.reporting'],
    ['experiments.running'],
    ['experiments.publishing'],
    ['experiments.page', 'experiments.benchmark', 'experiments.faults', 'experiments.fuzzing'],
    ['experiments.omniglot', 'experiments.miniimagenet', 'experiments.cub', 'experiments.folder'],
    ['experiments'],  # the other commands
]


def modules():
    """Names of all modules, with their files."""
    for package in ('protojax', 'experiments'):
        for path in sorted((ROOT / package).rglob('*.py')):
            parts = path.relative_to(ROOT).with_suffix('').parts
            yield '.'.join(parts[:-1] if parts[-1] == '__init__' else parts), path


MODULES = dict(modules())


def imported(path):
    """The modules of ours that a file imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f'{node.module}.{alias.name}' for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        else:
            continue
        yield from (name for name in names if name in MODULES)


def layer(module):
    """Number of the layer with the longest name that the module has or lies below."""
    fitting = [
        (len(name), number)
        for number, names in enumerate(LAYERS)
        for name in names
        if module == name or module.startswith(f'{name}.')
    ]
    return max(fitting)[1]


EDGES = [(module, target) for module, path in MODULES.items() for target in imported(path) if target != module]


def test_no_import_points_upward():
    upward = [f'{module} imports {target}' for module, target in EDGES if layer(module) < layer(target)]
    # A package's __init__ may collect what the modules in it define.
    upward = [edge for edge in upward if not edge.split(' imports ')[1].startswith(f'{edge.split(" imports ")[0]}.')]
    assert not upward


def test_no_import_goes_in_a_circle():
    """Beside those of a package's __init__ with its own modules."""
    graph = {module: set() for module in MODULES}
    for module, target in EDGES:
        if not module.startswith(f'{target}.') and not target.startswith(f'{module}.'):
            graph[module].add(target)
    while leaves := {module for module, targets in graph.items() if not targets}:
        graph = {module: targets - leaves for module, targets in graph.items() if module not in leaves}
    assert not graph


@pytest.mark.parametrize('module', [m for m in MODULES if m.count('.') == 1 and m.startswith('experiments.')])
def test_a_module_directly_in_experiments_is_a_command(module):
    if MODULES[module].name != '__init__.py':
        assert "if __name__ == '__main__':" in MODULES[module].read_text()


def test_the_library_names_no_flag():
    flags = '|'.join(
        sorted({field.name for kind in (FewShotConfig, ZeroShotConfig) for field in dataclasses.fields(kind)})
    )
    library = {module: path.read_text() for module, path in MODULES.items() if module.startswith('protojax')}
    assert not [module for module, text in library.items() if re.search(rf'--({flags})\b', text)]


def test_the_library_names_no_command():
    library = {module: ast.parse(path.read_text()) for module, path in MODULES.items() if module.startswith('protojax')}
    texts = [(module, node.value) for module, tree in library.items() for node in ast.walk(tree) if _is_text(node)]
    assert len(texts) > 1000
    assert not [(module, text) for module, text in texts if 'experiments.' in text]


def _is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
