"""Results as a dictionary for results.json and as a table beside the paper's."""

import json

import protojax
from experiments.running.config import identity


def results(config, data, scores, origin=None):
    """What results.json holds. Nothing in it depends on how often the run was interrupted."""
    weights = {} if origin is None else {'weights': origin}
    return {
        'dataset': data.title,
        'synthetic': data.synthetic,
        'protojax': protojax.__version__,
        'seed': config.seed,
        'evaluated_on': config.evaluate_on,
        'config': identity(config),
        **weights,
        config.evaluate_on: {setting: as_json(score) for setting, score in scores.items()},
    }


def origin(description):
    """Where weights from a file come from, as far as the file says: its digest and the config that trained them."""
    trained = description.get('results')
    config = trained.get('config') if isinstance(trained, dict) else None
    return {'digest': description['digest'], 'config': config if isinstance(config, dict) else {}}


def as_flags(config):
    """What matters most of a config. Strings are quoted: those of a foreign file may hold anything."""
    names = [name for name in ('way', 'shot', 'query', 'recipe', 'episodes', 'seed') if name in config]
    return ' '.join(f'--{name}={json.dumps(config[name])}' for name in names) or 'flags that their file does not name'


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
