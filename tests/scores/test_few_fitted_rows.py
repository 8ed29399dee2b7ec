"""Classifiers fitted to few rows: the interval is of the held-out rows alone, so the note says it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from intus.core.findings import findings
from intus.core.notes import Facts
from intus.core.results import Results
from intus.scores import Scorer, get

DIGITS = load_digits()
NUMBERS = ("value", "low", "high", "baseline", "n", "note")


def results_of(rows, name="linear_f1"):
    scorer = Scorer([get(name).by_default()])
    scorer.update(DIGITS.data[rows], {"digit": DIGITS.target[rows]}, items=np.asarray(rows))
    return next(each for each in scorer.result() if each.score == name)


@pytest.mark.parametrize("name", ["linear_f1", "linear_accuracy", "lda_f1"])
def test_note_says_to_how_few_rows_a_classifier_was_fitted(name):
    """Before, digits had 0.3 [0.1, 0.6] without a word, where scikit-learn has 0.9 with all rows."""
    few, many = np.arange(32), np.arange(1000)
    result = results_of(few, name)
    assert Facts.of(result.note).few_fitted == len(few) - result.n
    assert f"fitted to {len(few) - result.n} rows, fewer than 10 per class" in result.note
    held = np.arange(1797) % 4 == 0
    fitted = LogisticRegression(max_iter=300).fit(DIGITS.data[~held] / 16, DIGITS.target[~held])
    truth = f1_score(DIGITS.target[held], fitted.predict(DIGITS.data[held] / 16), average="macro")
    assert result.value < 0.7 < 0.9 < truth
    enough = results_of(many, name)
    assert Facts.of(enough.note).few_fitted == 0
    assert enough.high > 0.9


@pytest.mark.parametrize("count", [24, 32, 60, 120, 200])
def test_note_is_there_below_ten_rows_per_class(count):
    result = results_of(np.arange(count))
    assert (Facts.of(result.note).few_fitted > 0) == (count - result.n < 100)


def test_nothing_is_found_from_few_fitted_rows():
    table = [
        {"address": "fc", "target": "digit", "score": "linear_f1", "epoch": epoch, "mode": "probe"}
        | {"value": value, "low": value - 0.05, "high": value + 0.05, "baseline": 0.1, "n": 8, "note": note}
        for note in (Facts(few_fitted=1024).note, "")
        for epoch, value in enumerate((0.1, 0.9, 0.9))
    ]
    assert findings(Results.from_rows(table[:3]), ["fc"]) == []
    assert [each.kind for each in findings(Results.from_rows(table[3:]), ["fc"])] == ["learned"]
