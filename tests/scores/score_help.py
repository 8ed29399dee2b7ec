"""Helpers for the tests of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from intus.scores import Scorer, ScoreResult


def read(scorer: Scorer, score: str, target: str = "", unit: int = -1) -> ScoreResult:
    """Return the single result of a score, target and unit."""
    found = [r for r in scorer.result() if (r.score, r.target, r.unit) == (score, target, unit)]
    assert len(found) == 1, found
    return found[0]


def fed(scores: Any, x: Any, labels: Any = None, items: Any = None, *, seed: int = 0) -> Scorer:
    """Return a scorer that was given all rows in one update."""
    scorer = Scorer(scores, seed=seed)
    scorer.update(x, labels, items)
    return scorer


def same(left: list[ScoreResult], right: list[ScoreResult], tolerance: float = 1e-9) -> None:
    """Check that two lists of results are equal, with NaN equal to NaN."""
    assert [r[:1] + r[2:4] + r[7:9] for r in left] == [r[:1] + r[2:4] + r[7:9] for r in right]
    for place in (1, 4, 5, 6, 9):
        a, b = (np.array([r[place] for r in side]) for side in (left, right))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
