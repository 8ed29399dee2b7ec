"""Rows of MXNet models: all inputs show their order, and units are never taken for rows."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import intus
from backends.served import server
from intus.backends.base import for_model
from intus.backends.host_arrays import ALIKE

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)


def test_order_is_of_all_inputs():
    backend, mask = for_model(gluon.nn.Dense(2)), np.ones((8, 6))
    orders = [
        backend.order(([mx.nd.array(mask), mx.nd.array(x)], {}), 0) for x in (X, X[::-1].copy(), X, mask)
    ]
    assert orders[0] == orders[2] != orders[1]
    assert orders[3] == ALIKE


class Steps(gluon.Block):
    """An embedding with time first, a cell whose outputs have rows first, and a layer on the last one."""

    def __init__(self, units):
        super().__init__()
        self.embedded = gluon.nn.Embedding(20, 8)
        self.cell = gluon.rnn.LSTMCell(units, input_size=8)
        self.out = gluon.nn.Dense(2)

    def forward(self, x):
        states = self.cell.begin_state(x.shape[1])
        outputs, _ = self.cell.unroll(
            x.shape[0], self.embedded(x), begin_state=states, layout="TNC", merge_outputs=False
        )
        return self.out(outputs[-1])


@pytest.mark.parametrize("sizes", [(24, 24), (24, 10)], ids=["alike", "two"])
@pytest.mark.parametrize("units", [24, 10])
def test_units_of_a_cell_are_no_rows_of_a_model_with_time_first(units, sizes, tmp_path):
    """The axis is known from batches of two sizes, and else labels are refused, and that is said."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 240)
    words = np.where(labels[:, None] == 1, random.integers(2, 20, (240, 7)), 1)
    mx.random.seed(0)
    model = Steps(units)
    model.initialize(mx.init.Xavier())
    with server(tmp_path) as running:
        where = ("127.0.0.1", running.port)
        intus.register_targets(*where, name="y", targets=labels)
        with intus.probe(model, *where, run="r", name="M", block=True, batch_axis=1) as watch:
            for watch.epoch in (1, 2):
                ends = np.cumsum([sizes[at % 2] for at in range(20)])
                for watch.items in np.split(np.arange(240), ends[ends < 240]):
                    model(mx.nd.array(words[watch.items].T))
            faults = " ".join(watch.status()["faults"])
        assert intus.flush(*where)
        points = running.points("r", "M", "linear_f1", "y")
    found = zip(points["address"], points["epoch"], points["value"], strict=True)
    last = {address: value for address, epoch, value in found if epoch == 2 and value is not None}
    assert last["embedded"] > 0.9
    if sizes[0] == sizes[1]:
        assert "cell:7" not in last
        assert "is the batch is not known" in faults
    else:
        assert last["cell:7"] > 0.9
