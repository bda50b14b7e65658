"""The configuration of a run: options in parts, with defaults from the experiment, the method and the recipe."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import optax

from experiments.methods import encoders
from experiments.methods.options import Config, ConfigError, Method, Part, option, text
from experiments.running import flags
from protojax import Dataset, Splits, errors

OPTIMIZERS = {'adam': optax.adam, 'sgd': optax.sgd, 'momentum': partial(optax.sgd, momentum=0.9, nesterov=True)}
FIRST = ('model', 'encoder', 'recipe', 'init', 'weights')  # options on which other options or defaults depend
BUILT_IN = ('omniglot', 'miniimagenet', 'cub', 'folder')  # modules with an EXPERIMENT, which import this one


class CompilingConfig(Part):
    """Options"""

    compilation_cache: str = option('auto', 'Cache folder of compiled programs; off disables.', identity=False)


class DataOptions(Part):
    """Data"""

    data: str = option('auto', 'Data; auto: real if available, else synthetic.', choices=('auto', 'real', 'synthetic'))
    source: str = option('', 'Folder or archive with the original data files, to prepare them from.', identity=False)
    data_dir: str = option('', 'Folder of prepared data. Default: ~/tensorflow_datasets.', identity=False)


class ZeroShot(Part):
    """Episodes"""

    way: int = option(60, 'Classes per training episode (N_C).', minimum=2)
    query: int = option(5, 'Query examples per class in a training episode (N_Q).', minimum=1)

    @property
    def sizes(self) -> dict[str, int]:
        """Return way, query and, in few-shot learning, shot of training episodes."""
        return {'way': self.way, 'query': self.query}

    @property
    def per_class(self) -> int:
        """Return the number of examples per class in a training episode."""
        return self.query + self.sizes.get('shot', 0)


class FewShot(ZeroShot):
    """Episodes"""

    shot: int = option(1, 'Support examples per class in a training episode (N_S).', minimum=1)
    test_way: tuple[int, ...] = option((5, 20), 'Classes per test episode; one or more values.', minimum=2)
    test_shot: tuple[int, ...] = option((1, 5), 'Support examples per class in a test episode.', minimum=1)
    test_episodes: int = option(1000, 'Episodes per cell of the final table.', minimum=1, identity=False)
    test_query: int = option(15, 'Query examples per class in validation and test episodes.', minimum=1)
    validation_way: int = option(5, 'Classes per validation episode.', minimum=2)
    validation_episodes: int = option(500, 'Episodes per evaluation on the validation classes.', minimum=1)

    @property
    def sizes(self) -> dict[str, int]:
        return {**super().sizes, 'shot': self.shot}


class Training(Part):
    """Training"""

    episodes: int = option(0, 'Training episodes (maximum with --noretrain); 0 = until early stopping.', minimum=0)
    episodes_per_step: int = option(1, 'Episodes per update, whose gradients are averaged.', minimum=1)
    optimizer: str = option('adam', 'Optimizer; momentum: 0.9, Nesterov. Paper: adam.', choices=tuple(OPTIMIZERS))
    learning_rate: float = option(1e-3, 'Learning rate. Paper: 1e-3 (CUB: 1e-4).', above=0)
    clip_norm: float = option(0.0, 'Clip gradients to this global norm; 0 disables. Paper: 0.', minimum=0)
    halve_every: int = option(2000, 'Halve the learning rate every N episodes; 0 disables. Paper: 2000.', minimum=0)
    schedule: str = option('halving', 'See --halve_every; cosine: to 0 at --episodes.', choices=('halving', 'cosine'))
    average_decay: float = option(0.0, 'Decay of the average that is evaluated; 0 disables.', minimum=0, below=1)
    weight_decay: float = option(0.0, 'Weight decay, added to the gradient. Paper: 0 (CUB: 1e-5).', minimum=0)
    validate_every: int = option(100, 'Episodes between validations. Official code: 100.', minimum=1)
    patience: int = option(50, 'Stop after N validations without a lower loss. Official code: 200.', minimum=1)
    retrain: bool = option(True, 'Retrain on train and validation classes; otherwise keep the best model.')
    retrain_length: str = option(
        'best', 'Length of --retrain: up to the best model, or all.', choices=('best', 'search')
    )
    log_every: int = option(100, 'Episodes between lines of metrics.', minimum=1)
    checkpoint_every: int = option(500, 'Episodes between checkpoints.', minimum=1, identity=False)

    def __post_init__(self):
        super().__post_init__()
        if self.schedule == 'cosine' and not self.episodes:
            raise ConfigError('--schedule=cosine needs a number of training episodes; set --episodes')
        for name in ('episodes', 'log_every', 'validate_every', 'checkpoint_every', 'halve_every'):
            if getattr(self, name) % self.episodes_per_step:
                multiple = f'a multiple of --episodes_per_step={self.episodes_per_step}'
                raise ConfigError(f'--{name}={getattr(self, name)}: expected {multiple}')


class Run(CompilingConfig):
    """Run"""

    workdir: str = option('', 'Output directory; rerun to resume. Default: runs/NAME.', identity=False)
    seed: int = option(0, 'Seed of all random numbers.', minimum=0)
    weights: str = option('', 'Evaluate bundled weights or weights.safetensors of a run.', identity=False)
    evaluate_on: str = option('test', 'Classes of the final table. Paper: test.', choices=('test', 'validation'))
    evaluate_only: bool = option(False, 'Evaluate the model in the workdir, without training.', identity=False)
    pictures: str = option('on', 'Plot the results.', choices=('on', 'off'), identity=False)
    placement: str = option('auto', 'Memory for training data.', choices=('auto', 'device', 'host'), identity=False)
    coordinator_address: str = option('', 'host:port of process 0 in a distributed run.', identity=False)
    num_processes: int = option(0, 'Processes; 0 = one, or auto-detected on a TPU pod.', minimum=0, identity=False)
    process_id: int = option(0, 'Index of this process, from 0.', minimum=0, identity=False)


class Experiment(NamedTuple):
    """A data set with its methods, and the defaults and recipes of their options."""

    name: str
    methods: Mapping[str, Method]  # by the value of --model, the default first
    load: Callable[[Config], Splits]
    options: type[Part] = DataOptions  # of the data
    # Values of options, or a function of the given options that returns these values.
    defaults: Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]] = {}
    recipes: Mapping[str, Mapping[str, Any]] = {}  # by the value of --recipe: values that replace the defaults
    episodes: type[Part] = FewShot
    asks: tuple[str, ...] = ()  # options that the function `defaults` reads, besides those in FIRST
    details: Callable[[Config, Splits], dict] = lambda config, data: {}  # about the data, for results.json
    run_name: Callable[[Config], str] | None = None  # first part of the name of a run; by default `name`
    synthetic_episodes: int = 1000  # training episodes on synthetic data without --episodes

    def parse(self, arguments: Sequence[str]) -> Config:
        """Parse a command line.

        Raises:
            ConfigError: If a flag is unknown, has an invalid value, or is an option of another method or encoder.
        """
        explain = partial(self._explain, self.given(arguments))
        parts, _ = flags.parse(*self.selected(arguments), arguments, explain=explain)
        return Config(*parts)

    def config(self, **values: Any) -> Config:
        """Make a configuration from values of options, by name; they are checked like flags."""
        return self.parse([f'--{name}={text(value)}' for name, value in values.items()])

    def given(self, arguments: Sequence[str]) -> dict[str, str]:
        """Return the flags of a command line that decide which options exist, and their defaults."""
        return flags.given((*FIRST, *self.asks), arguments)

    def selected(self, arguments: Sequence[str]) -> tuple[list[type[Part]], dict[str, Any]]:
        """Return the parts of the configuration that a command line selects, and the defaults of other flags.

        The defaults come from the experiment, the method and the recipe.
        """
        given = self.given(arguments)
        method, trained = self.method(given), given.get('init') or given.get('weights')
        kinds = {'': encoders.Machine} if trained and method.encoders else method.encoders
        first = next(iter(kinds), '')
        encoder = kinds.get(given.get('encoder', first), kinds.get(first, Part))
        parts = [self._choices(method, tuple(kinds)), self.episodes, self.options, method.options, encoder]
        recipe = self.recipes.get(given.get('recipe', ''), {})
        defaults = self.defaults({**recipe, **given}) if callable(self.defaults) else self.defaults
        return [*parts, Training, Run], {**defaults, **method.defaults, **recipe}

    def method(self, given: Mapping[str, Any]) -> Method:
        """Return the method that the given options select, the first if there is no such method."""
        return self.methods.get(given.get('model', ''), next(iter(self.methods.values())))

    def _choices(self, method, kinds):
        """Make the part with --model, --recipe and --encoder."""
        about = '; '.join(f'{name}: {other.options.__doc__}' for name, other in self.methods.items())
        model = next(name for name, other in self.methods.items() if other is method)
        options = {'model': option(model, f'Method. {about}.', choices=tuple(self.methods))}
        if self.recipes:
            recipes = ('paper', *self.recipes)
            options['recipe'] = option('paper', 'Set of defaults for flags that are not given.', choices=recipes)
        if len(kinds) > 1:
            options['encoder'] = option(kinds[0], 'Encoder. Paper: conv4.', choices=kinds)
        namespace = {'__doc__': 'Method', '__annotations__': dict.fromkeys(options, str), **options}
        return type('Choices', (Part,), namespace)

    def _explain(self, given, name):
        """Explain which methods, encoders or, failing these, experiments have an option; '' if none has it."""
        methods, found = self.methods.items(), []
        for model, other in methods:
            if _has(other.options, name) or (name == 'encoder' and len(other.encoders) > 1):
                found.append(f'--model={model}')
        kinds = [item for _, other in methods for item in other.encoders.items()]
        found += dict.fromkeys(f'--encoder={key}' for key, kind in kinds if _has(kind, name))
        selected = {key: given[key] for key in ('model', 'encoder', 'init', 'weights') if given.get(key)}
        chosen = flags_text(selected or {'model': next(iter(self.methods))})
        if not found:
            others = [importlib.import_module(f'experiments.{other}').EXPERIMENT for other in BUILT_IN]
            found = [f'protojax {other.name}' for other in others if other.offers(name)]
            chosen = 'this experiment'
        return f'--{name} is an option of {" and ".join(found)}, not of {chosen}; remove it' if found else ''

    def offers(self, name: str) -> bool:
        """Return whether a method of the experiment, with its first encoder, has an option."""
        return any(_has(part, name) for model in self.methods for part in self.selected([f'--model={model}'])[0])


def _has(part, name):
    return name in {field.name for field in fields(part)}


def flags_text(values: Mapping[str, Any]) -> str:
    """Format values as flags of a command: {name: value} -> text."""
    return ' '.join(f'--{name}={text(value)}' for name, value in values.items())


def changes(experiment: Experiment, values: Mapping[str, Any], *, ignoring: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options in which a run differs from its experiment's defaults.

    The name of a method or recipe stands for the defaults that it selects. Options that the method does not have, such
    as those in results of earlier versions, are left out.

    Args:
        experiment: Experiment of the run.
        values: Options of the run, as in results.json.
        ignoring: Names of options to leave out.
    """
    selected: dict[str, Any] = {}
    for name in ('model', 'recipe', 'init', 'encoder'):  # each may decide whether the next one exists
        usual = experiment.config(**selected).flat
        if name in usual and values.get(name, usual[name]) != usual[name]:
            selected[name] = values[name]
    ignored = {name: values[name] for name in ignoring if name in values}
    usual = experiment.config(**selected, **ignored).identity
    return {**selected, **{name: value for name, value in values.items() if value != usual.get(name, value)}}


