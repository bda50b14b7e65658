"""The configurations: their checks, their flags, and what makes two of them the same experiment."""

import dataclasses
import re

import pytest

from experiments import cub, miniimagenet, omniglot
from experiments.running.config import GROUPS, ConfigError
from experiments.running.flags import flags_help, message_with_flags, parse_flags
from experiments.running.identity import config_differences, config_identity, config_to_json, name_of_config

RECIPES = [omniglot.RECIPE, miniimagenet.RECIPE, cub.RECIPE]


@pytest.mark.parametrize('recipe', RECIPES)
def test_flags_without_arguments_give_the_recipe(recipe):
    assert parse_flags(recipe, []) == recipe.resolved()


@pytest.mark.parametrize('recipe', RECIPES)
def test_help_shows_every_flag_once_and_the_main_ones_first(recipe):
    text = flags_help('What it does.', recipe)
    flags = re.findall(r'^  --(?:\[no\])?(\w+)', text, re.MULTILINE)
    assert sorted(flags) == sorted(field.name for field in dataclasses.fields(recipe))
    main = text.index(f'{GROUPS[0]}:')
    assert all(main < text.index(f'\n{group}:') for group in GROUPS[1:])
    assert {'way', 'episodes', 'workdir'} <= set(flags[:10])
    assert flags[:2] == ['way', 'shot'] or not hasattr(recipe, 'shot')


def test_flags_change_the_recipe():
    arguments = ['--way=20', '--shot=5', '--test_way=5,7', '--learning_rate=0.01', '--noretrain']
    config = parse_flags(omniglot.RECIPE, arguments)
    assert (config.way, config.shot, config.test_way) == (20, 5, (5, 7))
    assert config.learning_rate == 0.01
    assert not config.retrain


def test_flags_go_before_the_values_of_a_recipe_by_name():
    expected = {**omniglot.MODERN, 'recipe': 'modern', 'episodes': 70}
    made = parse_flags(omniglot.RECIPE, ['--recipe=modern', '--episodes=70'])
    assert made == dataclasses.replace(omniglot.RECIPE, **expected)


def test_the_recipes_are_the_papers():
    assert (omniglot.RECIPE.way, omniglot.RECIPE.query, omniglot.RECIPE.test_episodes) == (60, 5, 1000)
    for recipe in (omniglot.RECIPE, miniimagenet.RECIPE):
        assert (recipe.learning_rate, recipe.halve_every, recipe.weight_decay) == (1e-3, 2000, 0)
        beyond = ('mirror', 'flip', 'shift', 'jitter', 'init', 'pretrain', 'two_sided', 'sphere')
        assert not any(getattr(recipe, name) for name in beyond)
        assert (recipe.model, recipe.distance, recipe.temperature) == ('prototypical', 'euclidean', 1)
    for recipe in RECIPES:
        assert (recipe.optimizer, recipe.schedule, recipe.episodes_per_step) == ('adam', 'halving', 1)
        assert (recipe.clip_norm, recipe.average_decay) == (0, 0)
    assert [dataclasses.replace(miniimagenet.RECIPE, shot=shot).resolved().way for shot in (1, 5)] == [30, 20]
    assert (miniimagenet.RECIPE.query, miniimagenet.RECIPE.test_episodes) == (15, 600)
    assert (cub.RECIPE.way, cub.RECIPE.query, cub.RECIPE.learning_rate, cub.RECIPE.weight_decay) == (50, 10, 1e-4, 1e-5)
    assert cub.RECIPE.halve_every == 0 and cub.RECIPE.retrain and omniglot.RECIPE.retrain
    assert not miniimagenet.RECIPE.retrain and cub.RECIPE.dimensions == 1024 and cub.RECIPE.unit_length


