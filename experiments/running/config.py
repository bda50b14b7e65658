"""What an experiment is made of: a frozen dataclass per kind, and a command-line flag for each of its fields."""

import dataclasses
import sys
from typing import ClassVar

from absl import flags


class ConfigError(ValueError):
    """A configuration that cannot be run: one line that names the flag and the way out."""


def option(default, help, *, minimum=None, choices=None, identity=True):
    """A field with its help text and the values that it takes.

    Fields without `identity` do not change what is computed, so a run may be continued with another value.
    """
    metadata = {'help': help, 'minimum': minimum, 'choices': choices, 'identity': identity}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """What all experiments share."""

    variants: ClassVar[dict] = {}  # name of a recipe beside the paper's -> the values that it changes

    data: str = option(
        'auto',
        'Which data: "real" (an error where they cannot be had), "synthetic" (a built-in stand-in, never a '
        'download), or "auto": real where they are on the machine or can be downloaded, else the stand-in.',
        choices=('auto', 'real', 'synthetic'),
    )
    source: str = option('', 'Folder or archive with the original data files, to prepare them from.', identity=False)
    data_dir: str = option('', 'Where prepared data lie (default: ~/tensorflow_datasets).', identity=False)
    workdir: str = option(
        '',
        'Folder of this run: config, metrics, checkpoints, results. Starting again in it goes on where the run was. '
        'Default: runs/ and a name made of the data set and the flags that make it another experiment.',
        identity=False,
    )
    seed: int = option(0, 'All randomness follows from it.', minimum=0)
    way: int = option(60, 'Classes per training episode (N_C).', minimum=2)
    query: int = option(5, 'Query examples per class and training episode (N_Q).', minimum=1)
    episodes: int = option(
        0,
        'Training episodes; 0: the validation loss chooses (see --patience and --retrain), but a run on a stand-in '
        'is short.',
        minimum=0,
    )
    episodes_per_step: int = option(1, 'Episodes whose gradients are averaged for one update. Paper: 1.', minimum=1)
    learning_rate: float = option(1e-3, "Adam's learning rate. Paper: 1e-3 (CUB: 1e-4).")
    halve_every: int = option(2000, 'Halve the learning rate every so many episodes; 0: never. Paper: 2000.', minimum=0)
    schedule: str = option(
        'halving',
        'Course of the learning rate: halved every --halve_every episodes, or a cosine that ends at 0 with --episodes.',
        choices=('halving', 'cosine'),
    )
    average_decay: float = option(
        0.0, 'Evaluate a moving average of the parameters that keeps this share of itself at each update. Paper: 0.'
    )
    weight_decay: float = option(0.0, 'Weight decay, added to the gradient. Paper: 0 (CUB: 1e-5).')
    validate_every: int = option(100, 'Episodes between looks at the validation loss. Official code: 100.', minimum=1)
    patience: int = option(
        200, 'Looks without a better validation loss before training stops. Official: 200.', minimum=1
    )
    retrain: bool = option(
        True,
        'The final model is trained anew on the classes of train and validation, for as long as --episodes or the '
        'validation loss says. Otherwise it is the one with the least validation loss.',
    )
    evaluate_on: str = option(
        'test',
        'Classes of the final table. "validation" trains on the training classes alone and never looks at the test '
        'classes: for choosing between recipes.',
        choices=('test', 'validation'),
    )
    test_episodes: int = option(1000, 'Episodes per cell of the final table.', minimum=1, identity=False)
    evaluate_only: bool = option(False, 'Only evaluate what the workdir holds.', identity=False)
    weights: str = option(
        '',
        'Only evaluate these weights: a name that comes with protojax, or the weights.npz in the workdir of a run.',
        identity=False,
    )
    log_every: int = option(100, 'Episodes between lines of metrics.', minimum=1)
    checkpoint_every: int = option(500, 'Episodes between checkpoints.', minimum=1, identity=False)
    precision: str = option(
        'float32', "Type of the encoder's activations; all else stays float32.", choices=('float32', 'bfloat16')
    )
    kernels: str = option(
        'auto',
        'C++ kernels for the encoder on CPU: "auto" where a compiler is found, or "off".',
        choices=('auto', 'off'),
    )
    compilation_cache: str = option(
        'auto', 'Folder of compiled programs ("auto": ~/.cache/protojax/xla; "off": none).', identity=False
    )
    coordinator_address: str = option('', 'host:port of process 0 in a job of several processes.', identity=False)
    num_processes: int = option(0, 'Processes in the job (0: one, or what a TPU pod says).', minimum=0, identity=False)
    process_id: int = option(0, 'Number of this process in the job.', minimum=0, identity=False)

    def resolved(self):
        """The config with every value filled in that depends on others."""
        return self

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, allowed = getattr(self, field.name), field.metadata
            if allowed['minimum'] is not None and value < allowed['minimum']:
                raise ConfigError(f'--{field.name}={value} is too small; the least is {allowed["minimum"]}')
            if allowed['choices'] is not None and value not in allowed['choices']:
                raise ConfigError(f'--{field.name}={value} is unknown; choose {" or ".join(allowed["choices"])}')
        if self.learning_rate <= 0:
            raise ConfigError(f'--learning_rate={self.learning_rate} must be above 0')
        if not 0 <= self.average_decay < 1:
            raise ConfigError(f'--average_decay={self.average_decay} must be at least 0 and below 1')
        if self.schedule == 'cosine' and not self.episodes:
            raise ConfigError('--schedule=cosine must know its end; give --episodes')
        if self.weight_decay < 0:
            raise ConfigError(f'--weight_decay={self.weight_decay} must not be negative')
        for name in ('episodes', 'log_every', 'validate_every', 'checkpoint_every', 'halve_every'):
            if getattr(self, name) % self.episodes_per_step:
                raise ConfigError(
                    f'--{name}={getattr(self, name)} is no multiple of --episodes_per_step={self.episodes_per_step}'
                )


