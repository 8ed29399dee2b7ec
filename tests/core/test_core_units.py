"""The unit axis and the index of units, compared with numpy's indexing and torch's operations."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import intus
from intus.core.address import UnitRange, Units
from intus.core.errors import AddressError, InputError
from intus.core.units import UnitAxes, index

ends = st.none() | st.integers(-4, 4)
units = st.integers(-4, 3) | st.builds(UnitRange, ends, ends, st.sampled_from([None, 1, 2, -1]))
brackets = st.lists(
    st.builds(Units, st.lists(units, min_size=1, max_size=3).map(tuple), st.integers(-3, 2)),
    max_size=3,
    unique_by=lambda part: part.axis % 3,
)


@given(brackets)
def test_index_selects_what_numpy_selects(wanted):
    array = np.arange(4 * 4 * 4).reshape(4, 4, 4)
    lists = [list(range(4))] * 3
    for part in wanted:
        lists[part.axis % 3] = [
            n for u in part.which for n in (np.arange(4)[slice(*u)] if isinstance(u, UnitRange) else [u])
        ]
    if not all(lists):
        with pytest.raises(AddressError, match="selects no unit"):
            index(array.shape, wanted, None, "x")
        return
    ours = [np.arange(4)[one] for one in index(array.shape, wanted, None, "x")]
    found = array[np.ix_(*(np.atleast_1d(one) for one in ours))]
    assert np.array_equal(found, array[np.ix_(*lists)])


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        ([Units((4,))], AddressError, "'x' is out of range: there are 4 units, counted from 0"),
        ([Units((-5,), 0)], AddressError, "2 units along axis 0"),
        ([Units((0,), 2)], AddressError, r"the value has 2 axes \(shape \(2, 4\)\), no axis 2"),
        ([Units((0,), 1), Units((1,), -1)], InputError, "selects along axis 1 twice"),
        ([Units((0,)), Units((1,), 1)], InputError, "selects along axis 1 twice"),
    ],
)
def test_index_refuses_nonexistent_units(wanted, error, text):
    with pytest.raises(error, match=text):
        index((2, 4), wanted, 1, "x")


def axis_of(forward, *inputs, name=-1):
    trace = intus.trace(forward, inputs)
    return UnitAxes(trace.graph).of(trace[name].row)


class Speech(nn.Module):
    """Convolutions over time, then features last."""

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
def test_unit_axis_of_speech_model(name, axis):
    assert axis_of(Speech().eval(), torch.randn(2, 1, 20), name=name) == axis


CONV = nn.Conv2d(3, 4, 2)
IMAGES = torch.randn(2, 3, 5, 5)


@pytest.mark.parametrize(
    ("forward", "axis"),
    [
        (lambda x: CONV(x), 1),
        (lambda x: CONV(x[0]), 0),  # without a batch
        (lambda x: CONV(x).permute(0, 2, 3, 1), 3),
        (lambda x: torch.permute(CONV(x), dims=(1, 0, 2, 3)), 0),
        (lambda x: nn.functional.gelu(CONV(x).permute((0, 2, 3, 1))), 3),
        (lambda x: CONV(x).movedim(1, -1), 3),
        (lambda x: CONV(x).mT, 1),
        (lambda x: CONV(x).flatten(2), 1),
        (lambda x: CONV(x).flatten(2).transpose(1, 2) + 1, 2),
        (lambda x: torch.swapaxes(CONV(x), axis0=1, axis1=2), 2),
        (lambda x: CONV(x).unsqueeze(1), 2),
        (lambda x: nn.functional.adaptive_avg_pool2d(CONV(x), (1, 4)).squeeze(2), 1),
        (lambda x: torch.cat([CONV(x), CONV(x)], 1), 1),
        (lambda x: CONV(x) * torch.rand(4, 1, 1), 1),
        (lambda x: nn.functional.softmax(CONV(x), -1), 1),
        (lambda x: nn.functional.layer_norm(CONV(x), (4, 4, 4)), 1),
        (lambda x: nn.functional.layer_norm(x, (5,)), 3),
        (lambda x: nn.functional.pixel_shuffle(CONV(x), 2), 1),
        (lambda x: CONV(x).flatten(1), 1),
        (lambda x: nn.functional.linear(x.view(-1, 5), torch.rand(7, 5)).view(2, 3, 5, 7), 3),
        (lambda x: CONV(x).reshape(2, 4, 16).relu(), 1),
        (lambda x: CONV(x).reshape(1, 2, 1, 4, 2, 8), 3),
        (lambda x: x.sum(), None),
        (lambda x: x.mean((1, 2, 3)), 0),
        (lambda x: x @ torch.rand(5, 7), 3),
        (lambda x: nn.functional.scaled_dot_product_attention(x, x, x), 1),
    ],
)
def test_unit_axis_follows_operations(forward, axis):
    if axis is None:
        with pytest.raises(AddressError, match="is a scalar"):
            axis_of(forward, IMAGES)
    else:
        assert axis_of(forward, IMAGES) == axis


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x * 2,  # the meaning of an input's axes is unknown
        lambda x: x @ x,
        lambda x: CONV(x).reshape(2, 2, 2, 16),
        lambda x: CONV(x).reshape(2, 16, 4),
        lambda x: torch.einsum("nchw->nhwc", CONV(x)),
        lambda x: CONV(x).flatten(1, 2),
        lambda x: CONV(x) + CONV(x).permute(0, 2, 3, 1),  # two contradictory layouts
        lambda x: nn.functional.layer_norm(x, (5, 5)),
        lambda x: nn.functional.scaled_dot_product_attention(x[0], x[0], x[0]),
        lambda x: torch.stack([CONV(x), CONV(x)]),
        lambda x: CONV(x).mean((1, 3)) / 2,  # its channels are gone
    ],
)
def test_undetermined_unit_axis_is_refused(forward):
    with pytest.raises(AddressError, match=r"do not determine its unit axis.*Name the axis: '\w+\[0@1\]'"):
        axis_of(forward, IMAGES)


def test_attention_weights_have_no_unit_axis():
    attention = nn.MultiheadAttention(4, 2)
    trace = intus.trace(attention, (torch.rand(5, 2, 4),) * 3)
    axes = UnitAxes(trace.graph)
    assert axes.of(trace["output_1"].row) == 2
    with pytest.raises(AddressError):
        axes.of(trace["output_2"].row)


def test_unit_axis_of_long_chain():
    def forward(x):
        x = CONV(x)
        for _ in range(3000):
            x = x + 1
        return x

    assert axis_of(forward, IMAGES) == 1
