"""What is plainly wrong with a result, in a line that says what to do about it."""

NEAR = 0.1  # an accuracy above chance by less than this share of it is chance, if its interval says so too
STILL = 0.01  # a loss that never moves by more than this share of itself stands still


def verdict_lines(scores, lines, *, advice='lower --learning_rate'):
    """One line, or none: {setting: score as in results.json}, lines of metrics.jsonl -> list of lines.

    advice: what to do about a model that is as good as chance.
    """
    for setting, score in scores.items():
        chance = 100 / int(setting.split('-')[0])
        if score['accuracy'] - min(score['ci95'], NEAR * chance) <= chance:
            measured = f'{score["accuracy"]:.2f} ± {score["ci95"]:.2f} %'
            return [f'the model has not learned: {measured} is chance in {setting}; {advice}']
    losses = [line['loss'] for line in lines if line['split'] == 'train']
    if len(losses) > 1 and max(losses) - min(losses) < STILL * max(losses):
        return [f'the model has not learned: the loss stood still at {losses[-1]:.4f}; change --learning_rate']
    return []
