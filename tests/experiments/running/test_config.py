"""Configurations: options by method, flags in two passes, and what makes two runs the same."""

import re

import pytest

from experiments import cub, miniimagenet, omniglot
from experiments.methods.options import ConfigError
from experiments.running import config as configuration
from experiments.running import driver, flags
from protojax.errors import DataError

OMNIGLOT = omniglot.EXPERIMENT
EXPERIMENTS = [module.EXPERIMENT for module in (omniglot, miniimagenet, cub)]


def parse(arguments, experiment=OMNIGLOT):
    return experiment.parse(arguments.split())


@pytest.mark.parametrize('experiment', EXPERIMENTS)
def test_help_shows_the_main_flags_first_and_helpfull_every_flag_once(experiment):
    def shown(**options):
        return re.findall(r'^  --(?:\[no\])?(\w+)', flags.help('', *experiment.selected([]), **options), re.MULTILINE)

    assert sorted(shown(full=True)) == sorted(experiment.config().flat)
    assert {'way', 'episodes', 'workdir'} <= set(shown()[:10]) and len(shown()) <= 45


def test_flags_take_precedence_over_recipe_method_and_defaults():
    config = parse('--way=20 --shot=5 --test_way=5,7 --learning_rate=0.01 --noretrain')
    assert config.episodes.sizes == {'way': 20, 'shot': 5, 'query': 5} and config.episodes.test_way == (5, 7)
    assert config.training.learning_rate == 0.01 and not config.training.retrain
    given = parse('--recipe=modern --episodes=70').flat
    assert given == {**parse('').flat, **omniglot.MODERN, 'recipe': 'modern', 'episodes': 70}
    config = parse('--model=metalstm --shot=5 --clip_norm=1')
    assert (config.episodes.way, config.episodes.test_way, config.training.clip_norm) == (5, (5,), 1.0)
    examples = ('', '--shot=1', '--shot=5', '--recipe=modern', '--model=metalstm', '--model=metalstm --way=7')
    assert [parse(example, miniimagenet.EXPERIMENT).episodes.way for example in examples] == [30, 30, 20, 20, 5, 7]


def test_the_defaults_are_the_papers():
    for experiment in EXPERIMENTS[:2]:
        values = experiment.config().flat
        assert (values['learning_rate'], values['halve_every'], values['weight_decay']) == (1e-3, 2000, 0)
        assert (values['model'], values['distance'], values['temperature']) == ('prototypical', 'euclidean', 1)
        beyond = ('mirror', 'flip', 'shift', 'jitter', 'init', 'pretrain', 'two_sided', 'sphere')
        assert not any(values[name] for name in beyond)
    values = cub.EXPERIMENT.config().flat
    assert [values[name] for name in ('way', 'query', 'learning_rate', 'weight_decay')] == [50, 10, 1e-4, 1e-5]
    assert (values['halve_every'], values['dimensions'], values['unit_length']) == (0, 1024, True)
    for experiment in EXPERIMENTS:
        training = experiment.config().training
        assert (training.optimizer, training.schedule, training.episodes_per_step) == ('adam', 'halving', 1)
        assert training.retrain == (experiment.name != 'miniimagenet')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ('--way=0', '--way=0: expected at least 2'),
        ('--way=many', '--way=many: invalid literal for int()'),
        ('--test_way=5,x', '--test_way=5,x: expected comma-separated integers'),
        ('--learning_rate=0', '--learning_rate=0.0: expected a number above 0'),
        ('--average_decay=1', '--average_decay=1.0: expected a number below 1'),
        ('--data=fake', 'flag --data=fake: value should be one of <auto|real|synthetic>'),
        ('--schedule=cosine', 'set --episodes'),
        ('--episodes_per_step=8 --episodes=20', '--episodes=20: expected a multiple of --episodes_per_step=8'),
        ('--wey=5', "Unknown command line flag 'wey'. Did you mean: way"),
        ('way=5', "unexpected argument 'way=5'"),
        ('--model=nearest --context=fce', '--context is an option of --model=prototypical and --model=matching, not'),
        ('--encoder=resnet12 --kernel_init=ones', '--kernel_init is an option of --encoder=conv4, not of --encoder='),
        ('--ridge=1', '--ridge is an option of protojax cub, not of this experiment; remove it'),
        ('--weights=w --two_sided', '--two_sided is an option of --encoder=conv4 and'),
    ],
)
def test_invalid_flags_are_named(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        parse(arguments)
    assert '\n' not in str(error.value)


def test_values_by_name_are_checked_like_flags():
    values = {'test_way': (5, 7), 'retrain': False, 'workdir': 'a b', 'learning_rate': 1e-7}
    assert {**OMNIGLOT.config().flat, **values, 'test_way': [5, 7]} == OMNIGLOT.config(**values).flat
    with pytest.raises(ConfigError, match='--optimizer=none: expected one of adam,sgd'):
        configuration.Training(optimizer='none')


def test_values_of_a_recipe_need_not_apply(capsys):
    config = parse('--recipe=modern --encoder=resnet12 --source=/nowhere')
    assert 'kernel_init' not in config.flat and config.method.temperature == 64
    with pytest.raises(DataError, match='/nowhere'):
        driver.run(config, OMNIGLOT)
    assert 'note: --recipe=modern sets --kernel_init, which this' in capsys.readouterr().out


def test_a_run_is_identified_by_the_options_that_change_its_results():
    saved = OMNIGLOT.config().flat
    assert OMNIGLOT.config(workdir='/elsewhere', data_dir='/data', test_episodes=7).mismatch(saved) == ''
    expected = 'belongs to another configuration: shot (saved 1, now 5), seed (saved 0, now 3)'
    assert OMNIGLOT.config(shot=5, seed=3).mismatch(saved) == expected


def test_configurations_of_earlier_versions_may_have_options_of_other_methods():
    config = OMNIGLOT.config(model='nearest')
    earlier = {'temperature': 1.0, 'old': 2}
    assert config.mismatch({**config.flat, **earlier}) == ''
    assert configuration.changes(OMNIGLOT, {**config.identity, **earlier}) == {'model': 'nearest'}


@pytest.mark.parametrize(
    ('arguments', 'name'),
    [
        ('--model=metalstm --shot=5 --clip_norm=1', 'omniglot-5way-5shot-model=metalstm-clip_norm=1.0-seed0'),
        ('--recipe=modern --shift=0', 'omniglot-60way-1shot-recipe=modern-shift=0-seed0'),
        ('--init=../../w.safetensors', 'omniglot-60way-1shot-init=..-..-w.safetensors-seed0'),
        ('--encoder=resnet12 --data=real', 'omniglot-60way-1shot-encoder=resnet12-seed0'),
        ('--init=\udce9.safetensors', r'omniglot-60way-1shot-init=\udce9.safetensors-seed0'),
    ],
)
def test_the_name_of_a_run_lists_its_changes(arguments, name):
    assert configuration.name(OMNIGLOT, parse(arguments)) == name
