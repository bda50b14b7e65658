"""The README's snippets run as they stand there, each in a process of its own as a user would try it."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import quick_compiler

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[1]
SNIPPETS = re.findall(r'^```python\n(.*?)^```$', (ROOT / 'README.md').read_text(), re.MULTILINE | re.DOTALL)
TRAINED = """
import jax, numpy as np
images = np.random.default_rng(0).integers(0, 256, (8, 12, 28, 28, 1), np.uint8)
dataset = protojax.Dataset(images, np.full(8, 12, np.int32))
params, batch_stats = jax.jit(task.initialize)(jax.random.key(0))
learn = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
(value, _), gradients = learn(params, batch_stats, dataset, jax.random.key(1))
assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients))
"""


def start(folder, *command):
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'XLA_FLAGS': quick_compiler.flags(), 'JAX_PLATFORMS': 'cpu'}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def snippet(word):
    (found,) = [code for code in SNIPPETS if word in code]
    return found


def test_predictions_of_the_first_snippet(tmp_path):
    ended = start(tmp_path, '-c', snippet('prototypical(weights'))
    assert ended.returncode == 0, ended.stderr
    predicted = [int(label) for label in re.findall(r'\d+', ended.stdout)]
    per_class = len(predicted) // 5
    right = sum(label == place // per_class for place, label in enumerate(predicted))
    assert right > 0.8 * len(predicted)


def test_a_folder_of_images_is_classified_and_exported(tmp_path):
    ended = start(tmp_path, '-c', snippet('known_classes(embedded'))
    assert ended.returncode == 0, ended.stderr
    assert '100 % right' in ended.stdout
    support, query = ('--support=mine/support', '--query=mine/query')
    ended = start(tmp_path, '-m', 'experiments.classify', support, query, '--weights=omniglot-60way-5shot', '--page')
    assert ended.returncode == 0, ended.stderr
    assert 'accuracy 100.0 % of 25 queries' in ended.stdout
    assert {'predictions.csv', 'predictions.json', 'page.html'} <= {p.name for p in (tmp_path / 'classified').iterdir()}
    (command,) = re.findall(
        r'^.venv/bin/python (-m experiments.export .*)', (ROOT / 'README.md').read_text(), re.MULTILINE
    )
    ended = start(tmp_path, *command.replace('=onnx', '=stablehlo').split())
    assert ended.returncode == 0, ended.stderr


def test_the_training_loop(tmp_path):
    ended = start(tmp_path, '-c', snippet('train_step'))
    assert ended.returncode == 0, ended.stderr
    accuracy = float(re.search(r'accuracy=([\d.]+)', ended.stdout)[1])
    assert accuracy > 40  # by chance: 20
    assert len(snippet('train_step').strip().splitlines()) <= 18


def test_what_extends_it_learns(tmp_path):
    """One process for all three, each with names of its own."""
    programs = [snippet(word) + TRAINED for word in ('manhattan', 'class Small', 'soft_k_means')]
    ended = start(tmp_path, '-c', f"for program in {programs!r}:\n    exec(program, {{'__name__': '__main__'}})")
    assert ended.returncode == 0, ended.stderr


def test_a_data_set_of_ones_own_is_a_program(tmp_path):
    (tmp_path / 'mine.py').write_text(snippet("Experiment('mine'"))
    flags = ['--episodes=4', '--log_every=2', '--validate_every=2', '--validation_episodes=5', '--test_episodes=5']
    ended = start(tmp_path, 'mine.py', *flags, '--workdir=run', '--test_shot=1', '--pictures=off')
    assert ended.returncode == 0, ended.stderr
    assert 'Accuracy on the test classes of noise' in ended.stdout
    assert (tmp_path / 'run' / 'weights.safetensors').exists()
