"""Files of figures."""

import os
import subprocess
import sys

import pytest

from experiments.reporting.drawing import encoded_drawing, new_drawing, short_label


def picture(text='a'):
    figure = new_drawing(2)
    figure.subplots().set_title(text)
    return figure


@pytest.mark.parametrize('form, start', [('png', b'\x89PNG'), ('pdf', b'%PDF')])
def test_the_same_figure_gives_the_same_bytes(form, start):
    first, second = encoded_drawing(picture(), form), encoded_drawing(picture(), form)
    assert first.startswith(start) and first == second != encoded_drawing(picture('b'), form)


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('name', ['$x_1$ costs $', 'ᬅᬆ', 'a\nb\x00c', '\\frac', '…' * 300])
def test_any_name_can_be_drawn(name):
    assert encoded_drawing(picture(short_label(name)))


def test_long_names_keep_both_ends():
    assert short_label('Old_Church_Slavonic/character13', 12) == 'Old_C…cter13'
    assert short_label('Korean', 12) == 'Korean'


def test_no_display_is_needed():
    """Nor is pyplot loaded, which would look for one."""
    code = (
        'import sys; from experiments.reporting import charts, maps, pictures; '
        'from experiments.reporting.drawing import encoded_drawing, new_drawing; '
        'f = new_drawing(2); f.subplots(); encoded_drawing(f); assert "matplotlib.pyplot" not in sys.modules'
    )
    environment = {name: value for name, value in os.environ.items() if name not in ('DISPLAY', 'MPLBACKEND')}
    subprocess.run([sys.executable, '-c', code], check=True, env={**environment, 'MPLBACKEND': 'TkAgg'})
