"""A command-line flag for each field of a config, and a --help that shows those that matter first."""

import dataclasses
import re
import sys
import textwrap

from absl import app, flags

from experiments.running.config import GROUPS, ConfigError
from experiments.running.identity import NAMING, config_text, config_value_text, configured
from protojax.errors import printable

TEXTS = tuple[str, ...]  # type of a flag that may be given several times; other tuples are numbers with commas between
# Patterns of absl's errors about flags -> how we say it.
REWORDED = {
    r"^Unknown command line flag '(.+?)'\.? ?": r'--\1 is unknown',
    r'Did you mean: (.+?) \?$': lambda found: f' (did you mean --{found[1].replace(", ", " or --")}?)',
    r'^flag (--.+?): ': r'\1 ',
    r'invalid literal for int.*': 'must be a whole number',
    r'could not convert string to float.*': 'must be a number',
    r'value should be one of <\|?(.*)>': r'must be one of \1',
    r'\(.Non-boolean argument.*': 'must be true or false',
    r'^Missing value for flag (--.+)': r'\1 needs a value',
}


def start_with_flags(main):
    """Run main(argv) as a program, whose wrong flags are told like all other errors."""
    app.run(main, flags_parser=_parsed_flags)


def _parsed_flags(argv):
    try:
        return flags.FLAGS(argv)
    except flags.Error as error:
        print(f'error: {_flag_error_in_our_words(error)}; see --help', file=sys.stderr)
        sys.exit(1)


def _flag_error_in_our_words(error):
    """What absl says of a wrong flag, in the style of our own errors."""
    text = str(error)
    for theirs, ours in REWORDED.items():
        text = re.sub(theirs, ours, text)
    return text


def message_with_flags(error):
    """The message of an error for the terminal, with the `arguments` that the library names as --flags."""
    return printable(re.sub(r'`(\w+(?:=[^`]*)?)`', r'--\1', str(error)))


def define_flags(recipe, flag_values=flags.FLAGS):
    """Define a command-line flag for each field of the recipe, with the recipe's value as its default."""
    for field in dataclasses.fields(recipe):
        value, help, choices = getattr(recipe, field.name), field.metadata['help'], field.metadata['choices']
        common = {'flag_values': flag_values, 'module_name': sys.argv[0]}  # the module so that --help lists the flag
        if choices is not None:
            flags.DEFINE_enum(field.name, value, choices, help, **common)
        elif isinstance(value, bool):
            flags.DEFINE_boolean(field.name, value, help, **common)
        elif field.type == TEXTS:
            flags.DEFINE_multi_string(field.name, list(value), help, **common)
        elif isinstance(value, tuple):
            flags.DEFINE_list(field.name, [str(v) for v in value], help, **common)
        else:
            define = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}[type(value)]
            define(field.name, value, help, **common)


def config_from_flags(recipe, flag_values=flags.FLAGS):
    """The recipe with the values that were given on the command line."""
    types = {field.name: field.type for field in dataclasses.fields(recipe)}
    given = {name: flag_values[name] for name in types}
    values = {name: flag.value for name, flag in given.items() if flag.present}
    for name, value in values.items():
        if isinstance(value, list):
            try:
                values[name] = tuple(value if types[name] == TEXTS else map(int, value))
            except ValueError as error:
                raise ConfigError(f'--{name}={",".join(value)} must be whole numbers with commas between') from error
    config = configured(recipe, values)
    for name, user in config.idle.items():
        if name in values and values[name] != given[name].default:
            raise ConfigError(f'{config_text({name: values[name]})} is not for {user}; leave it out')
    return config


def parse_flags(recipe, arguments):
    """The config that the arguments of a command line make of a recipe, as its own program would understand them."""
    flag_values = flags.FlagValues()
    define_flags(recipe, flag_values)
    try:
        flag_values(['', *arguments])
    except flags.Error as error:
        raise ConfigError(_flag_error_in_our_words(error)) from error
    return config_from_flags(recipe, flag_values)


def flags_help(description, recipe):
    """What --help prints: what the program does, then its flags by group."""
    lines = [(description or '').strip()]
    for group in GROUPS:
        fields = [field for field in dataclasses.fields(recipe) if field.metadata['group'] == group]
        fields.sort(key=lambda field: field.name not in ('way', 'shot'))  # these first
        if not fields:
            continue
        lines += [
            '',
            f'{group}:',
            *(line for field in fields for line in _flag_lines(field, recipe)),
        ]
    return '\n'.join(lines)


def _flag_lines(field, recipe):
    """The help of one flag: its name with its values, and below it what it means, its default and what else it sets."""
    default, choices = getattr(recipe, field.name), field.metadata['choices'] or ()
    shown = config_value_text(default)
    if choices:
        yield f'  --{field.name}={"|".join(filter(None, choices))}'
    elif isinstance(default, bool):
        yield f'  --[no]{field.name}'
        shown = 'yes' if default else 'no'
    else:
        yield f'  --{field.name}'
    paragraphs = [field.metadata['help'] + (f' (default: {shown})' if shown != '' else '')]
    variants = {name: recipe.variants[name] for name in choices if name in recipe.variants}
    if variants and field.name in NAMING:
        paragraphs.append('It also sets, unless another value is given:')
        paragraphs += [f'{name}: {config_text(values)}' for name, values in variants.items()]
    for text in paragraphs:
        yield from textwrap.wrap(text, 96, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
