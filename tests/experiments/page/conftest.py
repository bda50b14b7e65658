"""A server with an encoder for drawings."""

import pytest

from experiments.page import alphabets, answers
from protojax.pretrained import load_pretrained
from tests.experiments.page import client


@pytest.fixture(scope='module')
def model():
    return answers.ready(load_pretrained('omniglot-60way-1shot'))


@pytest.fixture(scope='module')
def server(model):
    with client.served({'drawings': client.done(model)}, {alphabets.FUTHARK: alphabets.futhark()}) as server:
        yield server
