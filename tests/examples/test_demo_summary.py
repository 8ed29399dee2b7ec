"""The demo's sentences tell only what its scores show."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from intus.core.results import Results
from intus.demo.summary import sentences

UNITS = Results(
    {
        "target": ["upper_loop"] * 2,
        "address": ["features.3"] * 2,
        "unit": [1, 1],
        "epoch": [0.0, 6.0],
        "value": [0.1, 0.2],
        "baseline": [0.05, 0.05],
    }
)


def scores(values):
    """Return scores by (target, layer, epoch)."""
    keys = list(values)
    return Results(
        {
            "target": [key[0] for key in keys],
            "address": [key[1] for key in keys],
            "epoch": [float(key[2]) for key in keys],
            "score": ["linear_f1"] * len(keys),
            "value": list(values.values()),
            "low": [value - HALF for value in values.values()],
            "high": [value + HALF for value in values.values()],
            "baseline": [0.1] * len(keys),
        }
    )


#: Half of each interval.
HALF = 0.03
FULL = {
    ("digit", "features.0", 0): 0.94, ("digit", "features.0", 6): 0.944,
    ("digit", "classifier.3", 0): 0.6, ("digit", "classifier.3", 6): 0.9,
    ("ink above the middle", "features.0", 6): 0.9, ("ink above the middle", "classifier.3", 6): 0.7,
}  # fmt: skip


def test_change_is_told_if_intervals_show_it():
    task, ink, units = sentences(scores(FULL), UNITS, "91.8% of the unseen digits", 6)
    assert "on the last layer, classifier.3, rose from 0.60 to 0.90, and on the first layer" in task
    assert "features.0, did not change beyond its interval (0.94, then 0.94) (chance: 0.10)" in task
    assert "lost with depth" in ink
    assert "0.10 → 0.20" in units
    fallen = FULL | {("digit", "classifier.3", 6): 0.5}
    assert "fell from 0.60 to 0.50" in sentences(scores(fallen), UNITS, "", 6)[0]


@settings(max_examples=60)
@given(change=st.floats(-0.3, 0.3))
def test_change_within_intervals_is_none(change):
    """Before, the demo said that its first layer rose from 0.92 to 0.93, within its interval."""
    assume(abs(abs(change) - 2 * HALF) > 1e-6)
    planted = {
        ("digit", "features.0", 0): 0.6, ("digit", "features.0", 6): 0.6 + change,
        ("digit", "classifier.3", 0): 0.6, ("digit", "classifier.3", 6): 0.6,
        ("ink above the middle", "features.0", 6): 0.6,
        ("ink above the middle", "classifier.3", 6): 0.6 + change,
    }  # fmt: skip
    task, ink, _ = sentences(scores(planted), UNITS, "", 6)
    assert ("rose from" in task) == (change > 2 * HALF)
    assert ("fell from" in task) == (change < -2 * HALF)
    assert ("lost with depth" in ink) == (change < -2 * HALF)
    assert ("no loss beyond the intervals" in ink) == (change >= -2 * HALF)


@pytest.mark.parametrize(
    "missing", [{("digit", "classifier.3", 6)}, {key for key in FULL if key[2] == 6}, set(FULL)]
)
@pytest.mark.parametrize("absent", [True, False], ids=["no row", "no value"])
def test_missing_scores_are_named(missing, absent):
    """Before, a busy machine's demo said that its last layer, features.0, rose from 0.94 to 0.94."""
    left = {key: value for key, value in FULL.items() if key not in missing}
    values = left if absent else {key: left.get(key, math.nan) for key in FULL}
    task, ink, _ = sentences(scores(values), UNITS, "91.8% of the unseen digits", 6)
    assert "rose" not in task
    assert "missing on classifier.3 at epoch 6" in task.replace("classifier.3 at epoch 0, ", "")
    assert "91.8%" in task
    assert ("no score on" in ink) == (("ink above the middle", "features.0", 6) in missing)
