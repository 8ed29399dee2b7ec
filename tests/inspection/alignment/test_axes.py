"""The axes of records and units: determined once per layer, refused if unknown."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from intus.core.errors import AddressError, InputError
from intus.inspection import inspect
from intus.inspection.alignment.axes import arrange, batch_axis


class TimeFirst(nn.Module):
    """A linear layer that copies its input, (time, records, 3)."""

    def __init__(self):
        super().__init__()
        self.copy = nn.Linear(3, 3)
        nn.init.eye_(self.copy.weight)
        nn.init.zeros_(self.copy.bias)

    def forward(self, x):
        return self.copy(x.transpose(0, 1))


class Swap(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


class Reshape(nn.Module):
    def forward(self, x):
        return x.reshape(len(x), 3, -1)


@pytest.mark.parametrize(
    ("shape", "units", "declared", "want"),
    [
        ((4, 7), 1, None, 0),
        ((4,), 0, None, 0),
        ((4, 5, 7), 2, None, 0),
        ((4, 8, 9, 7), 3, None, 0),
        ((5, 4, 7), 2, None, 1),
        ((4, 4, 7), 1, None, 0),
        ((4, 4, 7), 2, 1, 1),
        ((4, 4, 7), 2, 0, 0),
    ],
)
def test_batch_axis(shape, units, declared, want):
    assert batch_axis("a", shape, 4, units, declared) == want
    array = np.zeros(shape)
    count = shape[units] if len(shape) > 1 else 1
    assert arrange(array, 4, want, units, "a").shape[:2] == (4, count)


@pytest.mark.parametrize(
    ("shape", "units", "text"),
    [
        ((4, 4, 7), 2, "either of two axes may be theirs.*batch=2"),
        ((5, 6, 7), 2, "no axis is the batch"),
        ((4, 5, 7), 0, "is that of the records"),
    ],
)
def test_batch_axis_errors(shape, units, text):
    with pytest.raises(InputError, match=text):
        batch_axis("a", shape, 4, units, None)


def test_arrange_refuses_other_number_of_records():
    with pytest.raises(InputError, match=r"shape \(20, 7\) for 4 records: no axis is the batch"):
        arrange(np.zeros((20, 7)), 4, 0, 1, "a")


@pytest.mark.parametrize("layer", ["0", "1", "2", "3", "3.0"])
def test_elementwise_layers_keep_the_unit_axis(layer):
    inner = nn.Sequential(nn.Dropout())
    model = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.ReLU(), nn.Identity(), inner)
    data = np.random.default_rng(0).normal(size=(30, 1, 10)).astype(np.float32)
    frame = inspect(model, {"odd": np.arange(30) % 2}, "correlation", data, layer)
    assert frame.unit.tolist() == list(range(6))


def test_units_of_custom_module():
    """A transposition is followed; after a reshape that mixes axes, the caller names the axis."""
    data = np.random.default_rng(0).normal(size=(30, 1, 10)).astype(np.float32)
    labels = {"odd": np.arange(30) % 2}
    model = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), Swap(), Reshape())
    assert len(inspect(model, labels, "correlation", data, "1")) == 6
    with pytest.raises(AddressError, match=r"'2' has shape \(30, 3, 20\), .* unit axis. Name"):
        inspect(model, labels, "correlation", data, "2")
    assert len(inspect(model, labels, "correlation", data, "2[:@1]")) == 3
    assert len(inspect(model, labels, "correlation", data, ("2", "*@-1"))) == 20
    assert inspect(model, labels, "correlation", data, ("2", "1,4:6@2")).unit.tolist() == [1, 4, 5]
    with pytest.raises(InputError, match="is that of the records"):
        inspect(model, labels, "correlation", data, "2[:@0]")
    with pytest.raises(AddressError, match="the output has 3 axes"):
        inspect(model, labels, "correlation", data, "2[:@5]")


@pytest.mark.parametrize("batch", [256, 133, 266])
def test_last_block_has_the_axes_of_the_first(batch):
    """266 records of 10 steps: with blocks of 256 the last one is 10 by 10."""
    data = np.random.default_rng(0).normal(size=(266, 10, 3)).astype(np.float32)
    frame = inspect(TimeFirst(), {"first": data[:, :, 0]}, "correlation", data, ("copy", 0), batch=batch)
    assert frame.value[0] == pytest.approx(1)


def test_as_many_records_as_steps(monkeypatch):
    """The graph of one record tells the axes apart; without a graph, either may be that of the records."""
    data = np.random.default_rng(0).normal(size=(10, 10, 3)).astype(np.float32)
    arguments = {
        "hypotheses": {"first": data[:, :, 0]},
        "scores": "correlation",
        "data": data,
        "units": "copy[0@2]",
    }
    assert inspect(TimeFirst(), **arguments).value[0] == pytest.approx(1)
    monkeypatch.setattr("intus.inspection.running.model_pass.record_graph", lambda *_: None)
    with pytest.raises(InputError, match=r"either of two axes may be theirs"):
        inspect(TimeFirst(), **arguments)
    assert inspect(TimeFirst(), **arguments, batch=5).value[0] == pytest.approx(1)
