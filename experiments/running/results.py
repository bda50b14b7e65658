"""Results as the contents of results.json, as a table next to the paper's, and the diagnosis of failed training."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import protojax
from experiments.methods import encoders
from experiments.paper import markdown, tables
from experiments.paper.tables import USUAL
from experiments.running.config import Config
from experiments.running.evaluate import Setting
from protojax import Pretrained, Score, Splits

CONSTANT = 0.01  # a loss that varies by less than this fraction has not changed
NEAR_CHANCE = 0.1  # accuracy is at chance level if it exceeds chance by less than this fraction of it, or its CI


def of_run(
    config: Config, data: Splits, scores: Mapping[Setting, Score], about: dict[str, Any], origin: dict | None = None
) -> dict[str, Any]:
    """Return the contents of results.json, which do not depend on interruptions of the run.

    Args:
        config: Configuration of the run.
        data: Data set of the run.
        scores: Cells of the final table.
        about: Further values about data and training.
        origin: Origin of the weights, if they come from a file.
    """
    table = {}
    for setting, score in scores.items():
        rounded = {'accuracy': round(score.accuracy, 4), 'ci95': round(score.ci95, 4)}
        table[str(setting)] = {**rounded, 'loss': score.loss, 'episodes': score.episodes}
    return {
        'dataset': data.title,
        'synthetic': data.synthetic,
        'protojax': protojax.__version__,
        'seed': config.run.seed,
        'evaluated_on': config.run.evaluate_on,
        'config': config.identity,
        **about,
        **({} if origin is None else {'weights': origin}),
        config.run.evaluate_on: table,
    }


def origin(weights: Pretrained) -> dict[str, Any]:
    """Return digest, training configuration and training classes of weights, as far as their file contains them."""
    about = weights.description
    known = {name: about[name] for name in ('digest', 'package', 'trained_on') if name in about}
    return {**known, 'config': encoders.trained_with(weights)}


def as_flags(config: Mapping[str, Any]) -> str:
    """Format the main options of a configuration as flags; texts are quoted because files may contain anything."""
    methods = ('model', 'distance', 'context', 'init')
    unusual = [name for name in methods if config.get(name, USUAL[name]) != USUAL[name]]
    names = [name for name in ('way', 'shot', 'query', *unusual, 'recipe', 'episodes', 'seed') if name in config]
    return ' '.join(f'--{name}={json.dumps(config[name])}' for name in names) or 'unknown flags'


def table(results: Mapping[str, Any], experiment: str) -> str:
    """Format results next to the paper's, one line per setting, for the terminal."""
    split, quoted = results['evaluated_on'], tables.matching_results(experiment, results)
    rows = []
    for setting, score in results[split].items():
        rows.append((setting, f'{score["accuracy"]:.2f} ± {score["ci95"]:.2f}', quoted.get(setting, '-')))
    lines = ['', f'Accuracy on the {split} classes of {results["dataset"]}, in %']
    columns = 3 if quoted else 2
    lines += markdown.table(('setting', 'protojax', 'paper')[:columns], [row[:columns] for row in rows])
    if not quoted:
        reason = tables.difference(experiment, results)
        lines.append(f'Not comparable with the paper: {reason}.' if reason else 'The paper has no such model.')
    return '\n'.join(lines)


def diagnosis(scores: Mapping[Setting, Score], losses: Sequence[float], *, hint: str) -> list[str]:
    """Report accuracy at chance level, or a constant training loss, in one line with a hint; [] if neither is."""
    for setting, score in scores.items():
        chance = 100 / setting.way
        if round(score.accuracy, 4) - min(score.ci95, NEAR_CHANCE * chance) <= chance:
            measured = f'{score.accuracy:.2f} ± {score.ci95:.2f} %'
            return [f'accuracy is at chance level ({measured} in {setting}); {hint}']
    if len(losses) > 1 and max(losses) - min(losses) < CONSTANT * max(losses):
        return [f'the training loss stayed at {losses[-1]:.4f}; change --learning_rate']
    return []
