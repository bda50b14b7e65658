"""Command-line flags: one for each option of some parts."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from experiments.methods.options import ConfigError, Part, text
from protojax.errors import printable

MAIN = ('way', 'shot', 'model', 'recipe', 'episodes', 'data', 'source', 'workdir', 'seed', 'weights')
# Shown by --helpfull only.
RARE = (
    *('average_decay', 'checkpoint_every', 'clip_norm', 'compilation_cache', 'coordinator_address', 'data_dir'),
    *('episodes_per_step', 'finetune_rate', 'jitter', 'kernels', 'log_every', 'num_processes', 'pictures', 'placement'),
    *('precision', 'process_id', 'retrain_length', 'scale_init', 'test_query', 'validation_episodes'),
)
MAIN_HEADING, RARE_HEADING = 'Main options', 'Rarely used options'
TEXTS = tuple[str, ...]  # type of an option that may be repeated; other tuples are comma-separated integers
KINDS = {bool: flags.DEFINE_boolean, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}


def given(names: Iterable[str], arguments: Sequence[str]) -> dict[str, str]:
    """Read some flags of a command line and ignore the others -> {name: text} of those given."""
    values = flags.FlagValues()
    for name in names:
        flags.DEFINE_string(name, '', '', flag_values=values)
    _read(values, arguments, known_only=True)
    return {name: values[name].value for name in values if values[name].present}


def parse(
    parts: Iterable[type[Part]],
    usual: Mapping[str, Any],
    arguments: Sequence[str],
    *,
    explain: Callable[[str], str] = lambda name: '',
    positional: bool = False,
) -> tuple[list[Any], list[str]]:
    """Parse a command line -> parts, arguments that are not flags.

    Args:
        parts: Classes of options.
        usual: Values of options that are not given, if they are not the default.
        arguments: Command line.
        explain: Returns why the parts lack a flag, or ''.
        positional: Whether there may be arguments that are not flags.

    Raises:
        ConfigError: If a flag is unknown or has an invalid value.
    """
    values = _defined(parts, usual)
    rest = _read(values, arguments, explain)
    if rest and not positional:
        raise ConfigError(f'unexpected argument {rest[0]!r}; flags start with -- (see --help)')
    return [part(**{field.name: _typed(values, field) for field in dataclasses.fields(part)}) for part in parts], rest


def help(description: str, parts: Sequence[type[Part]], usual: Mapping[str, Any], *, full: bool = False) -> str:
    """Format the text of --help: description, main flags, then the flags of each part; `full`: also rare flags."""
    values = _defined(parts, usual)
    headings = dict.fromkeys([MAIN_HEADING, *map(_heading, parts), *[RARE_HEADING] * full])
    more = '' if full else '\n\n--helpfull also shows rarely used flags.'
    if 'model' in values:
        more += '\nWith --model or --encoder, --help shows the flags of another method or encoder.'
    description = description.strip().replace('python -m experiments.', 'protojax ')
    return description + '\n' + '\n'.join(map(values.module_help, headings)) + more


def message(error: object) -> str:
    """Format an error as one line in which `arguments` of the library appear as --flags."""
    return printable(re.sub(r'`(\w+(?:=[^`]*)?)`', r'--\1', str(error)))


def _read(values, arguments, explain=lambda name: '', **options):
    """Set the values of flags -> other arguments."""
    try:
        return values(['', *arguments], **options)[1:]
    except flags.Error as error:
        name = getattr(error, 'flagname', '')  # of an unknown flag
        raise ConfigError(explain(name) or explain(name.removeprefix('no')) or f'{error}; see --help') from error


def _heading(part):
    doc = part.__doc__ or ''
    return 'Options' if doc.startswith(f'{part.__name__}(') else doc.strip()  # that is what dataclasses generate


def _defined(parts, usual):
    """Define a flag for each option of some parts."""
    values = flags.FlagValues()
    for field, heading in [(field, _heading(part)) for part in parts for field in dataclasses.fields(part)]:
        name, default, about = field.name, usual.get(field.name, field.default), field.metadata['help']
        group = MAIN_HEADING if name in MAIN else RARE_HEADING if name in RARE else heading
        common = {'flag_values': values, 'module_name': group}
        if 'choices' in field.metadata['limits']:
            flags.DEFINE_enum(name, default, field.metadata['limits']['choices'], about, **common)
        elif isinstance(default, tuple):
            define = flags.DEFINE_multi_string if field.type == TEXTS else flags.DEFINE_list
            define(name, list(map(str, default)), about, **common)
        else:
            KINDS[type(default)](name, default, about, **common)
    return values


def _typed(values, field):
    """Return the value of a flag as its option has it."""
    value = values[field.name].value
    try:
        return tuple(map(str if field.type == TEXTS else int, value)) if isinstance(value, list) else value
    except ValueError as error:
        raise ConfigError(f'--{field.name}={text(value)}: expected comma-separated integers') from error
