"""Write docs/api.md, the public names of protojax with their parameters and docstrings: python -m tests.api_page"""

import inspect
import itertools
import pathlib
import re
import textwrap

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


def item(head: str, value: object) -> str:
    """Return a list item with the docstring, in which arguments and fields are nested items."""
    text = re.sub(r'^ {4}([\w*, ]+): ', r'- `\1`: ', inspect.getdoc(value) or '', flags=re.MULTILINE)
    fields = re.findall(r'^ {4}(\w+): [^#\n]*  # (.*)', inspect.getsource(value), re.MULTILINE)
    return '\n  '.join([f'- {head} {text}'.replace('\n', '\n  '), *(f'- `{name}`: {about}' for name, about in fields)])


def entry(name: str, value: object) -> str:
    """Return a list item for a function, or for a class with its fields and documented public methods."""
    lines = [item(f'**`{name}{signature(value)}`**', value)]
    for method, found in [(m, getattr(value, m)) for m in vars(value) if inspect.isclass(value) and m[0] != '_']:
        if inspect.isroutine(found) and found.__doc__:
            lines.append(textwrap.indent(item(f'`.{method}{signature(found)}`', found), '  '))
    return re.sub(' +$', '', '\n'.join(lines), flags=re.MULTILINE)


def page() -> str:
    """Return the text of docs/api.md, grouped by module."""
    public = [(v.__module__, n) for n, v in vars(protojax).items() if hasattr(v, '__module__') and n[0] != '_']
    lines = [HEAD]
    for module, names in itertools.groupby(sorted(public), key=lambda pair: pair[0]):
        lines += [f'## {module}\n']
        lines += [*(entry(name, getattr(protojax, name)) for _, name in names), '']
    return '\n'.join(lines)


if __name__ == '__main__':
    PAGE.write_text(page())
