"""From folders of images to predictions, on synthetic drawings."""

import csv
import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from experiments import classify
from experiments.running.config import ConfigError
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import WeightsError
from protojax.pretrained import load_pretrained
from protojax.prototype_classifier import PrototypeClassifier

NAMES = ('<b>bold</b>', 'a&b', 'unknown', 'ß "q"', '日本', 'plain')  # as strange as file systems allow
UNSEEN = 'unseen'
WEIGHTS = 'omniglot-60way-5shot'


def write(path, drawing, *, ink='dark', size=(60, 90), suffix='png'):
    picture = Image.fromarray(drawing[..., 0] if ink == 'light' else 255 - drawing[..., 0])
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.resize(size, Image.Resampling.BICUBIC).save(path.with_suffix(f'.{suffix}'))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Three examples and six queries of each class, as different kinds of files, and queries of another class."""
    folder = tmp_path_factory.mktemp('own')
    drawings = handwriting(0, alphabets=(1, 1, 1)).test.items
    for name, own in zip((*NAMES, UNSEEN), drawings, strict=False):
        for number, drawing in enumerate(own[:9]):
            if number >= 3:
                kinds = {'ink': 'light' if number % 2 else 'dark', 'suffix': 'jpg' if number % 3 else 'webp'}
                write(folder / 'query' / name / f'{number}', drawing, size=(80, 40), **kinds)
            elif name != UNSEEN:
                write(folder / 'support' / name / f'{number}', drawing)
    return folder


def run(folder, *more, **flags):
    defaults = {'support': str(folder / 'support'), 'query': str(folder / 'query'), 'output': str(folder / 'out')}
    return classify.run(classify.Config(**{**defaults, **flags}), list(more))


@pytest.fixture(scope='module')
def saved(folder):
    """A classifier of all classes."""
    path = folder / 'classes.safetensors'
    assert run(folder, query='', save=str(path)) == []
    return path


def test_from_folders_to_predictions(folder, tmp_path, capsys):
    found = run(folder, page=True, output=str(tmp_path))
    printed = capsys.readouterr().out
    assert f'encoder: {WEIGHTS}' in printed  # drawings, three examples of each
    known = [answer for answer in found if answer['true_class'] != UNSEEN]
    assert len(known) == 36 and len(found) == 42
    correct = np.array([answer['best'][0][0] == answer['true_class'] for answer in known])
    accepted = ~np.array([answer['unknown'] for answer in known])
    assert np.mean(correct) > 0.9
    rows = list(csv.DictReader((tmp_path / 'predictions.csv').read_text().splitlines()))
    for key in ('predicted', 'true_class'):
        assert [row[key] for row in rows] == [answer[key] for answer in found]
    written = json.loads((tmp_path / 'predictions.json').read_text())
    assert written['answers'] == found and set(written['classes']) == set(NAMES)
    assert written['summary']['queries'] == 36 and written['summary']['unseen'] == 6
    assert Image.open(tmp_path / 'confusion.png').size[0] > 300

    page = (tmp_path / 'page.html').read_text()
    assert '<b>bold' not in page and '&lt;b&gt;bold&lt;/b&gt;' in page and 'a&b' not in page and '日本' in page
    assert '<script' not in page and 'http' not in page and page.count('src="data:image/jpeg;base64,') == 42
    assert 0 < page.count('<tr class="fine"') == sum(correct & accepted)
    assert page.count('Unknown; nearest: ') == sum(answer['unknown'] for answer in found) > 0


def test_printed_threshold_can_be_passed_again(folder, saved, tmp_path, capsys):
    flags = {'support': '', 'query': str(folder / 'query/plain'), 'classifier': str(saved), 'output': str(tmp_path)}
    (tmp_path / 'page.html').touch()
    before = run(folder, **flags)
    assert not (tmp_path / 'page.html').exists()  # it was of another run
    printed = re.search(
        r'threshold (\S+) \(--unknown\), so unknown beyond a squared distance of (\S+)\n', capsys.readouterr().out
    )
    assert run(folder, **flags, unknown=printed[1]) == before
    written = json.loads((tmp_path / 'predictions.json').read_text())['threshold']
    assert printed[2] == f'{written * 4 / 3:.3g}'  # three examples per class
    assert not any(answer['unknown'] for answer in run(folder, **flags, unknown='off'))
    assert all(answer['unknown'] for answer in run(folder, **flags, unknown='1e-9'))


def test_estimate_of_accuracy_and_rejection(folder, capsys, monkeypatch):
    monkeypatch.setattr(classify.estimate, 'SPLITS', 30)
    estimates = []
    for head in ('prototypes', 'logistic'):
        assert run(folder, query='', estimate=2, head=head) == []
        estimates.append(tuple(map(float, re.findall(r'([0-9.]+) ± [0-9.]+ %', capsys.readouterr().out))))
        accuracy, known, unseen = estimates[-1]
        assert accuracy > 80 and known < 25 < unseen
    assert estimates[0][1:] == estimates[1][1:]  # the same rejection


HOSTILE_NAMES = (b'\x1b]0;owned\x07\xff', b'$\\frac{$<script>')  # for terminals, as UTF-8, for Matplotlib and browsers


def test_hostile_names(folder, tmp_path, capsys):
    for kind in ('support', 'query'):
        for name, own in zip(HOSTILE_NAMES, ('plain', '日本'), strict=True):
            shutil.copytree(folder / kind / own, tmp_path / kind / os.fsdecode(name))
    os.mkfifo(tmp_path / 'query' / 'pipe\x1b[2J.png')
    (tmp_path / 'query' / 'zero.png').symlink_to('/dev/zero')
    (tmp_path / 'query' / 'around').symlink_to('..')
    (tmp_path / 'query' / '\x1b[2J.txt').touch()
    saved = tmp_path / 'classes.safetensors'
    found = run(tmp_path, page=True, save=str(saved), weights=WEIGHTS)
    assert len(found) == 12
    assert all(line.isprintable() for text in capsys.readouterr() for line in text.splitlines())
    for name in ('page.html', 'predictions.csv', 'predictions.json'):
        assert r'\udcff' in (tmp_path / 'out' / name).read_text()
    assert '<script' not in (tmp_path / 'out' / 'page.html').read_text()
    again = run(tmp_path, support='', classifier=str(saved))
    assert [answer['best'] for answer in again] == [answer['best'] for answer in found]


def test_classes_are_added_to_a_saved_classifier(folder, saved, tmp_path):
    few, grown = str(tmp_path / 'few.safetensors'), tmp_path / 'grown.safetensors'
    digest = load_pretrained(WEIGHTS).description['digest']
    PrototypeClassifier.load(saved).select(['plain', '日本']).save(few, encoder=digest)
    run(folder, query='', classifier=few, save=str(grown), output=str(tmp_path))
    assert PrototypeClassifier.load(grown).select(NAMES).counts.tolist() == [3, 3, 3, 3, 6, 6]
    shutil.copytree(folder / 'support' / 'plain', tmp_path / 'one' / 'new')
    run(folder, support=str(tmp_path / 'one'), query='', classifier=few, save=str(grown), output=str(tmp_path))
    assert PrototypeClassifier.load(grown).names == ('plain', '日本', 'new')
    with pytest.raises(WeightsError, match='different encoder'):
        run(folder, support='', classifier=few, weights='omniglot-60way-1shot')
    for dimensions, encoder, message in ((3, digest, 'expected 64 dimensions, got 3'), (64, 'x', 'set --weights too')):
        PrototypeClassifier.fit(np.eye(2, dimensions), [0, 1], 'ab').save(few, encoder=encoder)
        with pytest.raises(WeightsError, match=message):
            run(folder, support='', classifier=few)


def test_unreadable_files_are_reported_and_left_out(folder, saved, tmp_path, capsys):
    (tmp_path / 'query').mkdir()
    good = folder / 'query' / 'plain' / '4.jpg'
    (tmp_path / 'query' / 'broken.jpg').write_bytes(good.read_bytes()[:200])
    (tmp_path / 'query' / 'notes.txt').write_text('')
    flags = {'support': '', 'classifier': str(saved), 'output': str(tmp_path)}
    found = run(folder, str(tmp_path / 'query'), query=str(good), **flags)  # a file and a folder
    assert [(answer['file'], answer['true_class']) for answer in found] == [(str(good), '')]
    printed = capsys.readouterr()
    assert 'accuracy' not in printed.out and not (tmp_path / 'confusion.png').exists()
    assert 'ignored 1 unreadable file, first: ' in printed.err and 'ignored 1 path without' in printed.err


def test_bad_support_sets_are_rejected(folder, tmp_path):
    for path in ('flat/a', 'single/only/a', 'hollow/a/a', 'hollow/b/a', 'broken/a/a'):
        write(tmp_path / path, np.zeros((28, 28, 1), np.uint8))
    for path in ('empty', 'hollow/nothing', 'broken/b'):
        (tmp_path / path).mkdir()
    (tmp_path / 'broken/b/a.png').write_bytes(b'x')
    messages = {'empty': 'no image', 'flat': '2 subfolders.* got 0', 'single': '2 subfolders.* got 1'}
    messages |= {'hollow': "'nothing' has no image", 'broken': "'b'.*can be read", 'nowhere': 'does not exist'}
    for name, message in messages.items():
        with pytest.raises(ConfigError, match=message):
            run(folder, support=str(tmp_path / name), weights=WEIGHTS)


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        ({'support': ''}, '--support=DIR'),
        ({'query': ''}, '--query'),
        ({'unknown': 'nan'}, '--unknown'),
        ({'query': '', 'estimate': 3}, 'at least 4 images of every class'),
        ({'save': 'x.npz'}, r'\.safetensors'),
        ({'head': 'logistic', 'save': 'x.safetensors'}, 'remove --classifier and --save'),
        ({'weights': 'omniglot-60way-1shots'}, 'did you mean omniglot-60way-1shot?'),
    ],
)
def test_invalid_flags_are_rejected_before_the_work(folder, flags, message):
    with pytest.raises(ConfigError, match=message):
        run(folder, **flags)
