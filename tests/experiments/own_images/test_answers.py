"""Answers in the terminal and in files, accuracy and confusion matrix."""

import csv

import numpy as np
import pytest

from experiments.own_images import answers, confusion


def test_no_name_is_a_spreadsheet_formula():
    names = ['=cmd|"/C calc"!A0', '+1', '-1', '@SUM(1)', '\t=1', '\r=1', 'a-b=c', '\x1b[31m']
    shared = {'predicted': '', 'unknown': False, 'distance': -1}
    found = [{**shared, 'file': name, 'best': [[name, 1]], 'true_class': name} for name in names]
    rows = list(csv.reader(answers.as_csv(found).splitlines()))[1:]
    escaped = ['\'=cmd|"/C calc"!A0', "'+1", "'-1", "'@SUM(1)", r'\t=1', r'\r=1', 'a-b=c', r'\x1b[31m']
    assert [row[0] for row in rows] == [row[4] for row in rows] == [row[-1] for row in rows] == escaped
    assert {row[3] for row in rows} == {'-1'}  # a number


def test_accuracy_and_confusion_matrix_by_hand():
    found = [
        {'true_class': 'unknown', 'best': [['unknown', 0.9]], 'unknown': False},  # a class may have this name
        {'true_class': 'unknown', 'best': [['unknown', 0.9]], 'unknown': True},
        {'true_class': 'b', 'best': [['unknown', 0.9]], 'unknown': False},
        {'true_class': 'elsewhere', 'best': [['b', 0.9]], 'unknown': True},
    ]
    np.testing.assert_array_equal(confusion.matrix(found, ('b', 'unknown')), [[0, 1, 0], [0, 1, 1]])
    summary = answers.summarize(found, ('b', 'unknown'))
    expected = {'queries': 3, 'accuracy': 200 / 3, 'accuracy_with_rejection': 100 / 3, 'false_rejections': 100 / 3}
    expected |= {'unseen': 1, 'unseen_rejected': 100}
    expected = {name: pytest.approx(value) for name, value in expected.items()}
    assert summary == expected | {'unseen_classes': ['elsewhere']}
    assert answers.summary_lines(summary, found)[1].endswith(', 100.0 % of 1 from other classes (first: elsewhere)')
    (line,) = answers.summary_lines({}, found)
    assert line.startswith('rejected as unknown: 2 of 4')
