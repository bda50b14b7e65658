"""One's own images from folders to predictions, on drawings that a program made."""

import csv
import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from experiments.classify import ClassifyConfig, run_classify
from experiments.reporting.confusion import confusion_figure, confusion_line, confusion_matrix, most_confused
from experiments.reporting.prediction_page import thumbnails_for_page
from experiments.reporting.predictions import prediction_summary
from experiments.running.config import ConfigError
from protojax.class_files import save_classes
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import WeightsError
from protojax.known_classes import known_classes
from protojax.pretrained import load_pretrained

NAMES = ('<b>bold</b>', 'a&b', 'unknown', 'ß "q"', '日本', 'plain')  # as strange as file systems allow
STRANGER = 'stranger'


def write(path, drawing, *, ink='dark', size=(60, 90), suffix='png'):
    picture = Image.fromarray(drawing[..., 0] if ink == 'light' else 255 - drawing[..., 0])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.resize(size, Image.Resampling.BICUBIC).save(path.with_suffix(f'.{suffix}'))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Three examples and six queries of each class, as different kinds of files, and queries of another class."""
    folder = tmp_path_factory.mktemp('own')
    drawings = handwriting(0, alphabets=(1, 1, 1)).test.items
    for name, own in zip((*NAMES, STRANGER), drawings, strict=False):
        for number, drawing in enumerate(own[:9]):
            if number >= 3:
                kinds = {'ink': 'light' if number % 2 else 'dark', 'suffix': 'jpg' if number % 3 else 'webp'}
                write(folder / 'query' / name / f'{number}', drawing, size=(80, 40), **kinds)
            elif name != STRANGER:
                write(folder / 'support' / name / f'{number}', drawing)
    return folder


def run(folder, *more, **flags):
    defaults = {'support': str(folder / 'support'), 'query': str(folder / 'query'), 'output': str(folder / 'out')}
    return run_classify(ClassifyConfig(**{**defaults, **flags}), list(more))


def test_from_folders_to_predictions(folder, tmp_path, capsys):
    found = run(folder, page=True, output=str(tmp_path))
    printed = capsys.readouterr().out
    assert 'encoder: omniglot-60way-5shot' in printed  # drawings, three examples of each
    known = [answer for answer in found if answer['class'] != STRANGER]
    assert len(known) == 36 and len(found) == 42
    right = [answer['best'][0][0] == answer['class'] for answer in known]
    assert np.mean(right) > 0.9
    assert f'accuracy {100 * np.mean(right):.1f} % of 36 queries' in printed
    for answer in found:
        names, shares = zip(*answer['best'], strict=True)
        assert len(set(names)) == 3 and sorted(shares, reverse=True) == list(shares) and 0 < sum(shares) <= 1.000002

    with open(tmp_path / 'predictions.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [row['predicted'] for row in rows] == [answer['predicted'] for answer in found]
    written = json.loads((tmp_path / 'predictions.json').read_text())
    assert written['answers'] == found and set(written['classes']) == set(NAMES)
    assert written['summary']['queries'] == 36 and written['summary']['strangers'] == 6
    assert Image.open(tmp_path / 'confusion.png').size[0] > 300

    page = (tmp_path / 'page.html').read_text()
    assert '<b>bold' not in page and '&lt;b&gt;bold&lt;/b&gt;' in page and 'a&b' not in page and '日本' in page
    assert len(re.findall('<tr[^>]*><td>', page)) == 42 and page.count('src="data:image/jpeg;base64,') == 42
    assert '<script' not in page and 'http' not in page
    fine = [answer['best'][0][0] == answer['class'] and not answer['unknown'] for answer in found]
    assert 0 < page.count('<tr class="fine">') == sum(fine) < 42


HOSTILE_NAMES = (b'\x1b]0;owned\x07\xff', b'$\\frac{$<script>')  # for terminals, as UTF-8, for Matplotlib and browsers


def test_names_that_are_hostile_or_no_text(folder, tmp_path, capsys):
    for kind in ('support', 'query'):
        for name, own in zip(HOSTILE_NAMES, ('plain', '日本'), strict=True):
            shutil.copytree(folder / kind / own, tmp_path / kind / os.fsdecode(name))
    os.mkfifo(tmp_path / 'query' / 'pipe\x1b[2J.png')
    (tmp_path / 'query' / 'zero.png').symlink_to('/dev/zero')
    (tmp_path / 'query' / 'around').symlink_to('..')
    (tmp_path / 'query' / '\x1b[2J.txt').touch()
    saved = tmp_path / 'classes.safetensors'
    found = run(tmp_path, page=True, save=str(saved), weights='omniglot-60way-5shot')
    assert len(found) == 12
    assert all(line.isprintable() for text in capsys.readouterr() for line in text.splitlines())
    for name in ('page.html', 'predictions.csv', 'predictions.json'):
        assert r'\udcff' in (tmp_path / 'out' / name).read_text()
    assert '<script' not in (tmp_path / 'out' / 'page.html').read_text()
    again = run(tmp_path, support='', classifier=str(saved), weights='omniglot-60way-5shot')
    assert [answer['best'] for answer in again] == [answer['best'] for answer in found]


def test_single_files_and_no_folders_of_classes(folder, tmp_path, capsys):
    files = sorted(str(path) for path in (folder / 'query' / 'plain').iterdir())
    found = run(folder, *files[1:], query=files[0], output=str(tmp_path))
    assert [answer['file'] for answer in found] == files and not any(answer['class'] for answer in found)
    assert 'accuracy' not in capsys.readouterr().out and not (tmp_path / 'confusion.png').exists()


def test_classes_are_saved_and_added_to(folder, tmp_path):
    saved = tmp_path / 'classes.safetensors'
    half = tmp_path / 'half'
    for name in ('plain', '日本'):
        half.joinpath(name).mkdir(parents=True)
        for number in range(3):
            path = folder / 'support' / name / f'{number}.png'
            (half / name / path.name).write_bytes(path.read_bytes())
    weights = 'omniglot-60way-5shot'
    assert run(folder, support=str(half), query='', save=str(saved), weights=weights) == []
    alone = run(folder, support='', classifier=str(saved), weights=weights, output=str(tmp_path))
    assert {answer['best'][0][0] for answer in alone} == {'plain', '日本'}
    with pytest.raises(WeightsError, match='other weights'):
        run(folder, support='', classifier=str(saved), weights='omniglot-60way-1shot')
    with pytest.raises(ConfigError, match='--weights'):
        run(folder, support='', classifier=str(saved))
    grown = run(folder, classifier=str(saved), weights=weights, output=str(tmp_path))
    assert {name for answer in grown for name, _ in answer['best']} == set(NAMES)


def test_classes_of_other_dimensions_under_the_right_name(tmp_path, folder):
    digest = load_pretrained('omniglot-60way-5shot').description['digest']
    save_classes(tmp_path / 'c.safetensors', known_classes(np.eye(3), [0, 1, 2], 'abc'), encoder=digest)
    with pytest.raises(WeightsError, match='not of embeddings by these weights'):
        run(folder, support='', classifier=str(tmp_path / 'c.safetensors'), weights='omniglot-60way-5shot')


def test_what_is_unknown_can_be_told(folder, tmp_path):
    assert not any(answer['unknown'] for answer in run(folder, unknown='off', output=str(tmp_path)))
    assert all(answer['unknown'] for answer in run(folder, unknown='1e-9', output=str(tmp_path)))
    for bad in ('sometimes', '-1', 'nan'):
        with pytest.raises(ConfigError, match='--unknown'):
            run(folder, unknown=bad)


def test_unreadable_files_are_named_and_left_out(folder, tmp_path, capsys):
    (tmp_path / 'query').mkdir()
    good = folder / 'query' / 'plain' / '4.jpg'
    (tmp_path / 'query' / 'good.jpg').write_bytes(good.read_bytes())
    (tmp_path / 'query' / 'broken.jpg').write_bytes(good.read_bytes()[:200])
    (tmp_path / 'query' / 'notes.txt').write_text('')
    assert len(run(folder, query=str(tmp_path / 'query'), output=str(tmp_path))) == 1
    errors = capsys.readouterr().err
    assert 'broken.jpg' in errors and 'notes.txt' in errors
    assert len(json.loads((tmp_path / 'predictions.json').read_text())['skipped']) == 1


def bad_supports(folder):
    """Folders that cannot be a support set, and what is said of them."""
    empty = folder / 'empty'
    empty.mkdir()
    yield empty, 'no PNG, JPEG or WebP image'
    flat = folder / 'flat'
    write(flat / 'a', np.zeros((28, 28, 1), np.uint8))
    yield flat, 'make one folder for each class'
    single = folder / 'single'
    write(single / 'only' / 'a', np.zeros((28, 28, 1), np.uint8))
    yield single, 'has one class'
    hollow = folder / 'hollow'
    for name in 'ab':
        write(hollow / name / 'a', np.zeros((28, 28, 1), np.uint8))
    (hollow / 'nothing').mkdir()
    yield hollow, "'nothing'.*put some there"
    broken = folder / 'broken'
    for name in 'ab':
        write(broken / name / 'a', np.zeros((28, 28, 1), np.uint8))
    (broken / 'b' / 'a.png').write_bytes(b'x')
    yield broken, "'b'.*can be read"
    yield folder / 'nowhere', 'does not exist'


def test_bad_support_sets_get_one_line_with_the_way_out(folder, tmp_path):
    for support, message in bad_supports(tmp_path):
        with pytest.raises(ConfigError, match=message):
            run(folder, support=str(support))
    with pytest.raises(ConfigError, match='--support=DIR'):
        run(folder, support='')
    with pytest.raises(ConfigError, match='--query'):
        run(folder, query='')


def test_a_class_may_be_called_unknown():
    found = [
        {'class': 'unknown', 'best': [['unknown', 0.9]], 'unknown': False},
        {'class': 'unknown', 'best': [['unknown', 0.9]], 'unknown': True},
        {'class': 'b', 'best': [['unknown', 0.9]], 'unknown': False},
        {'class': 'elsewhere', 'best': [['b', 0.9]], 'unknown': True},
    ]
    matrix = confusion_matrix(found, ('b', 'unknown'))
    np.testing.assert_array_equal(matrix, [[0, 1, 0], [0, 1, 1]])
    told = prediction_summary(found, ('b', 'unknown'))
    assert told['queries'] == 3 and told['strangers_found'] == 100
    np.testing.assert_allclose([told['accuracy'], told['false_alarms']], [200 / 3, 100 / 3])


def test_the_picture_of_many_classes_shows_those_that_are_confused_most():
    names = [f'class {number}' for number in range(300)]
    matrix = 9 * np.eye(300, 301, dtype=int)
    matrix[7, 250], matrix[299, 300], matrix[8, 9] = 5, 4, 1
    part, rows, columns = most_confused(matrix, names)
    assert {'class 7', 'class 250', 'class 299', 'class 8', 'class 9'} < set(rows) and len(rows) == 40
    assert part[rows.index('class 7'), columns.index('class 250')] == 5
    assert part[rows.index('class 299'), columns.index('unknown')] == 4
    np.testing.assert_array_equal(part.sum(1), [matrix[names.index(name)].sum() for name in rows])
    assert len(confusion_figure(matrix, names, 'many').axes[0].get_xticklabels()) == 42
    assert confusion_line(matrix, names, 1) == 'mistaken most often: class 7 for class 250 (5 of 14)'


def test_an_image_that_is_gone_has_no_thumbnail(tmp_path):
    assert thumbnails_for_page([tmp_path / 'gone.png']) == ['']