@pytest.mark.parametrize(
    ('values', 'named'),
    [
        ({'way': 0}, '--way=0'),
        ({'shot': 0}, '--shot=0'),
        ({'query': -1}, '--query=-1'),
        ({'episodes': -5}, '--episodes=-5'),
        ({'seed': -1}, '--seed=-1'),
        ({'test_episodes': 0}, '--test_episodes=0'),
        ({'learning_rate': 0.0}, '--learning_rate=0.0'),
        ({'weight_decay': -0.1}, '--weight_decay=-0.1'),
        ({'temperature': 0.0}, '--temperature=0.0'),
        ({'test_way': (5, 1)}, '--test_way=5,1'),
        ({'test_shot': (0,)}, '--test_shot=0:'),
        ({'data': 'fake'}, '--data=fake'),
        ({'distance': 'taxi'}, '--distance=taxi'),
        ({'prototypes_per_class': 2}, '--prototypes_per_class=2'),
        ({'model': 'matching', 'distance': 'diagonal'}, '--model=matching'),
        ({'episodes_per_step': 8, 'episodes': 20}, '--episodes=20'),
        ({'clip_norm': -1.0}, '--clip_norm=-1.0'),
        ({'finetune': -1}, '--finetune=-1'),
        ({'finetune_rate': 0.0}, '--finetune_rate=0.0'),
        ({'model': 'nearest', 'distance': 'diagonal'}, '--distance=diagonal is not for --model=nearest'),
        ({'model': 'nearest', 'context': 'fce'}, '--context=fce is not for --model=nearest'),
        ({'model': 'metalstm'}, 'must agree'),
        ({'model': 'metalstm', 'finetune': 3}, '--finetune=3 is not for --model=metalstm'),
        ({'model': 'statistician', 'flip': True}, '--flip=True is not for --model=statistician'),
        ({'model': 'metalstm', 'encoder': 'resnet12'}, '--encoder=resnet12 is not for --model=metalstm'),
        ({'model': 'statistician', 'distance': 'cosine'}, '--distance=cosine is not for --model=statistician'),
        ({'last_scale': 0.0}, '--last_scale=0.0 must be above 0'),
        ({'pretrain': 10, 'episodes_per_step': 4}, '--pretrain=10 is no multiple of --episodes_per_step=4'),
        ({'pretrain': 10, 'embedding': 'separate'}, '--pretrain trains one encoder'),
        ({'embedding': 'separate', 'weights': 'w'}, '--weights hold one encoder'),
        ({'init': 'w', 'weights': 'w'}, 'leave one of them out'),
        ({'init': 'w', 'pretrain': 10}, 'give --pretrain=0 --temperature=1.0'),
        ({'init': 'w', 'sphere': True}, '--init brings its own encoder'),
        ({'init': 'w', 'embedding': 'separate'}, '--init gives one encoder'),
    ],
)
def test_bad_values_are_named(values, named):
    with pytest.raises(ConfigError) as error:
        dataclasses.replace(omniglot.RECIPE, **values)
    assert named in str(error.value)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(
    ('arguments', 'named'),
    [
        (['--encoder=resnet12', '--kernel_init=he_normal'], '--kernel_init=he_normal is not for --encoder=resnet12'),
        (['--model=statistician', '--precision=bfloat16'], '--precision=bfloat16 is not for --model=statistician'),
        (['--model=statistician', '--last_scale=0.5'], '--last_scale=0.5 is not for --model=statistician'),
        (['--init=w', '--encoder=resnet12'], '--encoder=resnet12 is not for --init=w'),
        (['--weights=w', '--two_sided'], '--two_sided=True is not for --weights=w'),
    ],
)
def test_flags_that_would_do_nothing_are_refused(arguments, named):
    with pytest.raises(ConfigError, match=named):
        parse_flags(omniglot.RECIPE, arguments)


def test_what_a_recipe_gives_need_not_be_of_use():
    assert parse_flags(omniglot.RECIPE, ['--recipe=modern', '--encoder=resnet12']).kernel_init == 'he_normal'
    assert parse_flags(miniimagenet.RECIPE, ['--encoder=resnet12']).last_scale == 0.125


