"""Files of figures."""

import pytest

from experiments.drawing.style import encoded_drawing, new_drawing, short_label


def picture(text='a'):
    figure = new_drawing(2)
    figure.subplots().set_title(text)
    return figure


@pytest.mark.parametrize('form', ['png', 'pdf'])
def test_the_same_figure_gives_the_same_bytes(form):
    assert encoded_drawing(picture(), form) == encoded_drawing(picture(), form) != encoded_drawing(picture('b'), form)


@pytest.mark.filterwarnings('error::UserWarning')
@pytest.mark.parametrize('name', ['$x_1$ costs $', 'ᬅᬆ a\nb\x00c', '…' * 300])
def test_any_name_can_be_drawn(name):
    assert encoded_drawing(picture(short_label(name)))
