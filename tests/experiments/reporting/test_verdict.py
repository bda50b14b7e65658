"""Results that show that nothing was learned."""

from experiments.reporting.verdict import verdict_lines


def score(accuracy, ci95):
    return {'accuracy': accuracy, 'ci95': ci95}


def lines(*losses):
    return [{'split': 'train', 'loss': loss} for loss in losses]


def test_chance_is_called_so():
    expected = 'the model has not learned: 20.00 ± 0.00 % is chance in 5-way 1-shot; lower --learning_rate'
    scores = {'5-way 1-shot': score(20.0, 0.0), '20-way 1-shot': score(5.0, 0.0)}
    assert verdict_lines(scores, lines(1.6, 1.6)) == [expected]
    (line,) = verdict_lines(scores, [], advice='give other --weights')
    assert line.endswith('is chance in 5-way 1-shot; give other --weights')
    assert verdict_lines({'50-way per image': score(2.1, 0.5)}, [])
    assert not verdict_lines({'50-way per image': score(2.1, 0.05)}, [])
    assert not verdict_lines({'5-way 1-shot': score(35.0, 20.0)}, [])  # of a few episodes, which say nothing


def test_a_loss_that_stood_still_is_called_so():
    learned = {'5-way 1-shot': score(30.0, 1.0)}
    (line,) = verdict_lines(learned, lines(4.0943, 4.0950, 4.0944))
    assert line == 'the model has not learned: the loss stood still at 4.0944; change --learning_rate'
    assert not verdict_lines(learned, lines(4.09, 3.9))
    assert not verdict_lines(learned, lines(4.09))  # one report says nothing
    assert not verdict_lines(learned, [])
