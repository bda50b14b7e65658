"""What tells a run from others: the fields that determine its result, how they differ from a recipe, and its name."""

import dataclasses

from experiments.running.config import config_value_text, configured, named_variants


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
    variant = named_variants(recipe, values)
    usual = config_identity(configured(recipe, {**known, **variant}))
    return {**variant, **{name: value for name, value in values.items() if value != usual.get(name, value)}}


def name_of_config(experiment, recipe, values):
    """A run name that is unique to these settings."""
    model = [f'{values[name]}{name}' for name in ('way', 'shot') if name in values]
    others = config_changes(recipe, values, beside=('way', 'shot', 'seed'))
    changed = [f'{name}={config_value_text(value)}' for name, value in others.items()]
    return '-'.join([experiment, *model, *changed, f'seed{values["seed"]}'])


def differences_text(differing):
    """What `config_differences` gives, in words."""
    shown = ', '.join(f'{name} ({was!r} there, {now!r} now)' for name, (was, now) in differing.items())
    return f'belongs to another configuration: {shown}'


def config_differences(config, saved):
    """Names and values (saved, now) of the fields that make this another experiment than the saved one."""
    return {name: (saved.get(name), now) for name, now in config_identity(config).items() if saved.get(name) != now}
