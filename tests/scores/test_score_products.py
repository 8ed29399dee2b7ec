"""Sums of rows by label, compared with a product in float64, and the rows that many targets share."""

from __future__ import annotations

import numpy as np
import pytest
from score_help import fed

from intus.scores.probes import labelled
from intus.scores.statistics.products import weighted_sums


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("dtype", [bool, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_weighted_sums_of_runs(share, dtype, order):
    rng = np.random.default_rng(0)
    labels = np.asarray(rng.integers(1, 4, (300, 7)) * (rng.random((300, 7)) < share), dtype, order=order)
    x, starts = rng.normal(size=(300, 5)), np.array([0, 40, 41, 250])
    runs = [slice(*pair) for pair in ((0, 40), (40, 41), (41, 250), (250, 300))]
    want = np.stack([labels[run].T.astype(np.float64) @ x[run] for run in runs])
    np.testing.assert_allclose(weighted_sums(labels, x, starts), want, rtol=1e-12, atol=1e-12)
    single = weighted_sums(labels, x.astype(np.float32), starts)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, want, atol=1e-4)


def test_targets_with_labels_for_the_same_rows_share_them(monkeypatch):
    """A copy for each of 190 targets took 15 GB."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(labelled, "MOST_ROWS", 100)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    y = rng.integers(0, 2, 400)
    some = np.where(np.arange(400) % 4 == 0, None, y)
    statistics = fed("linear_f1", x, {"a": y, "b": 1 - y, "c": some}).statistics
    (_, of_a, a), (_, of_b, b), (places, of_c, c) = (
        labelled.labelled_rows(statistics, name) for name in "abc"
    )
    assert of_a is of_b
    assert len(of_a) == len(of_c) == 100
    assert (a == 1 - b).all()
    np.testing.assert_array_equal(of_c, x[places.item])
    np.testing.assert_array_equal(c, y[places.item])
    assert (places.item % 4 != 0).all()
