"""Sums of rows on a model's device: equal to those in float64 by numpy, and the scores to a server's."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from intus.backends.row_sums import RowPlan
from intus.backends.torch import row_sums as module
from intus.backends.torch.row_sums import begin_sums, row_sums
from intus.core.projection import PROJECTED, summarize
from intus.core.record import Record
from intus.core.sketch import UNITS, dense_sketch, sparse_sketch
from intus.scores import Scorer
from intus.scores.statistics.sent import KnownRows

SCORES = ["linear_f1", "lda_f1", "linear_accuracy", "participation_ratio", "effective_rank"]
TALLIES = ["mean", "mean_abs", "std", "norm", "min", "max", "sparsity", "dead", "nonfinite"]


def planted(kind, rows=6000, features=96):
    """Return rows of five classes of 0.5 to 85 %, hard to compute with as ``kind`` says, and classes."""
    rng = np.random.default_rng(1)
    y = rng.choice(5, rows, p=[0.85, 0.08, 0.04, 0.025, 0.005])
    x = rng.normal(size=(rows, features))
    x[:, :5] += 2 * np.eye(5)[y]
    if "offset" in kind:
        x += 1000
    if "collinear" in kind:
        x[:, 48:] = x[:, :48] + 1e-6 * x[:, 48:]
    if "outliers" in kind:
        x[:, -4:] *= 1000
    if "scales" in kind:
        x *= 10.0 ** np.linspace(-4, 4, features)
    tensor = torch.tensor(x, dtype=torch.bfloat16 if "bf16" in kind else torch.float32)
    return tensor, y


def plan_of(known, **more):
    return RowPlan(
        kept=known.kept, products=known.masks, classes=known.classes, **{"positions": False} | more
    )


def scored(tensor, known, names, **plan):
    rows, items, statistics = known.packed(row_sums(tensor, plan_of(known, **plan), 0))
    scorer = Scorer(names)
    scorer.receive([Record(rows, "fc", items=items, statistics=statistics)])
    return {(one.score, one.target): (one.value, one.n) for one in scorer.result()}


@pytest.mark.parametrize(
    "kind", ["plain", "offset", "bf16", "bf16 offset", "outliers", "scales", "collinear"]
)
@pytest.mark.parametrize("rows", [6000, 8000])
def test_scores_are_those_of_a_server(kind, rows):
    """With more than 6,000 rows, scores that read all rows are compared on what they share with a server."""
    tensor, y = planted(kind, rows)
    labels, items = {"class": y}, np.arange(rows)
    server = Scorer([*SCORES, *TALLIES])
    server.update(tensor.float().numpy(), labels, items)
    wanted = {(one.score, one.target): (one.value, one.n) for one in server.result()}
    found = scored(tensor, KnownRows(items, labels), [*SCORES, *TALLIES])
    assert found.keys() == wanted.keys()
    every = rows <= 6000
    for key, (value, n) in wanted.items():
        if key[0] in TALLIES:
            assert found[key] == (pytest.approx(value, rel=1e-5, abs=1e-6), n), key
        elif key[0] == "lda_f1" or (key[0] in SCORES[:3] and every):
            assert found[key] == (pytest.approx(value, abs=1e-3), n), key
        elif every:
            assert found[key][0] == pytest.approx(value, rel=2e-3), key


@pytest.mark.parametrize("features", [700, 1500])
@pytest.mark.parametrize("sketch", ["sparse", "dense"])
def test_sums_are_those_of_numpy(features, sketch):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(5000, features)) * 3 + 1000).astype(np.float32)
    x[7, 3], x[:, 5] = np.inf, 0
    held, codes = rng.random(5000) < 0.25, rng.integers(-1, 4, 5000)
    plan = RowPlan(False, np.arange(0, 5000, 7), (~held, ~held & (codes >= 0)), ((codes, 4),))
    found = row_sums(torch.tensor(x), plan, 0, sketch)
    matrix = np.eye(features)
    if features > PROJECTED and sketch == "dense":
        matrix = dense_sketch(0, features).astype(np.float64)
    elif features > PROJECTED:
        matrix = np.zeros((features, PROJECTED))
        np.put_along_axis(matrix, *sparse_sketch(0, features), axis=1)
    finite = np.isfinite(x).all(axis=1)
    z = np.where(finite[:, None], x, 0).astype(np.float64) @ matrix - found.shift
    assert np.abs(z[finite].mean(axis=0)).max() < 1e-2
    kept = plan.kept[finite[plan.kept]]
    assert len(kept) == len(plan.kept) - 1
    np.testing.assert_allclose(found.kept, z[kept], atol=2e-3)
    for mask, products in zip(plan.products, found.products, strict=True):
        some = z[mask & finite]
        assert products.n == len(some)
        np.testing.assert_allclose(products.gram, some.T @ some, atol=2e-6 * np.abs(products.gram).max())
        np.testing.assert_allclose(products.total, some.sum(axis=0), atol=0.05)
    for code in range(4):
        rows = ~held & (codes == code) & finite
        assert found.classes[0].counts[code] == rows.sum()
        np.testing.assert_allclose(found.classes[0].totals[code], z[rows].sum(axis=0), atol=0.1)
    assert found.alive.tolist() == [feature != 5 for feature in range(features)]
    np.testing.assert_allclose(found.summary[finite], summarize(x)[finite], rtol=1e-4, atol=1e-3)
    assert found.summary[7, -1] == 1


def test_positions_and_batch_axis():
    x = torch.randn(6, 10, 8)
    plan = RowPlan(True, np.arange(60))
    rows = row_sums(x, plan, 1)
    np.testing.assert_allclose(rows.kept + rows.shift, x.transpose(0, 1).reshape(60, 8), rtol=1e-5, atol=1e-6)
    whole = row_sums(x, RowPlan(False, np.arange(6)), 0)
    np.testing.assert_allclose(whole.kept + whole.shift, x.reshape(6, 80), rtol=1e-5, atol=1e-6)


def test_training_is_not_touched():
    """Sums need no gradients, draw no random numbers, warn of nothing and ignore autocast."""
    x = torch.randn(7000, 1200, requires_grad=True)
    known = KnownRows(np.arange(7000), {"class": np.arange(7000) % 3})
    state = torch.get_rng_state()
    plain = row_sums(x, plan_of(known), 0)
    with warnings.catch_warnings(), torch.autocast("cpu", dtype=torch.bfloat16):
        warnings.simplefilter("error")
        cast = row_sums(x * 2, plan_of(known), 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert x.grad is None
    np.testing.assert_allclose(cast.products[0].gram, 4 * plain.products[0].gram, rtol=1e-5, atol=0.1)


@pytest.mark.long
def test_best_units_are_kept_beside_the_sketch():
    """Two of 2,048 units tell the class: more of it is read from the layer once they are kept."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 5000, p=[0.6, 0.2, 0.2])
    x = rng.normal(size=(5000, 2048)).astype(np.float32)
    x[:, [77, 1500]] += 3.0 * np.eye(3)[y][:, 1:]
    labels, items, tensor = {"class": y}, np.arange(5000), torch.tensor(x)
    known = KnownRows(items, labels)
    first = row_sums(tensor, plan_of(known, chosen_by=known.trained), 0)
    assert {77, 1500} <= set(first.best.tolist())
    assert len(first.best) == UNITS
    names = ["linear_f1", "lda_f1", "participation_ratio", "kmeans_ami", "dead"]
    sketched = scored(tensor, known, names)
    beside = scored(tensor, known, names, units=first.best)
    for score, least in (("linear_f1", 0.75), ("lda_f1", 0.8)):
        assert sketched[score, "class"][0] < 0.7
        assert beside[score, "class"][0] > least
    for name in ("participation_ratio", "kmeans_ami", "dead"):  # of the sketch alone
        key = next(key for key in sketched if key[0] == name)
        assert beside[key] == pytest.approx(sketched[key], nan_ok=True)


