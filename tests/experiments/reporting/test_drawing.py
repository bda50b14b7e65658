"""Files of figures."""

import os
import subprocess
import sys

import pytest

from experiments.reporting import drawing


def picture(text='a'):
    figure = drawing.figure(2)
    figure.subplots().set_title(text)
    return figure


@pytest.mark.parametrize('form, start', [('png', b'\x89PNG'), ('pdf', b'%PDF'), ('svg', b'<?xml')])
def test_the_same_figure_gives_the_same_bytes(form, start):
    first, second = drawing.encoded(picture(), form), drawing.encoded(picture(), form)
    assert first.startswith(start) and first == second != drawing.encoded(picture('b'), form)


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('name', ['$x_1$ costs $', 'ᬅᬆ', 'a\nb\x00c', '\\frac', '…' * 300])
def test_any_name_can_be_drawn(name):
    assert drawing.encoded(picture(drawing.short(name)))


def test_long_names_keep_both_ends():
    assert drawing.short('Old_Church_Slavonic/character13', 12) == 'Old_C…cter13'
    assert drawing.short('Korean', 12) == 'Korean'


def test_no_display_is_needed():
    """Nor is pyplot loaded, which would look for one."""
    code = (
        'import sys, io; from experiments.reporting import drawing, charts, maps, pictures; '
        'f = drawing.figure(2); f.subplots(); drawing.encoded(f); assert "matplotlib.pyplot" not in sys.modules'
    )
    environment = {name: value for name, value in os.environ.items() if name not in ('DISPLAY', 'MPLBACKEND')}
    subprocess.run([sys.executable, '-c', code], check=True, env={**environment, 'MPLBACKEND': 'TkAgg'})
