"""Write docs/api.md, the public names of protojax with their parameters and docstrings: python -m tests.api_page"""

import inspect
import itertools
import pathlib
import re

import protojax

PAGE = pathlib.Path(__file__).parents[1] / 'docs' / 'api.md'
HEAD = """# Public names

For anyone who writes `import protojax`. This page is written from the docstrings by `python -m tests.api_page`. The
shortest use: `protojax.load_pretrained('omniglot-60way-1shot').embed(images)` embeds images with the bundled weights.
"""


def signature(function) -> str:
    """Return the parameters with their defaults, without types."""
    found = inspect.signature(function).parameters
    hidden = {'self', 'parent', 'name'} if 'parent' in found else {'self'}  # Linen adds parent and name
    text = str(inspect.Signature([p.replace(annotation=p.empty) for p in found.values() if p.name not in hidden]))
    return re.sub(r'<(?:function|class) \'?([\w.]+).*?>', r'\1', text)


def summary(value: object) -> str:
    """Return the docstring up to its list of arguments, as one line."""
    return ' '.join((inspect.getdoc(value) or '').split('\n\nArgs:')[0].split())


def entry(name: str, value: object) -> list[str]:
    """Return a list item for a function, or for a class and its public methods."""
    lines = [f'- **`{name}{signature(value)}`** {summary(value)}']
    methods = vars(value) if inspect.isclass(value) else ()
    for method in (m for m in methods if not m.startswith('_') and inspect.isroutine(getattr(value, m))):
        found = getattr(value, method)
        lines.append(f'  - `.{method}{signature(found)}` {summary(found)}')
    return lines


def page() -> str:
    """Return the text of docs/api.md, grouped by module."""
    public = [(v.__module__, n) for n, v in vars(protojax).items() if hasattr(v, '__module__') and n[0] != '_']
    lines = [HEAD]
    for module, names in itertools.groupby(sorted(public), key=lambda pair: pair[0]):
        lines += [f'## {module}\n']
        lines += [line for _, name in names for line in entry(name, getattr(protojax, name))] + ['']
    return '\n'.join(lines)


if __name__ == '__main__':
    PAGE.write_text(page())
