"""The pictures that a finished run leaves in its workdir."""

from functools import partial

import jax
import numpy as np

from experiments.compared.finetuning import as_they_are
from experiments.running.config import FewShotConfig
from experiments.running.evaluating import keys_for_evaluating
from experiments.running.progress import show_above_progress
from protojax.episodes import Dataset, Episode, sample_episode
from protojax.errors import first_line
from protojax.files import write_whole

QUERIES_AT_ONCE = 4096


def illustrate(config, task, params, embedded, split, title, workdir):
    """Draw a run into its workdir and TensorBoard -> names of the files. What cannot be drawn costs a line, not a run.

    split: that of the final table, with names and images; embedded: the Dataset of its embeddings.
    """
    written = []
    try:
        from experiments.reporting.drawing import encoded_drawing
        from experiments.running.board import Board

        board = Board(workdir.path / 'tensorboard' / 'pictures', 0)
        for name, figure in illustrations(config, task, jax.device_get(params), embedded, split, title, workdir):
            png = encoded_drawing(figure)
            write_whole(workdir.path / f'{name}.png', png)
            board.write_picture(name, 0, png)
            written.append(f'{name}.png')
        board.close()
    except Exception as error:  # of whatever kind: the results are there already
        show_above_progress(f'warning: not all pictures could be drawn ({first_line(error)})')
    return written


def illustrations(config, task, params, embedded, split, title, workdir):
    """Names and figures of what there is to see of a run: curves, an episode where there are images, mistakes."""
    from experiments.reporting.pictures import (
        PicturedQueries,
        picture_of_curves,
        picture_of_episode,
        picture_of_mistakes,
    )

    def predictions(episode):
        """Of the queries of an episode of places: see episode_of_every_item."""
        names = tuple(split.names[number] for number in episode.classes)
        images = _illustrated_items(split.items, episode.query) if split.items.dtype == np.uint8 else None
        predicted = _illustrated_classes(task, params, embedded, episode)
        return PicturedQueries(episode.query_labels, predicted, names, images)

    if lines := workdir.metrics():
        yield 'curves', picture_of_curves(lines, f'{title}, {workdir.path.name}')
    if not isinstance(config, FewShotConfig):
        yield 'mistakes', picture_of_mistakes(predictions(episode_of_every_item(embedded)), f'{title}, zero-shot')
        return
    if split.items.dtype == np.uint8:
        way, shot = max(config.test_way), min(config.test_shot)
        episode = _illustrated_episode(config, task, embedded, way=way, shot=shot)
        shown = f'{title}: a {way}-way {shot}-shot episode'
        support = _illustrated_items(split.items, episode.support)
        yield 'episode', picture_of_episode(support, episode.support_labels, predictions(episode), shown)
    if task.embed is as_they_are:
        return  # what trains on its support set is made for episodes, not for all classes at once
    shot, query = max(config.test_shot), config.test_query
    queries = predictions(episode_of_every_item(embedded, shot=shot, query=query, unlabeled=task.unlabeled))
    yield 'mistakes', picture_of_mistakes(queries, f'{title}, {len(queries.names)}-way {shot}-shot')


def _illustrated_episode(config, task, embedded, *, way, shot):
    """The first test episode of a setting, by the places of its items: see episode_of_every_item."""
    places = np.arange(embedded.items.shape[0] * embedded.items.shape[1]).reshape(embedded.items.shape[:2])
    key = jax.random.fold_in(keys_for_evaluating(config)[1], 0)
    sizes = {'way': way, 'shot': shot, 'query': config.test_query, 'unlabeled': task.unlabeled}
    dataset = Dataset(places, np.asarray(embedded.counts))
    return jax.device_get(jax.jit(partial(sample_episode, **sizes))(key, dataset))


def episode_of_every_item(embedded, *, shot=0, query=None, unlabeled=0):
    """An episode of all classes at once, by the places of its items when all stand in a row, class by class."""
    rng, size = np.random.default_rng(0), embedded.items.shape[1]
    chosen = [size * label + rng.permutation(count) for label, count in enumerate(np.asarray(embedded.counts))]
    parts = []
    for classes in ([places[:shot] for places in chosen], [places[shot:][:query] for places in chosen]):
        parts += [np.concatenate(classes), np.repeat(np.arange(len(classes)), [len(places) for places in classes])]
    others = np.concatenate([places[shot + query :][:unlabeled] for places in chosen]) if unlabeled else None
    return Episode(*parts, np.arange(len(chosen)), others, attributes=embedded.attributes)


def _illustrated_items(items, places):
    """[classes, items, ...], [N] -> [N, ...]"""
    return items.reshape(-1, *items.shape[2:])[places]


def _illustrated_classes(task, params, embedded, episode):
    """The classes that the queries of an episode of places are taken for -> int [Q]."""
    classify = jax.jit(lambda params, episode: task.classify(params, episode).argmax(-1))
    embeddings = {'support': _illustrated_items(embedded.items, episode.support)}
    if episode.unlabeled is not None:
        embeddings['unlabeled'] = _illustrated_items(embedded.items, episode.unlabeled)
    parts = []
    for start in range(0, len(episode.query), QUERIES_AT_ONCE):
        queries = _illustrated_items(embedded.items, episode.query[start : start + QUERIES_AT_ONCE])
        parts.append(classify(params, episode._replace(**embeddings, query=queries, query_labels=None)))
    return np.concatenate(parts)
