"""Sums of rows on a GPU: those of float64 on the CPU, and the scores of a server from all rows."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from cuda_models import DEVICE, ON_GPU

from intus.backends.row_sums import RowPlan
from intus.backends.torch import to_host
from intus.backends.torch.captured_tensor import to_projected
from intus.backends.torch.row_sums import begin_sums, row_sums
from intus.core.projection import PROJECTED, project, summarize
from intus.core.record import Record
from intus.core.sketch import UNITS, dense_sketch
from intus.scores import Scorer
from intus.scores.statistics.sent import KnownRows

pytestmark = pytest.mark.cuda
SCORES = ["linear_f1", "lda_f1", "linear_accuracy", "participation_ratio", "effective_rank"]
TALLIES = ["mean", "mean_abs", "std", "norm", "min", "max", "sparsity", "dead", "nonfinite"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def planted(features, dtype, offset=0.0, rows=6000):
    rng = np.random.default_rng(1)
    y = rng.choice(5, rows, p=[0.7, 0.15, 0.08, 0.05, 0.02])
    x = rng.normal(size=(rows, features))
    x[:, :5] += 2 * np.eye(5)[y]
    x[:, 7] = 0
    return torch.tensor(x + offset * (np.arange(features) != 7)).to(dtype), y


@pytest.fixture(params=["highest", "high"])
def precision(request):
    """The caller's precision of float32, which sums must not depend on."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    assert torch.get_float32_matmul_precision() == request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_are_those_of_a_server_from_rows(dtype, offset, precision):
    tensor, y = planted(96, dtype, offset)
    items, labels = np.arange(len(y)), {"class": y}
    server = Scorer([*SCORES, *TALLIES])
    server.update(tensor.double().numpy(), labels, items)
    wanted = {(one.score, one.target): one.value for one in server.result()}
    known = KnownRows(items, labels)
    plan = RowPlan(False, known.kept, known.masks, known.classes)
    rows, of_rows, statistics = known.packed(row_sums(tensor.to(DEVICE), plan, 0))
    found = Scorer([*SCORES, *TALLIES])
    found.receive([Record(rows, "fc", items=of_rows, statistics=statistics)])
    for one in found.result():
        tolerance = (1e-5 if dtype.itemsize > 2 else 1e-4) if one.score in TALLIES else 1e-3
        assert one.value == pytest.approx(wanted[one.score, one.target], rel=tolerance, abs=tolerance), (
            one.score
        )


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", [300, 3000])
def test_sums_are_those_of_float64(dtype, offset, features, precision):
    """Sums of a wide layer are those of its dense sketch, beside single units."""
    tensor, y = planted(features, dtype, offset, 9000)
    held = np.random.default_rng(0).random(9000) < 0.25
    tensor[11, 3] = np.inf
    units = np.sort(np.random.default_rng(2).permutation(features)[:UNITS])
    kept = np.arange(0, 9000, 7)
    plan = RowPlan(False, kept, (~held,), ((y, 5),), units=units, chosen_by=((y, 5),))
    found = row_sums(tensor.to(DEVICE), plan, 0, "dense")
    x = tensor.double().numpy()
    finite = np.isfinite(x).all(axis=1)
    exact = np.where(finite[:, None], x, 0)
    z = exact @ dense_sketch(0, features).astype(np.float64) if features > PROJECTED else exact
    z = np.concatenate([z, exact[:, units]], 1) if features > PROJECTED else z
    shift = z[finite].mean(axis=0)
    assert found.shift == pytest.approx(shift, rel=1e-6, abs=1e-3 * (1 + offset / 100))
    z = z - found.shift
    scale = z[finite].std(axis=0).max()
    # Of rows in half precision what is summed is below their own rounding.
    size = np.abs(exact).max() * 2e-7 * features**0.5
    np.testing.assert_allclose(found.kept, z[kept[finite[kept]]], atol=2e-6 * scale + 4 * size)
    (products,) = found.products
    some = z[~held & finite]
    wanted = some.T @ some
    assert products.n == len(some)
    np.testing.assert_allclose(
        products.gram, wanted, atol=2e-6 * np.abs(wanted).max() + 4 * size * scale * len(some) ** 0.5
    )
    of_class = np.stack([z[(y == code) & ~held & finite].sum(0) for code in range(5)])
    np.testing.assert_allclose(
        found.classes[0].totals, of_class, atol=1e-5 * np.abs(of_class).max() + 4 * size * 50
    )
    assert found.alive.tolist() == [feature != 7 for feature in range(features)]
    summary = summarize(x.astype(np.float32))[finite]
    # A variance beside a mean of a thousand is what numpy computes in float64.
    summary[:, 2] = x[finite].var(axis=1)
    np.testing.assert_allclose(found.summary[finite], summary, rtol=1e-4, atol=1e-3)
    assert found.summary[11, -1] == 1
    if features > PROJECTED + UNITS:
        assert {0, 1, 2, 3, 4} & set(found.best.tolist())


