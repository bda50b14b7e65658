"""The configuration of an experiment, as a frozen dataclass for each kind of learning."""

import dataclasses
from typing import ClassVar

from experiments.running.choices import DISTANCES, ENCODERS, OPTIMIZERS
from experiments.running.identity import config_text
from protojax.encoders import Conv4, LinearMap
from protojax.encoders.conv4 import KERNEL_INITS, SCALE_INITS

# Groups of flags, in the order in which --help shows them.
MAIN, MODEL, TRAINING, STOPPING = 'The flags that matter most', 'Model', 'Training', 'Validation and stopping'
EVALUATION, RUN, MACHINE = 'Evaluation', 'The run', 'The machine'
GROUPS = (MAIN, MODEL, TRAINING, STOPPING, EVALUATION, RUN, MACHINE)


# How --pretrain trains.
PRETRAINING = {'optimizer': 'momentum', 'learning_rate': 0.05, 'schedule': 'cosine', 'weight_decay': 5e-4}
PRETRAINING_BATCH = 128  # images


class ConfigError(ValueError):
    """A configuration that cannot be run: one line that names the flag and the way out."""


def option(default, help, *, group=MAIN, minimum=None, choices=None, identity=True):
    """A field with its help text, the values that it takes, and the group of flags that --help shows it in.

    Fields without `identity` do not change what is computed, so a run may be continued with another value.
    """
    metadata = {'help': help, 'group': group, 'minimum': minimum, 'choices': choices, 'identity': identity}
    return dataclasses.field(default=default, metadata=metadata)


def _check_unused(config, *names):
    """Raise where a flag that the model has no use for has another value than its default."""
    for name in names:
        value = getattr(config, name)
        if value != getattr(type(config), name):
            raise ConfigError(f'{config_text({name: value})} is not for --model={config.model}; leave it out')


@dataclasses.dataclass(frozen=True)
class CommandConfig:
    """What all programs share."""

    variants: ClassVar[dict] = {}  # name of another recipe or model than the paper's -> the values that it changes

    @property
    def idle(self):
        """Flags that would do nothing: {name: the model or encoder that has no use for it}."""
        return {}

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


@dataclasses.dataclass(frozen=True)
class CompilingConfig(CommandConfig):
    """What programs share that compile functions of JAX."""

    compilation_cache: str = option(
        'auto',
        'Folder of compiled programs ("auto": ~/.cache/protojax/xla; "off": none).',
        group=MACHINE,
        identity=False,
    )


