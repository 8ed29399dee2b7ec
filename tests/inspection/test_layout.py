"""Which axis is the batch, which the units: decided once per layer, refused where nothing tells."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from intus.backends.base import Operation
from intus.core.errors import InputError
from intus.inspection import inspect
from intus.inspection.layout import Layout, decide


class TimeFirst(nn.Module):
    """A linear layer that copies its input, which comes as (time, records, 3)."""

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


def of(module, shape, records, units_axis=None):
    layer = Operation("a", type(module).__name__, module)
    return decide("a", [("a", shape)], {"a": layer}, records, units_axis)


@pytest.mark.parametrize(
    ("module", "shape", "records", "want"),
    [
        (nn.Linear(7, 7), (4, 7), 4, (0, 1)),
        (nn.ReLU(), (4,), 4, (0, 0)),
        (nn.Linear(7, 7), (4, 5, 7), 4, (0, 2)),
        (nn.Linear(7, 7), (4, 8, 9, 7), 4, (0, 3)),
        (nn.Linear(7, 7), (5, 4, 7), 4, (1, 2)),
        (nn.Conv1d(1, 4, 1), (4, 4, 7), 4, (0, 1)),
        (nn.Dropout2d(), (4, 7, 8, 7), 4, (0, 1)),
        (nn.LSTM(3, 7), (4, 4, 7), 4, (1, 2)),
        (nn.LSTM(3, 7, batch_first=True), (4, 4, 7), 4, (0, 2)),
    ],
)
def test_what_the_kind_of_a_layer_tells(module, shape, records, want):
    assert of(module, shape, records) == want
    array = np.zeros(shape)
    units = shape[want[1]] if len(shape) > 1 else 1
    assert Layout(*want).apply(array, records, "a").shape[:2] == (records, units)


@pytest.mark.parametrize(
    ("module", "shape", "text"),
    [
        (
            nn.ReLU(),
            (4, 5, 7),
            "'a' gave shape .4, 5, 7., and a ReLU may have.*units_axis=1 or units_axis=-1",
        ),
        (nn.Linear(7, 7), (4, 4, 7), "either of two axes may be theirs.*batch=3"),
        (nn.Linear(7, 7), (5, 6, 7), "no axis is the batch"),
    ],
)
def test_what_nothing_tells_is_refused(module, shape, text):
    with pytest.raises(InputError, match=text):
        of(module, shape, 4)


def test_units_axis_decides_and_is_checked():
    assert of(nn.ReLU(), (4, 5, 7), 4, -1) == (0, 2)
    assert of(nn.ReLU(), (4, 5, 7), 4, 1) == (0, 1)
    with pytest.raises(InputError, match="units_axis=3 is no axis of 'a'"):
        of(nn.ReLU(), (4, 5, 7), 4, 3)
    with pytest.raises(InputError, match="units_axis=0 is the axis of the records"):
        of(nn.ReLU(), (4, 5, 7), 4, 0)
    with pytest.raises(InputError, match=r"shape \(20, 7\) for 4 records: no axis is the batch"):
        Layout(0, 1).apply(np.zeros((20, 7)), 4, "a")


@pytest.mark.parametrize("layer", ["0", "1", "2", "3", "3.0"])
def test_what_keeps_the_shape_has_its_units_where_its_producer_had(layer):
    inner = nn.Sequential(nn.Dropout())
    model = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.ReLU(), nn.Identity(), inner)
    data = np.random.default_rng(0).normal(size=(30, 1, 10)).astype(np.float32)
    frame = inspect(model, {"odd": np.arange(30) % 2}, "correlation", data, layer)
    assert frame.unit.tolist() == list(range(6))


def test_a_module_of_the_callers_own_is_asked_about():
    model = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), Swap())
    data = np.random.default_rng(0).normal(size=(30, 1, 10)).astype(np.float32)
    labels = {"odd": np.arange(30) % 2}
    with pytest.raises(InputError, match=r"a Swap may have its units.*units_axis="):
        inspect(model, labels, "correlation", data, "1")
    assert len(inspect(model, labels, "correlation", data, "1", units_axis=-1)) == 6


@pytest.mark.parametrize("batch", [256, 133, 266])
def test_the_last_block_is_laid_out_as_the_first(batch):
    """266 records of 10 steps: with blocks of 256 the last one is 10 by 10."""
    data = np.random.default_rng(0).normal(size=(266, 10, 3)).astype(np.float32)
    frame = inspect(TimeFirst(), {"first": data[:, :, 0]}, "correlation", data, ("copy", 0), batch=batch)
    assert frame.value[0] == pytest.approx(1)


def test_as_many_records_as_steps_are_refused():
    data = np.random.default_rng(0).normal(size=(10, 10, 3)).astype(np.float32)
    ask = {
        "hypotheses": {"first": data[:, :, 0]},
        "scores": "correlation",
        "data": data,
        "units": ("copy", 0),
    }
    with pytest.raises(InputError, match=r"either of two axes may be theirs"):
        inspect(TimeFirst(), **ask)
    assert inspect(TimeFirst(), **ask, batch=9).value[0] == pytest.approx(1)
