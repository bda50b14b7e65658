"""A config in terms of a recipe: as text, what tells its run from others, and the name of this run."""

import dataclasses

NAMING = ('model', 'recipe')  # flags whose values may name a variant of the recipe, with other values of other flags


def config_value_text(value):
    return ','.join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def config_text(values):
    """Values as the flags of a command: {name: value} -> text."""
    return ' '.join(f'--{name}={config_value_text(value)}' for name, value in values.items())


def configured(recipe, given):
    """The recipe, or the variants of it that are given by name, with the given values."""
    variants = [recipe.variants[value] for value in _named_variants(recipe, given).values()]
    return dataclasses.replace(recipe, **{k: v for values in (*variants, given) for k, v in values.items()}).resolved()


def _named_variants(recipe, values):
    """Those of the values that name a variant of the recipe, the model first: a recipe may change its values."""
    return {flag: values[flag] for flag in NAMING if values.get(flag) in recipe.variants}


def config_to_json(config):
    """All fields as plain values."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(config).items()}


def config_identity(config):
    """The fields that determine the result of a run, as plain values; paths and machine settings are left out."""
    values = config_to_json(config)
    return {field.name: values[field.name] for field in dataclasses.fields(config) if field.metadata['identity']}


def config_changes(recipe, values, beside):
    """The fields in which a run differs from its recipe, apart from those in `beside`.

    The name of a variant stands for all that it changes.
    """
    known = {name: values[name] for name in beside if name in values}
    variant = _named_variants(recipe, values)
    usual = config_identity(configured(recipe, {**known, **variant}))
    return {**variant, **{name: value for name, value in values.items() if value != usual.get(name, value)}}


def name_of_config(experiment, recipe, values):
    """A run name that is unique to these settings."""
    model = [f'{values[name]}{name}' for name in ('way', 'shot') if name in values]
    others = config_changes(recipe, values, beside=('way', 'shot', 'seed'))
    changed = [f'{name}={config_value_text(value)}'.replace('/', '-') for name, value in others.items()]
    return '-'.join([experiment, *model, *changed, f'seed{values["seed"]}'])


def differences_text(differing):
    """What `config_differences` gives, in words."""
    shown = ', '.join(f'{name} ({was!r} there, {now!r} now)' for name, (was, now) in differing.items())
    return f'belongs to another configuration: {shown}'


def config_differences(config, saved):
    """Names and values (saved, now) of the fields that make this another experiment than the saved one."""
    return {name: (saved.get(name), now) for name, now in config_identity(config).items() if saved.get(name) != now}