@dataclasses.dataclass(frozen=True)
class FewShotConfig(Config):
    """Learning to classify from a few examples."""

    shot: int = option(1, 'Support examples per class in training (N_S).', minimum=1)
    model: str = option(
        'prototypical',
        'prototypical: distance to class means; matching: attention over single support points.',
        choices=('prototypical', 'matching'),
    )
    distance: str = option(
        'euclidean',
        'euclidean (squared) and cosine are in the paper; mahalanobis learns one matrix for all classes, diagonal '
        'estimates a variance per class and dimension.',
        choices=('euclidean', 'cosine', 'mahalanobis', 'diagonal'),
    )
    temperature: float = option(1.0, 'Divides all distances. Paper: 1, also for cosine.')
    prototypes_per_class: int = option(1, 'Prototypes of each class, by k-means on its support. Paper: 1.', minimum=1)
    kernel_init: str = option(
        'he_normal',
        "Convolutions at the start: by He's rule, or uniform in +-1 / sqrt(fan-in) as in PyTorch. Measured on "
        'Omniglot alone.',
        choices=('he_normal', 'uniform'),
    )
    scale_init: str = option(
        'ones',
        'Batch-norm scales at the start: 1, or uniform in [0, 1] as in the PyTorch of 2017. Measured on Omniglot '
        'alone.',
        choices=('ones', 'uniform'),
    )
    test_statistics: str = option(
        'running',
        'Batch-norm statistics at test: their running averages, or measured anew over images of the training classes.',
        choices=('running', 'measured'),
    )
    mirror: bool = option(
        False, 'Mirror each class of a training episode with a chance of one half, all its images alike. Paper: no.'
    )
    shift: int = option(
        0, 'Move each training image by up to so many whole pixels along each axis, drawn anew. Paper: 0.', minimum=0
    )
    test_way: list = option((5, 20), 'Classes per test episode, one column each.')
    test_shot: list = option((1, 5), 'Support examples per class in test episodes, one column each.')
    test_query: int = option(15, 'Query examples per class in validation and test episodes.', minimum=1)
    validation_way: int = option(5, 'Classes per validation episode.', minimum=2)
    validation_episodes: int = option(500, 'Episodes per look at the validation loss.', minimum=1)

    def __post_init__(self):
        super().__post_init__()
        if self.temperature <= 0:
            raise ConfigError(f'--temperature={self.temperature} must be above 0')
        if any(way < 2 for way in self.test_way) or any(shot < 1 for shot in self.test_shot):
            raise ConfigError(f'--test_way={self.test_way} must be 2 or more, --test_shot={self.test_shot} 1 or more')
        if self.prototypes_per_class > self.shot:
            raise ConfigError(f'--prototypes_per_class={self.prototypes_per_class} is more than --shot={self.shot}')
        if self.model == 'matching' and (self.prototypes_per_class > 1 or self.distance == 'diagonal'):
            raise ConfigError(
                '--model=matching has no prototypes: leave out --prototypes_per_class and --distance=diagonal'
            )


