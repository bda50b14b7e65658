"""The program `protojax`: `protojax COMMAND` is short for `python -m experiments.COMMAND`."""

import ast
import difflib
import pathlib
import runpy
import sys


def commands() -> dict[str, pathlib.Path]:
    """Return {name: file} of all commands: modules of this package, and packages with a `__main__`."""
    folder = pathlib.Path(__file__).parent
    modules = {file.stem: file for file in folder.glob('[!_]*.py')}
    return dict(sorted({**modules, **{file.parent.name: file for file in folder.glob('*/__main__.py')}}.items()))


def usage() -> str:
    """Return the help, with the first line of each command's docstring; the commands are not imported."""
    lines = ['Usage: protojax COMMAND [FLAGS]; protojax COMMAND --help lists the flags of a command.', '']
    for name, file in commands().items():
        summary = (ast.get_docstring(ast.parse(file.read_text())) or '').partition('\n')[0]
        lines.append(f'  {name:14}{summary}')
    return '\n'.join(lines)


def main() -> None:
    """Run the command that the first argument names."""
    command, *arguments = sys.argv[1:] or ['--help']
    if command in ('--help', '-h', 'help'):
        print(usage())
    elif command not in commands():
        similar = difflib.get_close_matches(command, commands(), 1)
        hint = f'did you mean {similar[0]}?' if similar else 'see protojax --help'
        sys.exit(f'error: unknown command {command!r}; {hint}')
    else:
        sys.argv = [f'protojax {command}', *arguments]
        runpy.run_module(f'experiments.{command}', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