def test_units_are_chosen_on_trained_rows_alone():
    """A unit that tells the class of held-out rows only is not kept."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 3000)
    known = KnownRows(np.arange(3000), {"class": y})
    held = known.trained[0][0] < 0
    x = rng.normal(size=(3000, 1200)).astype(np.float32)
    x[:, 5] = np.where(held, 10 * y, x[:, 5])
    x[:, 6] = np.where(held, x[:, 6], 10 * y)
    best = row_sums(torch.tensor(x), plan_of(known, chosen_by=known.trained), 0).best.tolist()
    assert 6 in best
    assert 5 not in best


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_precision_of_the_training_is_not_that_of_sums(dtype):
    """Trainings allow products of few digits; sums have all, and the setting is restored."""
    x = (torch.randn(5000, 1500, generator=torch.Generator().manual_seed(0)) + 3).to(dtype)
    plan = RowPlan(False, np.arange(0, 5000, 9), (np.arange(5000) % 4 > 0,))
    exact = row_sums(x, plan, 0, "dense")
    torch.set_float32_matmul_precision("medium")
    try:
        found = row_sums(x, plan, 0, "dense")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert np.array_equal(found.products[0].gram, exact.products[0].gram)
    assert np.array_equal(found.kept, exact.kept)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "offset", "bf16", "outliers", "scales", "infinite"])
@pytest.mark.parametrize(("rows", "features"), [(3000, 90), (7000, 1200)])
def test_what_a_device_packs_is_what_numpy_packs(kind, rows, features):
    tensor, y = planted(kind, rows, features)
    if kind == "infinite":
        tensor[5, 3], tensor[17, :], tensor[100, 8] = np.inf, np.nan, -np.inf
    known = KnownRows(np.arange(rows) // 3, {"class": y})
    plan = plan_of(known, chosen_by=known.trained)
    wanted, items, by_numpy = known.packed(row_sums(tensor, plan, 0))
    found, of_rows, packed = known.packed(
        row_sums(tensor, replace(plan, groups=known.groups, prepared={}), 0)
    )
    assert np.array_equal(of_rows, items)
    assert packed.facts == by_numpy.facts
    assert packed.arrays.keys() == by_numpy.arrays.keys()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=8)  # of 2 ** 13
    assert (found == wanted).mean() > 0.999
    for name, array in by_numpy.arrays.items():
        assert packed.arrays[name].dtype == array.dtype, name
        size = np.abs(array).max(initial=0).astype(float)
        np.testing.assert_allclose(packed.arrays[name], array, rtol=1e-5, atol=1e-6 * size, err_msg=name)


def test_tensor_may_change_once_its_sums_have_begun():
    x = torch.randn(7000, 40)
    known = KnownRows(np.arange(7000), {"class": np.arange(7000) % 3})
    plan = plan_of(known, groups=known.groups)
    wanted = row_sums(x, plan, 0)
    late = begin_sums(x, plan, 0)
    x.zero_()
    found = late.result()
    assert np.array_equal(found.kept, wanted.kept)
    assert np.array_equal(found.products[0].gram, wanted.products[0].gram)


def test_device_is_asked_once():
    """The processor waits for one answer of the device, however many rows there are."""
    tensor, y = planted("bf16", 9000, 1200)
    known = KnownRows(np.arange(9000), {"class": y, "other": y % 2})
    plan = plan_of(known, chosen_by=known.trained, groups=known.groups)
    begin_sums(tensor, plan, 0)  # copies the plan to the device
    with Asked() as asked:
        begin_sums(tensor, plan, 0)
    assert asked.questions == ["aten._local_scalar_dense.default"]


class Asked(TorchDispatchMode):
    """Lists the operations whose result the processor must wait for."""

    WAIT = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal.default")

    def __init__(self):
        super().__init__()
        self.questions = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        by_mask = (
            "aten.index" in name
            and any(
                one is not None and one.dtype == torch.bool for one in args[1] if not isinstance(args[1], int)
            )
            if "index.Tensor" in name or "index_put" in name
            else False
        )
        if by_mask or any(one in name for one in self.WAIT):
            self.questions.append(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("offset", [0, 100])
def test_units_are_chosen_of_rows_that_are_not_centred(offset, monkeypatch):
    """A GPU multiplies half precision as it is, and chooses what is chosen of centred rows."""
    tensor, y = planted("bf16 offset" if offset else "bf16", 3000, 1300)
    tensor = (tensor.float() - (1000 - offset) * bool(offset)).bfloat16()
    tensor[11, 3] = np.inf
    known = KnownRows(np.arange(3000), {"class": y, "other": y % 2})
    centred = row_sums(tensor, plan_of(known, chosen_by=known.trained), 0, "dense").best
    monkeypatch.setattr(module, "_adds_halves", lambda device: True)
    monkeypatch.setattr(module, "_times", lambda left, right: left.float() @ right.float())
    raw = row_sums(tensor, plan_of(known, chosen_by=known.trained), 0, "dense").best
    assert {0, 1, 2, 3, 4} <= {*raw.tolist()}
    assert len({*raw.tolist()} & {*centred.tolist()}) >= UNITS - 2
