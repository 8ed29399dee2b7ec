"""Summaries of saved values, against numpy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.tracing.results.value_summary import BINS, summarize
from intus.tracing.run import trace

ANY = st.one_of(
    st.floats(-1e6, 1e6, width=32), st.sampled_from([0.0, float("nan"), float("inf"), float("-inf")])
)


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=6), elements=ANY))
def test_summarize_equals_numpy(array: np.ndarray) -> None:
    columns = summarize({7: torch.from_numpy(array)})
    kept = array[np.isfinite(array)].astype(np.float64)
    assert columns["row"] == [7]
    assert columns["nan"] == [int(np.isnan(array).sum())]
    assert columns["inf"] == [int(np.isinf(array).sum())]
    if not kept.size:
        assert columns["mean"] == columns["low"] == columns["zero"] == [None]
        return
    scale = 1 + float(np.abs(kept).max())
    for name, wanted in (
        ("mean", kept.mean()),
        ("std", kept.std()),
        ("low", kept.min()),
        ("high", kept.max()),
    ):
        assert abs(columns[name][0] - wanted) <= 1e-5 * scale
    assert abs(columns["zero"][0] - (kept == 0).mean()) < 1e-5
    counts = columns["histogram"][0]
    assert sum(counts) == (kept.size if kept.min() < kept.max() else 0)
    assert len(counts) in (0, BINS)


def test_summarize_of_many_blocks_equals_numpy() -> None:
    value = torch.randn(3, 257, 129, generator=torch.Generator().manual_seed(0)).transpose(0, 2) + 1e4
    value[5, 6, :] = float("nan")
    value[7, 8, 0] = float("inf")
    value[9] = 0
    columns = summarize({0: value})
    kept = value[value.isfinite()].double().numpy()
    assert (columns["nan"], columns["inf"]) == ([3], [1])
    assert np.isclose(columns["mean"][0], kept.mean(), rtol=1e-5)
    assert np.isclose(columns["std"][0], kept.std(), rtol=1e-5)
    assert np.isclose(columns["zero"][0], (kept == 0).mean(), rtol=1e-5)
    assert columns["histogram"][0] == np.histogram(kept, BINS)[0].tolist()


def test_summarize_at_dtype_limits() -> None:
    limit = torch.finfo(torch.float64).max
    large = torch.tensor([-limit, 0.0, limit], dtype=torch.float64)
    columns = summarize({0: large, 1: torch.tensor([0.0, 5e-324], dtype=torch.float64)})
    assert columns["std"] == [None, 0]
    assert [sum(counts) for counts in columns["histogram"]] == [3, 2]


def test_summarize_other_dtypes_and_values_without_numbers() -> None:
    values = {
        0: torch.tensor([True, False]),
        1: torch.tensor([3 + 4j]),
        2: torch.zeros(0),
        3: torch.zeros(2, device="meta"),
        4: torch.tensor([1, 2, 3]),
        5: torch.ones(2, dtype=torch.bfloat16),
    }
    columns = summarize(values)
    assert columns["row"] == [0, 1, 4, 5]
    assert columns["mean"] == [0.5, 5.0, 2.0, 1.0]


def test_show_does_not_change_values() -> None:
    t = trace(torch.nn.Linear(3, 2), torch.ones(1, 3))
    before = {row: value.clone() for row, value in t.values.items()}
    t.show()
    assert all(torch.equal(before[row], value) for row, value in t.values.items())