@dataclasses.dataclass(frozen=True)
class ZeroShotConfig(Config):
    """Learning to classify from meta-data of the classes."""

    dimensions: int = option(1024, 'Dimensions of the space that images and attributes are mapped to.', minimum=1)


def define_flags(recipe, flag_values=flags.FLAGS):
    """Define a command-line flag for each field of the recipe, with the recipe's value as its default."""
    for field in dataclasses.fields(recipe):
        value, help, choices = getattr(recipe, field.name), field.metadata['help'], field.metadata['choices']
        common = {'flag_values': flag_values, 'module_name': sys.argv[0]}  # the module so that --help lists the flag
        if choices is not None:
            flags.DEFINE_enum(field.name, value, choices, help, **common)
        elif isinstance(value, bool):
            flags.DEFINE_boolean(field.name, value, help, **common)
        elif isinstance(value, tuple):
            flags.DEFINE_list(field.name, [str(v) for v in value], help, **common)
        else:
            define = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}[type(value)]
            define(field.name, value, help, **common)


def from_flags(recipe, flag_values=flags.FLAGS):
    """The recipe with the values that were given on the command line."""
    given = {field.name: flag_values[field.name] for field in dataclasses.fields(recipe)}
    values = {name: flag.value for name, flag in given.items() if flag.present}
    for name, value in values.items():
        if isinstance(value, list):
            try:
                values[name] = tuple(int(v) for v in value)
            except ValueError as error:
                raise ConfigError(f'--{name}={",".join(value)} must be whole numbers with commas between') from error
    return configured(recipe, values)


def parse(recipe, arguments):
    """The config that the arguments of a command line make of a recipe, as its own program would understand them."""
    flag_values = flags.FlagValues()
    define_flags(recipe, flag_values)
    try:
        flag_values(['', *arguments])
    except flags.Error as error:
        raise ConfigError(str(error)) from error
    return from_flags(recipe, flag_values)


def configured(recipe, given):
    """The recipe, or the variant of it that is given by name, with the given values."""
    variant = recipe.variants.get(given.get('recipe'), {})
    return dataclasses.replace(recipe, **{**variant, **given}).resolved()


def to_json(config):
    """All fields as plain values."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(config).items()}


def identity(config):
    """The fields that make it another experiment than others, as plain values: without places and the like."""
    values = to_json(config)
    return {field.name: values[field.name] for field in dataclasses.fields(config) if field.metadata['identity']}


def changes(recipe, values, beside):
    """What turns a recipe into the identity of a config, beside these fields: the names and values of others.

    The name of a variant stands for all that it changes.
    """
    known = {name: values[name] for name in beside if name in values}
    variant = {'recipe': values['recipe']} if values.get('recipe') in recipe.variants else {}
    usual = identity(configured(recipe, {**known, **variant}))
    return {**variant, **{name: value for name, value in values.items() if value != usual[name]}}


def run_name(experiment, recipe, values):
    """A name for the run of an identity that no run of another one has."""
    model = [f'{values[name]}{name}' for name in ('way', 'shot') if name in values]
    others = changes(recipe, values, beside=('way', 'shot', 'seed'))
    changed = [f'{name}={as_text(value)}' for name, value in others.items()]
    return '-'.join([experiment, *model, *changed, f'seed{values["seed"]}'])


def as_text(value):
    return ','.join(map(str, value)) if isinstance(value, list) else str(value)


def differing_fields(config, saved):
    """Names and values (saved, now) of the fields that make this another experiment than the saved one."""
    return {name: (saved.get(name), now) for name, now in identity(config).items() if saved.get(name) != now}
