"""Options: dataclass fields with a help text and limits. Each becomes a command-line flag."""

import dataclasses
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, dataclass_transform

import flax.linen as nn

from experiments.methods import finetuning
from protojax import Learner, Parametric, Splits, augmentation, distances
from protojax.augmentation import Augmentation
from protojax.distances import Distance

DISTANCES: dict[str, Distance | Parametric] = {
    'euclidean': distances.squared_euclidean,
    'unsquared': distances.euclidean,
    'cosine': distances.cosine,
    'mahalanobis': distances.learned_mahalanobis(),
}


class ConfigError(ValueError):
    """Invalid options: one line that names the flag and a remedy."""


LIMITS: dict[str, tuple[Callable, str]] = {
    'choices': (lambda value, choices: value in choices, 'one of {}'),
    'minimum': (operator.ge, 'at least {}'),
    'above': (operator.gt, 'a number above {}'),
    'below': (operator.lt, 'a number below {}'),
}


def option(default: Any, help: str, *, identity: bool = True, **limits: Any) -> Any:
    """Declare an option: a dataclass field with its help text and limits.

    Args:
        default: Value unless an experiment, method or recipe provides another.
        help: Text for --help.
        identity: False if the value does not affect the results, so that a run may be resumed with another one.
        limits: `choices`, all allowed values; `minimum`; `above` and `below`, exclusive limits. They hold for each
            element of a tuple.
    """
    metadata = {'help': help, 'identity': identity, 'limits': limits}
    return dataclasses.field(default=default, metadata=metadata)


def text(value: Any) -> str:
    """Format a value as on the command line."""
    return ','.join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Part:
    """Options"""  # in subclasses, which are frozen dataclasses, the docstring is the heading in --help

    def __init_subclass__(cls):
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for name, limit in field.metadata['limits'].items():
                holds, expected = LIMITS[name]
                if not all(holds(one, limit) for one in (value if isinstance(value, tuple) else (value,))):
                    raise ConfigError(f'--{field.name}={text(value)}: expected {expected.format(text(limit))}')


@dataclasses.dataclass(frozen=True)
class Config:
    """All options of a run. Options have unique names, so `flat` contains them all."""

    choices: Any  # --model, --encoder, --recipe
    episodes: Any  # FewShot or ZeroShot
    data: Any  # DataOptions or a subclass
    method: Any  # options of --model: MethodOptions
    encoder: Any  # options of --encoder
    training: Any  # Training
    run: Any  # Run

    @property
    def flat(self) -> dict[str, Any]:
        """Return {name: value} of all options as plain JSON values, the contents of config.json."""
        values = {name: value for part in vars(self).values() for name, value in vars(part).items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @property
    def identity(self) -> dict[str, Any]:
        """Return the values that affect the results: all but paths and settings of the machine."""
        flat, options = self.flat, [field for part in vars(self).values() for field in dataclasses.fields(part)]
        return {field.name: flat[field.name] for field in options if field.metadata['identity']}

    def mismatch(self, saved: Mapping[str, Any], **others: Any) -> str:
        """Describe the values that make a saved configuration another run; '' if there are none.

        Only options that both have are compared: earlier versions saved the options of all methods.

        Args:
            saved: Contents of config.json.
            others: Further values to compare.
        """
        now = {**self.identity, **others}
        names = [name for name in now if saved.get(name, now[name]) != now[name]]
        shown = ', '.join(f'{name} (saved {saved[name]!r}, now {now[name]!r})' for name in names)
        return f'belongs to another configuration: {shown}' if names else ''


class MethodOptions(Part):
    """Method"""

    # For methods without these options. Not annotated, because dataclasses would take them for fields.
    init = ''
    pretrain = 0
    unlabeled = 0

    def tested(self, learner: Learner) -> Learner:
        """Return the learner that is evaluated in the final table."""
        return learner

    def with_temperature(self, encoder: nn.Module) -> nn.Module:
        """Return the encoder that is saved; the scale includes the temperature, if the method has one."""
        return encoder


class Method(NamedTuple):
    """A value of --model."""

    build: Callable[[Config, Splits, Any], Learner]  # config, data, encoder (None without `encoders`) -> Learner
    options: type[MethodOptions] = MethodOptions
    defaults: Mapping[str, Any] = {}  # values for options of other parts
    encoders: Mapping[str, type[Part]] = {}  # values of --encoder, the default first; see methods.encoders


class Finetuned(MethodOptions):
    """Fine-tuning at test time"""

    finetune: int = option(0, 'Gradient steps on the support set of each test episode. Paper: 0.', minimum=0)
    finetune_rate: float = option(0.01, 'Learning rate of --finetune.', above=0)

    def tested(self, learner: Learner) -> Learner:
        if not self.finetune:
            return learner
        return finetuning.tuned(learner, steps=self.finetune, rate=self.finetune_rate)


class Augmented(Finetuned):
    """Initial weights and augmentation"""

    init: str = option('', 'Weights to fine-tune: bundled, "photos", or of a run with squared Euclidean distance.')
    mirror: bool = option(False, 'Mirror all images of a class in half of the training episodes. Paper: no.')
    shift: int = option(0, 'Shift each training image by up to N pixels along each axis. Paper: 0.', minimum=0)
    flip: bool = option(False, 'Mirror each training image with probability one half. Paper: no.')
    jitter: float = option(0.0, 'Maximum change of brightness, contrast and saturation.', minimum=0, below=1)

    @property
    def augmentations(self) -> list[Augmentation]:
        """Return the functions that change the items of training episodes, in order."""
        available = {
            augmentation.mirror: self.mirror,
            augmentation.flip: self.flip,
            partial(augmentation.shift, pixels=self.shift): self.shift,
            partial(augmentation.jitter, strength=self.jitter): self.jitter,
        }
        return [function for function, wanted in available.items() if wanted]