def same_option(config, name):
    """A field like that of another config."""
    field = config.__dataclass_fields__[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class Config(CompilingConfig):
    """What all experiments share."""

    way: int = option(60, 'Classes per training episode (N_C).', minimum=2)
    episodes: int = option(
        0,
        'Training episodes; 0: the validation loss decides (see --patience and --retrain), except that a run on a '
        'synthetic stand-in is short.',
        minimum=0,
    )
    data: str = option(
        'auto',
        'Which data: "real" (an error where they cannot be had), "synthetic" (a built-in stand-in, never a '
        'download), or "auto": real where they are on the machine or can be downloaded, else the stand-in.',
        choices=('auto', 'real', 'synthetic'),
    )
    source: str = option('', 'Folder or archive with the original data files, to prepare them from.', identity=False)
    workdir: str = option(
        '',
        'Folder of this run: config, metrics, checkpoints, results. The same command continues an interrupted run '
        'there. Default: runs/ and a name made of the data set and of the flags that differ from the recipe.',
        identity=False,
    )
    seed: int = option(0, 'Determines all random numbers of the run.', minimum=0)
    weights: str = option(
        '',
        'Only evaluate these weights: a name that comes with protojax, or the weights.safetensors of a run.',
        identity=False,
    )
    query: int = option(5, 'Query examples per class in a training episode (N_Q).', group=TRAINING, minimum=1)
    episodes_per_step: int = option(
        1, 'Episodes whose gradients are averaged for one update. Paper: 1.', group=TRAINING, minimum=1
    )
    optimizer: str = option(
        'adam',
        'adam, as in the paper; sgd, plain gradient descent; or momentum, which is sgd with Nesterov momentum of 0.9.',
        group=TRAINING,
        choices=tuple(OPTIMIZERS),
    )
    learning_rate: float = option(1e-3, 'Learning rate. Paper: 1e-3 (CUB: 1e-4).', group=TRAINING)
    clip_norm: float = option(
        0.0, 'Scale gradients down to this norm where they are longer; 0: never. Paper: 0.', group=TRAINING
    )
    halve_every: int = option(
        2000,
        'Halve the learning rate every so many episodes; 0: never. Paper: 2000 (CUB: never).',
        group=TRAINING,
        minimum=0,
    )
    schedule: str = option(
        'halving',
        'Learning rate over time: halved every --halve_every episodes, or a cosine that reaches 0 after --episodes.',
        group=TRAINING,
        choices=('halving', 'cosine'),
    )
    average_decay: float = option(
        0.0,
        'Evaluate an exponential moving average of the parameters with this decay. Paper: 0, no averaging.',
        group=TRAINING,
    )
    weight_decay: float = option(0.0, 'Weight decay, added to the gradient. Paper: 0 (CUB: 1e-5).', group=TRAINING)
    validate_every: int = option(
        100, 'Episodes between evaluations on the validation classes. Official code: 100.', group=STOPPING, minimum=1
    )
    patience: int = option(
        50,
        'Stop after so many evaluations without a lower validation loss. The official code has 200: on Omniglot its '
        'search is about twice as long.',
        group=STOPPING,
        minimum=1,
    )
    retrain: bool = option(
        True,
        'Train the final model from scratch on the classes of train and validation, for as long as --episodes or the '
        'validation loss says. Otherwise the final model is the one with the lowest validation loss.',
        group=STOPPING,
    )
    retrain_length: str = option(
        'best',
        'Length of --retrain without --episodes: "best", the episode with the lowest validation loss, or "search", '
        'that plus the patience, as in the official code.',
        group=STOPPING,
        choices=('best', 'search'),
    )
    evaluate_on: str = option(
        'test',
        'Classes of the final table. "validation" trains on the training classes alone and never touches the test '
        'classes: use it to choose between recipes.',
        group=EVALUATION,
        choices=('test', 'validation'),
    )
    evaluate_only: bool = option(
        False, 'Train nothing: evaluate the model in the workdir, or --weights.', group=EVALUATION, identity=False
    )
    log_every: int = option(100, 'Episodes between lines of metrics.', group=RUN, minimum=1)
    checkpoint_every: int = option(500, 'Episodes between checkpoints.', group=RUN, minimum=1, identity=False)
    pictures: str = option(
        'on',
        'Whether a finished run draws its learning curves, one of its test episodes and what it confuses most.',
        group=RUN,
        choices=('on', 'off'),
        identity=False,
    )
    data_dir: str = option(
        '', 'Folder of the prepared data (default: ~/tensorflow_datasets).', group=RUN, identity=False
    )
    placement: str = option(
        'auto',
        'Where the data set lies during training: on the "device", on the "host", from where episodes are brought to '
        'the device one by one, or "auto": on the device if it takes less than half of its memory.',
        group=MACHINE,
        choices=('auto', 'device', 'host'),
        identity=False,
    )
    coordinator_address: str = option(
        '', 'host:port of process 0 in a job of several processes.', group=MACHINE, identity=False
    )
    num_processes: int = option(
        0, 'Processes in the job (0: one, or what a TPU pod says).', group=MACHINE, minimum=0, identity=False
    )
    process_id: int = option(0, 'Number of this process in the job.', group=MACHINE, minimum=0, identity=False)

    @property
    def items_per_class(self):
        """Items of each class in a training episode."""
        return self.query

    def __post_init__(self):
        super().__post_init__()
        if self.learning_rate <= 0:
            raise ConfigError(f'--learning_rate={self.learning_rate} must be above 0')
        if not 0 <= self.average_decay < 1:
            raise ConfigError(f'--average_decay={self.average_decay} must be at least 0 and below 1')
        if self.schedule == 'cosine' and not self.episodes:
            raise ConfigError('--schedule=cosine must know its end; give --episodes')
        for name in ('weight_decay', 'clip_norm'):
            if getattr(self, name) < 0:
                raise ConfigError(f'--{name}={getattr(self, name)} must not be negative')
        for name in ('episodes', 'log_every', 'validate_every', 'checkpoint_every', 'halve_every'):
            if getattr(self, name) % self.episodes_per_step:
                raise ConfigError(
                    f'--{name}={getattr(self, name)} is no multiple of --episodes_per_step={self.episodes_per_step}'
                )


# What --model of few-shot learning changes besides. Batches of nearest neighbours have way * (shot + query) images;
# the sets of the statistician shot + query.
MODELS = {
    'nearest': {'distance': 'cosine', 'way': 8, 'query': 15, 'last_scale': 1.0},
    'metalstm': {
        'way': 5,
        'query': 15,
        'validation_way': 5,
        'test_way': (5,),
        'clip_norm': 0.25,
        'halve_every': 0,
        'last_scale': 1.0,
    },
    'statistician': {'way': 16, 'query': 4, 'halve_every': 0},
}


@dataclasses.dataclass(frozen=True)
class FewShotConfig(Config):
    """Learning to classify from a few examples."""

    variants: ClassVar[dict] = MODELS

    precision: str = option(
        'float32',
        "Type of the encoder's activations; everything else stays float32.",
        group=MACHINE,
        choices=('float32', 'bfloat16'),
    )
    kernels: str = option(
        'auto',
        'C++ kernels for the encoder on CPU: "auto" where a compiler is found, or "off".',
        group=MACHINE,
        choices=('auto', 'off'),
    )
    shot: int = option(1, 'Support examples per class in a training episode (N_S).', minimum=1)
    encoder: str = option(
        'conv4',
        'conv4: four blocks with 64 filters, as in the paper; resnet12 and resnet12-wide: residual networks with up '
        'to 512 and 640 filters.',
        group=MODEL,
        choices=tuple(ENCODERS),
    )
    model: str = option(
        'prototypical',
        'prototypical: distance to class means; matching: attention over single support points. Other systems that '
        'the paper compares with: nearest (neighbours on the features of a classifier), metalstm (the meta-learner '
        'LSTM) and statistician (the neural statistician).',
        group=MODEL,
        choices=('prototypical', 'matching', 'nearest', 'metalstm', 'statistician'),
    )
    context: str = option(
        'none',
        'fce: full context embeddings, which depend on the whole support set, as matching networks may have.',
        group=MODEL,
        choices=('none', 'fce'),
    )
    embedding: str = option(
        'shared',
        'shared: one encoder for support examples and queries, as in the paper; separate: one for each.',
        group=MODEL,
        choices=('shared', 'separate'),
    )
    distance: str = option(
        'euclidean',
        'euclidean (squared) and cosine are in the paper; unsquared is the Euclidean distance itself; mahalanobis '
        'learns one matrix for all classes; diagonal estimates a variance per class and dimension, drawn towards one '
        'that is learned (our reading of one sentence of section 5, which says that it gained nothing).',
        group=MODEL,
        choices=(*DISTANCES, 'diagonal'),
    )
    temperature: float = option(1.0, 'Divides all distances. Paper: 1, also for cosine.', group=MODEL)
    prototypes_per_class: int = option(
        1, 'Prototypes of each class, by k-means on its support examples. Paper: 1.', group=MODEL, minimum=1
    )
    pixels: str = option(
        'unit',
        'Scaling of pixels: "unit" to 0-1, or "standardized" by mean and deviation of each channel over the training '
        'classes. The paper does not say.',
        group=MODEL,
        choices=('unit', 'standardized'),
    )
    kernel_init: str = option(
        Conv4.kernel_init,
        "Initial convolutions of conv4: uniform in +-1 / sqrt(fan-in), PyTorch's default, or by He's rule.",
        group=MODEL,
        choices=tuple(KERNEL_INITS),
    )
    scale_init: str = option(
        Conv4.scale_init,
        "Initial batch-norm scales of conv4: uniform in [0, 1], PyTorch's default when the paper was written, or 1.",
        group=MODEL,
        choices=tuple(SCALE_INITS),
    )
    last_scale: float = option(
        Conv4.last_scale,
        "Multiplies the initial batch-norm scales of conv4's last block, and so the initial squared distances by its "
        'square. Where these are large, training begins by drawing all embeddings together, and recovers slowly. The '
        "paper does not say; PyTorch's is 1.",
        group=MODEL,
    )
    two_sided: bool = option(
        False,
        'At test, embed each image and its mirror image, and take the mean of the two embeddings. Paper: no.',
        group=MODEL,
    )
    sphere: bool = option(
        False,
        'At test, move embeddings to a sphere about their mean in training: of an embedding less this mean only the '
        'direction counts (as in SimpleShot, Wang et al. 2019). Paper: no.',
        group=MODEL,
    )
    mirror: bool = option(
        False,
        'Mirror each class of a training episode with probability one half, all its images alike. Paper: no.',
        group=TRAINING,
    )
    shift: int = option(
        0,
        'Move each training image by up to so many whole pixels along each axis. Paper: 0.',
        group=TRAINING,
        minimum=0,
    )
    flip: bool = option(
        False, 'Mirror each training image with probability one half, on its own. Paper: no.', group=TRAINING
    )
    jitter: float = option(
        0.0,
        'Multiply brightness, contrast and saturation of each training image by factors in 1 +- this. Paper: 0.',
        group=TRAINING,
    )
    init: str = option(
        '',
        'Weights to start from, with their encoder, temperature, --two_sided and --sphere: a name that comes with '
        'protojax, or the weights.safetensors of a run with squared Euclidean distances. They may need a lower '
        'learning rate. Paper: none.',
        group=TRAINING,
    )
    pretrain: int = option(
        0,
        'Before the first episode, train the encoder, with a linear layer on top, to tell all training classes apart '
        f'for so many batches of {PRETRAINING_BATCH} images, with {config_text(PRETRAINING)} and the same '
        'augmentations (--flip, --shift and others). --retrain begins with this encoder too. Paper: 0.',
        group=TRAINING,
        minimum=0,
    )
    test_way: tuple[int, ...] = option((5, 20), 'Classes per test episode, one column each.', group=EVALUATION)
    test_shot: tuple[int, ...] = option(
        (1, 5), 'Support examples per class in test episodes, one column each.', group=EVALUATION
    )
    test_episodes: int = option(
        1000, 'Episodes per cell of the final table.', group=EVALUATION, minimum=1, identity=False
    )
    test_query: int = option(
        15, 'Query examples per class in validation and test episodes.', group=EVALUATION, minimum=1
    )
    finetune: int = option(
        0, 'Steps of gradient descent on the support set of each test episode. Paper: 0.', group=EVALUATION, minimum=0
    )
    finetune_rate: float = option(0.01, 'Learning rate of --finetune.', group=EVALUATION)
    validation_way: int = option(5, 'Classes per validation episode.', group=STOPPING, minimum=2)
    validation_episodes: int = option(
        500, 'Episodes per evaluation on the validation classes.', group=STOPPING, minimum=1
    )

    @property
    def items_per_class(self):
        return self.shot + self.query

    @property
    def idle(self):
        of_conv4 = ('kernel_init', 'scale_init', 'last_scale')
        if self.model == 'statistician':
            return dict.fromkeys((*of_conv4, 'pixels', 'precision'), '--model=statistician')
        if self.weights:
            return dict.fromkeys(('two_sided', 'sphere'), f'--weights={self.weights}')
        if self.init:
            return dict.fromkeys((*of_conv4, 'encoder', 'pixels'), f'--init={self.init}')
        return dict.fromkeys(() if self.encoder == 'conv4' else of_conv4, f'--encoder={self.encoder}')

    def __post_init__(self):
        super().__post_init__()
        for name in ('temperature', 'last_scale', 'finetune_rate'):
            if getattr(self, name) <= 0:
                raise ConfigError(f'--{name}={getattr(self, name)} must be above 0')
        if self.pretrain % self.episodes_per_step:
            raise ConfigError(
                f'--pretrain={self.pretrain} is no multiple of --episodes_per_step={self.episodes_per_step}'
            )
        if self.pretrain and self.embedding == 'separate':
            raise ConfigError('--pretrain trains one encoder; leave it out, or --embedding=separate')
        if self.init:
            self._check_start()
        if not 0 <= self.jitter < 1:
            raise ConfigError(f'--jitter={self.jitter} must be at least 0 and below 1')
        if any(way < 2 for way in self.test_way) or any(shot < 1 for shot in self.test_shot):
            given = config_text({'test_way': self.test_way, 'test_shot': self.test_shot})
            raise ConfigError(f'{given}: ways must be 2 or more, shots 1 or more')
        if self.prototypes_per_class > self.shot:
            raise ConfigError(f'--prototypes_per_class={self.prototypes_per_class} is more than --shot={self.shot}')
        if self.model == 'matching' and (self.prototypes_per_class > 1 or self.distance == 'diagonal'):
            raise ConfigError(
                '--model=matching has no prototypes: leave out --prototypes_per_class and --distance=diagonal'
            )
        if self.embedding == 'separate' and self.weights:
            raise ConfigError('--weights hold one encoder; for --embedding=separate give --evaluate_only --workdir')
        if self.model not in ('prototypical', 'matching'):
            self._check_compared()

    def _check_start(self):
        """Raise where a flag is given that does not go with --init."""
        if self.weights:
            raise ConfigError('--weights are only evaluated, --init trained further; leave one of them out')
        own = {'pretrain': 0, 'temperature': 1.0, 'two_sided': False, 'sphere': False}
        if any(getattr(self, name) != value for name, value in own.items()):
            raise ConfigError(
                f'--init brings its own encoder, trained and with its temperature; give {config_text(own)}'
            )
        if self.model in ('metalstm', 'statistician') or self.embedding == 'separate':
            raise ConfigError('--init gives one encoder: leave it out, or --model and --embedding')

    def _check_compared(self):
        """Raise where a flag is given that the compared system does not use."""
        _check_unused(self, 'temperature', 'prototypes_per_class', 'context', 'embedding', 'pretrain')
        if self.model == 'metalstm':
            _check_unused(self, 'finetune')
        if self.model != 'nearest':
            _check_unused(self, 'encoder', 'distance', 'two_sided', 'sphere', 'mirror', 'shift', 'flip', 'jitter')
        if self.model == 'nearest' and self.distance not in ('euclidean', 'cosine'):
            raise ConfigError(f'--distance={self.distance} is not for --model=nearest; choose euclidean or cosine')
        if self.model == 'metalstm' and {self.way, self.validation_way, *self.test_way} != {self.way}:
            ways = config_text({name: getattr(self, name) for name in ('way', 'validation_way', 'test_way')})
            raise ConfigError(f'--model=metalstm has one output per class: {ways} must agree')


@dataclasses.dataclass(frozen=True)
class ZeroShotConfig(Config):
    """Learning to classify from meta-data of the classes."""

    model: str = option(
        'prototypical',
        'prototypical: distance to embedded attributes. The systems that the paper compares with: ale and sje, a '
        'bilinear score; ds-sje and da-sje, inner products of two embeddings; clustering, sje on a clustered '
        'representation.',
        group=MODEL,
        choices=('prototypical', 'ale', 'sje', 'ds-sje', 'da-sje', 'clustering'),
    )
    distance: str = option(
        'euclidean',
        'Between images and prototypes: euclidean (squared), as in the paper, or cosine.',
        group=MODEL,
        choices=('euclidean', 'cosine'),
    )
    dimensions: int = option(
        LinearMap.dimensions,
        'Dimensions of the space that images and attributes are mapped to.',
        group=MODEL,
        minimum=1,
    )
    unit_length: bool = option(True, 'Scale prototypes to unit length, as in the paper.', group=MODEL)
    center_inputs: bool = option(
        True, 'Subtract the mean over the training classes from features and attributes.', group=MODEL
    )
    scale_inputs: bool = option(
        True, 'Divide features and attributes by their root mean square, one number for each of the two.', group=MODEL
    )
    image_start: float = option(
        0.0, 'Deviation of the initial weights of the map of images, in units of 1 / sqrt(inputs).', group=MODEL
    )
    attribute_start: float = option(10.0, 'The same for the map of attributes.', group=MODEL)

    def __post_init__(self):
        super().__post_init__()
        if self.model != 'prototypical':
            _check_unused(self, 'distance')
        if self.model in ('ale', 'sje', 'clustering'):
            _check_unused(self, 'unit_length', 'image_start', 'attribute_start')
        if self.model in ('ale', 'sje'):
            _check_unused(self, 'dimensions', 'scale_inputs')