def test_sums_repeat_and_leave_nothing_changed():
    tensor, y = planted(1500, torch.bfloat16, rows=8000)
    tensor = tensor.to(DEVICE).requires_grad_()
    known = KnownRows(np.arange(8000), {"class": y})
    plan = RowPlan(False, known.kept, known.masks, known.classes, 0, np.arange(UNITS), known.trained)
    state = torch.cuda.get_rng_state() if ON_GPU else torch.get_rng_state()
    with torch.autocast(DEVICE, dtype=torch.float16):
        one = row_sums(tensor, plan, 0)
    torch.use_deterministic_algorithms(True)
    try:
        other = row_sums(tensor, plan, 0)
    finally:
        torch.use_deterministic_algorithms(False)
    assert np.array_equal(one.products[0].gram, other.products[0].gram)
    assert np.array_equal(one.kept, other.kept)
    assert np.array_equal(one.best, other.best)
    assert one.sketch == ("dense" if ON_GPU else "sparse")
    assert torch.equal(state, torch.cuda.get_rng_state() if ON_GPU else torch.get_rng_state())
    assert tensor.grad is None


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_projections_are_those_of_numpy(dtype):
    tensor, _ = planted(5000, dtype, 3.0, rows=50)
    rows, summary = to_projected(tensor.to(DEVICE))
    x = tensor.float().numpy()
    np.testing.assert_allclose(rows, project(x), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(summary, summarize(x), rtol=1e-4, atol=1e-4)


@pytest.fixture
def made():
    """Return the plan of a probe set and its labels, with all that is sent."""

    def make(rows, features, dtype=torch.bfloat16):
        tensor, y = planted(features, dtype, rows=rows)
        known = KnownRows(np.arange(rows), {"class": y, "other": y % 2})
        plan = RowPlan(
            *(False, known.kept, known.masks, known.classes),
            chosen_by=known.trained,
            groups=known.groups,
        )
        return tensor.to(DEVICE), known, plan

    return make


@pytest.mark.skipif(not ON_GPU, reason="only a GPU runs apart from the processor")
@pytest.mark.parametrize(("rows", "features", "waits"), [(7000, 1200, 1), (7000, 90, 0), (500, 1200, 0)])
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_processor_waits_for_the_device_at_most_once(made, rows, features, waits, dtype):
    """A large tensor is asked whether it is finite; nothing else waits, nor the copies of the results."""
    tensor, _, plan = made(rows, features, dtype)
    first = begin_sums(tensor, plan, 0)  # copies the plan and the sketch to the device
    first.result()
    plan = replace(plan, units=first.best) if len(first.best) else plan
    begin_sums(tensor, plan, 0).result()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")  # which warns itself that it may miss some
        try:
            late = begin_sums(tensor, plan, 0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len([one for one in found if "called a synchronizing" in str(one.message)]) == waits
    assert len(late.result().kept)


@pytest.mark.parametrize("pinned", [to_host._MOST_PINNED, 0])
@pytest.mark.parametrize(("rows", "features"), [(7000, 1200), (500, 90)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_device_packs_is_what_numpy_packs(made, rows, features, dtype, pinned, monkeypatch):
    """Also if the tensor changes as soon as the sums have begun, and without pinned memory."""
    monkeypatch.setattr(to_host, "_MOST_PINNED", pinned)
    tensor, known, plan = made(rows, features, dtype)
    tensor[11, 3], tensor[30, 4] = torch.inf, torch.nan
    wanted, items, by_numpy = known.packed(row_sums(tensor, replace(plan, groups=None, prepared={}), 0))
    late = begin_sums(tensor, plan, 0)
    tensor.zero_()
    found, of_rows, packed = known.packed(late.result())
    assert np.array_equal(of_rows, items)
    assert packed.facts == by_numpy.facts
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=8)  # of 2 ** 13
    for name, array in by_numpy.arrays.items():
        size = np.abs(array).max(initial=0).astype(float)
        np.testing.assert_allclose(packed.arrays[name], array, rtol=1e-5, atol=1e-6 * size, err_msg=name)
