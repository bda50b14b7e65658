"""Results of models that have not learned."""

from experiments.running.evaluate import Setting
from experiments.running.results import diagnosis
from protojax.evaluation import Score

FIVE, FIFTY = Setting(5, '1-shot'), Setting(50, 'per image')


def score(accuracy, ci95):
    return Score(accuracy, ci95, loss=1.0, episodes=10)


def test_accuracy_at_chance_level_is_reported():
    scores = {FIVE: score(20.0, 0.0), Setting(20, '1-shot'): score(5.0, 0.0)}
    expected = 'accuracy is at chance level (20.00 ± 0.00 % in 5-way 1-shot); lower --learning_rate'
    assert diagnosis(scores, [], hint='lower --learning_rate') == [expected]
    assert diagnosis({FIFTY: score(2.1, 0.5)}, [], hint='')
    assert not diagnosis({FIFTY: score(2.1, 0.05)}, [], hint='')
    assert not diagnosis({FIVE: score(35.0, 20.0)}, [], hint='')  # a few episodes prove nothing


def test_constant_loss_is_reported():
    scores = {FIVE: score(90.0, 1.0)}
    assert diagnosis(scores, [1.0, 0.995, 1.002], hint='') == [
        'the training loss stayed at 1.0020; change --learning_rate'
    ]
    assert not diagnosis(scores, [1.0, 0.98], hint='') and not diagnosis(scores, [1.0], hint='')