@pytest.mark.parametrize('flag', ['--precision=bfloat16', '--kernels=off', '--test_episodes=5'])
def test_linear_maps_have_no_flags_of_encoders_and_episodes(flag):
    with pytest.raises(ConfigError, match='is unknown'):
        parse_flags(cub.RECIPE, [flag])
    old = {**config_to_json(cub.RECIPE), 'precision': 'float32', 'kernels': 'auto', 'test_episodes': 1000}
    assert config_differences(cub.RECIPE, old) == {}


def test_lists_must_be_numbers():
    with pytest.raises(ConfigError, match='--test_way=5,x must be whole numbers'):
        parse_flags(omniglot.RECIPE, ['--test_way=5,x'])


def test_an_experiment_is_known_by_what_changes_its_result():
    saved = config_to_json(omniglot.RECIPE)
    moved = dataclasses.replace(omniglot.RECIPE, workdir='/elsewhere', data_dir='/data', test_episodes=7)
    assert config_differences(moved, saved) == {}
    other = dataclasses.replace(omniglot.RECIPE, shot=5, seed=3)
    assert config_differences(other, saved) == {'seed': (0, 3), 'shot': (1, 5)}


def test_arguments_that_the_library_names_are_shown_as_flags():
    error = ValueError('`source=/a b` has no `x y`; choose another `data_dir`')
    assert message_with_flags(error) == '--source=/a b has no `x y`; choose another --data_dir'


def test_a_model_brings_its_values_and_flags_change_them():
    assert parse_flags(miniimagenet.RECIPE, ['--model=metalstm']).way == 5
    config = parse_flags(omniglot.RECIPE, ['--model=metalstm', '--shot=5', '--clip_norm=1'])
    assert (config.way, config.query, config.test_way, config.clip_norm) == (5, 15, (5,), 1.0)
    assert name_of_config('omniglot', omniglot.RECIPE, config_identity(config)) == (
        'omniglot-5way-5shot-model=metalstm-clip_norm=1.0-seed0'
    )
    plain = parse_flags(omniglot.RECIPE, ['--model=nearest'])
    name = name_of_config('omniglot', omniglot.RECIPE, config_identity(plain))
    assert name == 'omniglot-8way-1shot-model=nearest-seed0'


def test_the_official_recipe():
    config = parse_flags(omniglot.RECIPE, ['--recipe=official'])
    assert (config.resize, config.scale_init, config.kernel_init) == ('nearest', 'ones', 'uniform')
    assert (config.validation_way, config.validation_episodes, config.retrain_length) == (5, 100, 'search')
    assert (config.patience, config.validate_every, config.retrain) == (200, 100, True)
    assert parse_flags(omniglot.RECIPE, []).patience == 50


def test_zero_shot_systems_have_no_distance():
    with pytest.raises(ConfigError, match='--distance=cosine is not for --model='):
        dataclasses.replace(cub.RECIPE, model='ale', distance='cosine')


def test_help_says_what_models_and_recipes_also_set():
    text = flags_help('', miniimagenet.RECIPE)
    assert 'modern: --shot=5 --pretrain=12000' in text and 'nearest: --distance=cosine --way=8' in text
    assert flags_help('', omniglot.RECIPE).count('nearest: --') == 1  # not below --resize=nearest


def test_cub_says_that_the_paper_never_halves_the_rate():
    assert '0: never, as in the paper' in flags_help('', cub.RECIPE).replace('\n      ', ' ')


def test_the_name_of_a_run_is_one_folder_whatever_files_its_flags_name():
    values = config_identity(dataclasses.replace(omniglot.RECIPE, init='../../w.safetensors'))
    name = name_of_config('omniglot', omniglot.RECIPE, values)
    assert name == 'omniglot-60way-1shot-init=..-..-w.safetensors-seed0'
