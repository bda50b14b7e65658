"""Results as a dictionary for results.json and as a table beside the paper's."""

import protojax
from experiments.config import identity


def results(config, data, scores):
    """What results.json holds. Nothing in it depends on how often the run was interrupted."""
    return {
        'dataset': data.title,
        'synthetic': data.synthetic,
        'protojax': protojax.__version__,
        'seed': config.seed,
        'evaluated_on': config.evaluate_on,
        'config': identity(config),
        config.evaluate_on: {setting: as_json(score) for setting, score in scores.items()},
    }


def as_json(score):
    return {
        'accuracy': round(score.accuracy, 4),
        'ci95': round(score.ci95, 4),
        'loss': score.loss,
        'episodes': score.episodes,
    }


def table(results, paper):
    """Ours beside the paper's, one line per setting."""
    split = results['evaluated_on']
    rows = [('setting', 'protojax', 'paper')]
    for setting, score in results[split].items():
        ours = f'{score["accuracy"]:.2f} ± {score["ci95"]:.2f} %'
        quoted = f'{paper[setting]} %' if setting in paper and not results['synthetic'] else '-'
        rows.append((setting, ours, quoted))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, '  '.join('-' * width for width in widths))
    title = f'Accuracy on the {split} classes of {results["dataset"]}'
    if results['synthetic']:
        lines.append("These are synthetic data: the figures cannot be compared with the paper's.")
    return '\n'.join(['', title, *lines])