def name(experiment: Experiment, config: Config) -> str:
    """Return a name for a run that is unique to its settings."""
    values = {**config.identity, **{asked: config.flat[asked] for asked in experiment.asks}}
    sizes = [f'{values[size]}{size}' for size in ('way', 'shot') if size in values]
    differing = changes(experiment, values, ignoring={'way', 'shot', 'seed', 'data', *experiment.asks})
    changed = [f'{key}={text(value)}'.replace('/', '-') for key, value in differing.items()]
    start = experiment.run_name(config) if experiment.run_name else experiment.name
    return errors.printable('-'.join([start, *sizes, *changed, f'seed{values["seed"]}']))  # as Orbax needs it


def check_sizes(config: Config, data: Splits, *, zero_shot: bool = False, unlabeled: int = 0) -> None:
    """Raise ConfigError if episodes need more classes, or more examples of a class, than a split contains."""
    sizes, training, check = config.episodes, config.training, partial(_check_split, unlabeled=unlabeled)
    if zero_shot:
        return check(data.train, 'training', 'way', sizes.way, {'query': sizes.query})
    check(data.train, 'training', 'way', sizes.way, {'shot': sizes.shot, 'query': sizes.query})
    if not (training.retrain and (training.episodes or data.synthetic)):
        items = {'shot': sizes.shot, 'test_query': sizes.test_query}
        check(data.validation, 'validation', 'validation_way', sizes.validation_way, items)
    split = config.run.evaluate_on
    items = {'test_shot': max(sizes.test_shot), 'test_query': sizes.test_query}
    check(data.test if split == 'test' else data.validation, split, 'test_way', max(sizes.test_way), items)


def _check_split(split: Dataset | None, title: str, way_flag: str, way: int, items: dict[str, int], unlabeled: int):
    """Check one split; items: {flag: examples per class}."""
    if split is None:
        raise ConfigError(f'these data have no {title} classes; set a --source that contains them')
    if way > len(split.names):
        raise ConfigError(f'--{way_flag}={way}: expected at most {len(split.names)}, the number of {title} classes')
    smallest = int(split.counts.argmin())
    available, needed = int(split.counts[smallest]), sum(items.values()) + unlabeled
    if needed > available:
        flags = flags_text(items) + (f' and {unlabeled} unlabelled' if unlabeled else '')
        raise ConfigError(
            f'{flags} need {needed} examples per class, but the {title} class {split.names[smallest]} has {available}; '
            f'lower {" or ".join(f"--{flag}" for flag in items)}'
        )
