"""CKA of two layers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from score_help import fed

from intus.scores.comparisons.similarity import alignment, cka, hsics, pack, shared, sketch, unpack


def looped_hsic(a: np.ndarray, b: np.ndarray) -> float:
    """Compute HSIC as a sum over all quadruples of different rows (Song et al. 2012, equation 4)."""
    n, total = len(a), 0.0
    for i in range(n):
        for j in set(range(n)) - {i}:
            for q in set(range(n)) - {i, j}:
                for r in set(range(n)) - {i, j, q}:
                    total += a[i, j] * (b[i, j] + b[q, r] - 2 * b[i, q])
    return total / (n * (n - 1) * (n - 2) * (n - 3))


def test_hsic_equals_the_sum_over_all_quadruples():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    y[:, 0] += x[:, 0]
    a, b = x @ x.T, y @ y.T
    kept = np.ones((9, 3))
    kept[[0, 4], 1] = kept[3:, 2] = 0
    some = np.flatnonzero(kept[:, 1])
    wanted = [looped_hsic(a, b), looped_hsic(a[np.ix_(some, some)], b[np.ix_(some, some)]), 0]
    assert hsics(a, b, kept) == pytest.approx(wanted)


def test_cka_of_rotated_and_unrelated_layers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 20))
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    assert cka(x @ x.T, 7 * (x @ turn) @ (x @ turn).T) == pytest.approx(1)
    wide = rng.normal(size=(300, 4000))  # the biased estimator gives 0.25 here
    assert abs(cka(x @ x.T, wide @ wide.T)) < 0.05
    assert np.isnan(cka(np.ones((5, 5)), np.ones((5, 5))))
    assert np.isnan(cka(np.eye(3), np.eye(3)))


def test_sketch_items_do_not_depend_on_order(digits):
    x, y = digits
    order = np.random.default_rng(0).permutation(len(x))
    one = sketch(fed("linear_f1", x, {"y": y}, np.arange(len(x))).statistics)
    other = sketch(fed("linear_f1", (x * 3)[order], {"y": y[order]}, order).statistics)
    assert sorted(one.item) == sorted(other.item)
    assert len(one.item) == 256
    value, low, high, base, n = alignment(one, other)
    assert value == pytest.approx(1, abs=1e-5)
    assert np.isnan([low, high]).all()  # equal layers have no spread between groups but rounding
    assert abs(base) < 0.05
    assert n == 256


def test_alignment_uses_shared_rows_only(digits):
    x, y = digits
    one = sketch(fed("linear_f1", x[:60], {"y": y[:60]}, np.arange(60)).statistics)
    other = sketch(fed("linear_f1", x[40:100], {"y": y[40:100]}, np.arange(40, 100)).statistics)
    left, right = shared(one, other)
    assert sorted(left.item) == sorted(right.item) == list(range(40, 60))
    assert alignment(one, other)[4] == 20
    apart = sketch(fed("linear_f1", x[:9], {"y": y[:9]}, np.arange(900, 909)).statistics)
    assert np.isnan(alignment(one, apart)[0])


def test_cka_interval_coverage(digits):
    x = digits[0]
    noisy = x + np.random.default_rng(0).normal(0, 6, x.shape)
    centred = [a - a.mean(axis=0) for a in (x.astype(float), noisy)]
    whole = cka(*(a @ a.T for a in centred))
    sketches = [sketch(fed("linear_f1", a, {"y": digits[1]}).statistics) for a in (x, noisy)]
    value, low, high, _, _ = alignment(*sketches)
    assert low < whole < high
    assert value == pytest.approx(whole, abs=0.06)


def test_sketches_that_an_earlier_version_kept_are_read_with_a_note(digits):
    """Leave out whether rows were projected, which it did not keep."""
    made = sketch(fed("linear_f1", digits[0][:50], {"y": digits[1][:50]}).statistics)
    kept = pack(made, "text")
    assert unpack(kept)[0].projected == ""
    with np.load(io.BytesIO(kept)) as parts:
        old = {name: parts[name] for name in parts if name != "projected"}
    out = io.BytesIO()
    np.savez(out, **old)
    found, text = unpack(out.getvalue())
    assert text == "text"
    assert (found.gram == made.gram).all()
    assert (
        found.projected == "perhaps of projected features: its rows were kept by an earlier version of intus"
    )
