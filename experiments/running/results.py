"""Results as a dictionary for results.json and as a table beside the paper's."""

import json

import protojax
from experiments.reporting.markdown import markdown_table
from experiments.reporting.paper import USUAL, difference_from_paper, paper_figures
from experiments.running.identity import config_identity


def results_of_run(config, data, scores, about, origin=None):
    """What results.json holds, `about` the data and the training included.

    Nothing in it depends on how often the run was interrupted.
    """
    weights = {} if origin is None else {'weights': origin}
    table = {}
    for setting, score in scores.items():
        rounded = {'accuracy': round(score.accuracy, 4), 'ci95': round(score.ci95, 4)}
        table[setting] = {**rounded, 'loss': score.loss, 'episodes': score.episodes}
    return {
        'dataset': data.title,
        'synthetic': data.synthetic,
        'protojax': protojax.__version__,
        'seed': config.seed,
        'evaluated_on': config.evaluate_on,
        'config': config_identity(config),
        **about,
        **weights,
        config.evaluate_on: table,
    }


def results_origin(description):
    """Where weights from a file come from, as far as the file says: its digest, the config and classes of training."""
    trained = description.get('results')
    config = trained.get('config') if isinstance(trained, dict) else None
    told = {name: description[name] for name in ('package', 'trained_on') if name in description}
    return {'digest': description['digest'], **told, 'config': config if isinstance(config, dict) else {}}


def results_as_flags(config):
    """What matters most of a config. Strings are quoted: those of a foreign file may hold anything."""
    methods = ('model', 'distance', 'context', 'init')
    unusual = [name for name in methods if config.get(name, USUAL[name]) != USUAL[name]]
    names = [name for name in ('way', 'shot', 'query', *unusual, 'recipe', 'episodes', 'seed') if name in config]
    return ' '.join(f'--{name}={json.dumps(config[name])}' for name in names) or 'flags that their file does not name'


def results_table(results, experiment):
    """Ours beside the paper's, one line per setting, as text for the terminal."""
    split, figures = results['evaluated_on'], paper_figures(experiment, results)
    rows = []
    for setting, score in results[split].items():
        rows.append((setting, f'{score["accuracy"]:.2f} ± {score["ci95"]:.2f}', figures.get(setting, '-')))
    lines = ['', f'Accuracy on the {split} classes of {results["dataset"]}, in %']
    lines += markdown_table(('setting', 'protojax', 'paper'), rows)
    if figures:
        return '\n'.join(lines)
    if reason := difference_from_paper(experiment, results):
        lines.append(f"The paper's figures cannot be compared with these: {reason}.")
    else:
        lines.append('The paper has no figures of a model that is trained like this one.')
    return '\n'.join(lines)
