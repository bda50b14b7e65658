"""Answers on the screen and in files."""

import csv

from experiments.reporting.predictions import predictions_as_csv, predictions_as_lines

ANSWER = {
    'file': '/somewhere/far/away/in/a/folder/of/photographs/bird_0001.jpg',
    'predicted': 'Black_footed_Albatross',
    'distance': 8.43,
    'best': [['Black_footed_Albatross', 0.98], ['Laysan_Albatross', 0.015], ['Sooty_Albatross', 0.005]],
}


def test_a_table_fits_the_screen():
    for columns in (79, 160):
        head, line, rest = predictions_as_lines([ANSWER] * 5, 1, columns)
        assert max(len(head), len(line)) <= columns and rest == '... and 4 more'
        assert line.index('8.43') == head.index('distance')
    assert 'bird_0001.jpg' in line and '98 %' in line and line.endswith('Sooty_Albatross 0 %')


def test_no_name_is_a_formula_in_a_spreadsheet():
    names = ['=cmd|"/C calc"!A0', '+1', '-1', '@SUM(1)', '\t=1', '\r=1', 'a-b=c', '\x1b[31m']
    answers = [{**ANSWER, 'file': name, 'best': [[name, 0.5]], 'class': name, 'distance': -1.0} for name in names]
    rows = list(csv.reader(predictions_as_csv(answers).splitlines()))[1:]
    escaped = ['\'=cmd|"/C calc"!A0', "'+1", "'-1", "'@SUM(1)", r'\t=1', r'\r=1', 'a-b=c', r'\x1b[31m']
    assert [row[0] for row in rows] == [row[3] for row in rows] == [row[-1] for row in rows] == escaped
    assert {row[2] for row in rows} == {'-1.0'}  # a number is one
