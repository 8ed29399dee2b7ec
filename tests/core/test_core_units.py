"""Which part of a value an address means, against numpy's own indexing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import intus
from intus.core.units import Part, index, split, unit_axis

units = st.one_of(
    st.integers(-4, 3),
    st.builds(slice, st.none() | st.integers(-4, 4), st.none() | st.integers(-4, 4)),
)


def written(part):
    def one(unit):
        if isinstance(unit, int):
            return str(unit)
        return f"{'' if unit.start is None else unit.start}:{'' if unit.stop is None else unit.stop}"

    return f"[{','.join(map(one, part.units))}{'' if part.axis is None else f'@{part.axis}'}]"


parts = st.lists(
    st.builds(Part, st.lists(units, min_size=1, max_size=3).map(tuple), st.integers(-3, 2)),
    max_size=3,
    unique_by=lambda part: part.axis % 3,
)


@given(parts)
def test_what_is_written_is_what_is_read(wanted):
    assert split("features.6:2" + "".join(map(written, wanted))) == ("features.6:2", wanted)


@given(parts)
def test_an_index_takes_what_numpy_takes(wanted):
    array = np.arange(4 * 4 * 4).reshape(4, 4, 4)
    lists = [list(range(4))] * 3
    for part in wanted:
        lists[part.axis % 3] = [
            n for u in part.units for n in (np.arange(4)[u] if isinstance(u, slice) else [u])
        ]
    found = index(array.shape, wanted, 0, "x")
    ours = [np.arange(4)[one] for one in found]
    expected = array[np.ix_(*lists)]
    assert np.array_equal(array[np.ix_(*(np.atleast_1d(one) for one in ours))], expected)


@pytest.mark.parametrize("text", ["a[", "a[x]", "a[1][", "a[1@x]", "a[]", "a]1["])
def test_what_is_no_unit_is_refused(text):
    with pytest.raises(ValueError, match=r"Write|write"):
        split(text)


def test_a_bracket_in_a_name_is_escaped():
    assert split(r"blocks.a\[0\][3]") == (r"blocks.a\[0\]", [Part((3,), None)])


class Speech(nn.Module):
    """Convolutions along time, then a transformer's way of lying."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 6, 3), nn.BatchNorm1d(6)
        self.up, self.fc = nn.ConvTranspose1d(6, 6, 3), nn.Linear(6, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))) * 2
        x = torch.max_pool1d(self.up(x), 2)
        return torch.tanh(self.fc(x.transpose(1, 2)))


@pytest.mark.parametrize(
    ("name", "axis"),
    [("conv", 1), ("norm", 1), ("relu_1", 1), ("mul_1", 1), ("up", 1), ("max_pool1d_1", 1), ("fc", 2),
     ("tanh_1", 2), ("transpose_1", 2)],
)  # fmt: skip
def test_the_operation_tells_the_axis(name, axis):
    graph = intus.trace(Speech().eval(), torch.randn(2, 1, 20)).graph
    assert unit_axis(graph, graph.rows(name)[0]) == axis


def test_without_a_batch_and_with_four_axes():
    conv = intus.trace(nn.Conv2d(3, 4, 2), torch.randn(3, 5, 5)).graph
    assert unit_axis(conv, conv.rows("conv2d_1")[0]) == 0
    linear = intus.trace(nn.Linear(3, 4), torch.randn(2, 5, 5, 3)).graph
    assert unit_axis(linear, linear.rows("linear_1")[0]) == 3
    heads = intus.trace(lambda x: x @ x, torch.randn(2, 4, 5, 5)).graph
    assert unit_axis(heads, heads.rows("matmul_1")[0]) == 1
