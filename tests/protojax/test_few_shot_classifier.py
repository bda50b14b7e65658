"""The front for image files computes the same as its parts."""

import numpy as np
import pytest
from PIL import Image

import protojax
from protojax.datasets.synthetic.handwriting import handwriting
from protojax.errors import WeightsError

WEIGHTS = 'omniglot-60way-5shot'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Three examples and two queries of four classes."""
    folder = tmp_path_factory.mktemp('drawings')
    for name, drawings in zip('abcd', handwriting(0, alphabets=(1, 1, 1)).test.items, strict=False):
        for number, drawing in enumerate(drawings[:5]):
            path = folder / ('support' if number < 3 else 'query') / name / f'{number}.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(255 - drawing[..., 0]).save(path)
    return folder


def test_from_files_to_names(folder, tmp_path):
    fitted = protojax.FewShotClassifier(WEIGHTS).fit(folder / 'support')
    support = protojax.load_images(folder / 'support', like=fitted.weights)
    embeddings = fitted.weights.embed(support.items)
    expected = protojax.PrototypeClassifier.fit(embeddings, support.labels, support.names)
    expected = expected.calibrate(embeddings, support.labels)
    np.testing.assert_array_equal(fitted.classifier.sums, expected.sums)
    assert fitted.classifier.threshold == expected.threshold < np.inf

    files = sorted((folder / 'query').glob('*/*.png'), reverse=True)
    noise = tmp_path / 'noise.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 30), np.uint8)).save(noise)
    names = [file.parent.name for file in files]
    found = fitted.predict([*files, noise])
    assert np.mean([name == true for name, true in zip(found, names, strict=False)]) > 0.7 and found[-1] is None
    shares = fitted.predict_proba(files)
    assert shares.shape == (8, 4) and [fitted.classifier.names[k] for k in shares.argmax(1)] == names

    fitted.save(tmp_path / 'c.safetensors')
    assert protojax.FewShotClassifier.load(tmp_path / 'c.safetensors').predict(files) == fitted.predict(files)
    with pytest.raises(WeightsError, match='different encoder'):
        protojax.FewShotClassifier.load(tmp_path / 'c.safetensors', 'omniglot-60way-1shot')


def test_classes_are_added_without_the_old_images(folder):
    classifier = protojax.FewShotClassifier(WEIGHTS)
    with pytest.raises(ValueError, match='call fit'):
        classifier.predict(folder / 'query')
    classifier.fit(folder / 'query')
    sums, threshold = classifier.classifier.sums, classifier.classifier.threshold
    classifier.add(folder / 'support')
    assert classifier.classifier.counts.tolist() == [5] * 4 and classifier.classifier.threshold == threshold
    np.testing.assert_array_equal(classifier.fit(folder / 'query').classifier.sums, sums)
