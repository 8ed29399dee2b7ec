"""Layers that return the array of another layer: it is copied and sent once, and each has its values."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from intus.core.record import Record
from intus.monitoring import flush, probe
from intus.monitoring import sender as sending
from intus.serving.run import Server
from intus.storage.codec import SHARED_FORMAT, encode_records
from intus.storage.database import Database

HOST = "127.0.0.1"
INPUTS = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
SET = (INPUTS, {"sign": (INPUTS[:, 0] > 0).tolist()})


class WritesInPlace(nn.Module):
    """A container that writes to what its child returned, and returns the same tensor."""

    def __init__(self, write):
        super().__init__()
        self.inner, self.write = nn.Linear(8, 8), write

    def forward(self, x):
        out = self.inner(x)
        self.write(out)
        return out


class Swaps(WritesInPlace):
    """A container whose child's result gets other memory in between."""

    def forward(self, x):
        out = self.inner(x)
        out.data = out.data * 2
        return out


WRITES = {
    "add_": lambda x: x.add_(1),
    "view": lambda x: x.view(-1)[0].zero_(),
    "indices": lambda x: x.__setitem__((slice(2), 0), 5.0),
    "out=": lambda x: torch.mul(x, 3, out=x),
    "detached": lambda x: x.detach().neg_(),
    "foreach": lambda x: torch._foreach_mul_([x], 2.0),
    "shape": lambda x: x.unsqueeze_(0).squeeze_(0),
}


def values(model, inputs):
    """Return what each module returns in evaluation, copied by a hook of torch."""
    seen, twin = {}, copy.deepcopy(model).eval()
    for name, module in twin.named_modules():
        module.register_forward_hook(lambda _, args, out, name=name: seen.update({name: out.clone().numpy()}))
    with torch.no_grad():
        twin(inputs)
    return seen


def test_container_and_dropout_share_the_array_of_a_child(server):
    model = nn.Sequential(nn.Linear(8, 6), nn.Sequential(nn.ReLU(), nn.Dropout()), nn.Dropout())
    expected = values(model, INPUTS)
    with probe(model, HOST, server.port, probe_set=SET, structure=False) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    records = {record.address: record for record in server.records()}
    assert records.keys() == expected.keys()
    for address, record in records.items():
        np.testing.assert_array_equal(record.array, expected[address])
        np.testing.assert_array_equal(record.items, np.arange(len(INPUTS)))
    assert len({id(record.array) for record in records.values()}) == 2  # of 0 and of 1.0
    assert watch.status()["recorded"] == len(expected) == 6
    [envelope] = [envelope for got, envelope in server.batches() if got]
    assert envelope["epochs"][0]["sent"] == 6


@pytest.mark.parametrize("write", WRITES)
def test_write_between_child_and_container_is_seen(server, write):
    model = nn.Sequential(WritesInPlace(WRITES[write]), nn.Dropout())
    expected = values(model, INPUTS)
    assert (expected["0"] != expected["0.inner"]).any() or write == "shape"
    with probe(model, HOST, server.port, probe_set=SET, structure=False) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    for record in server.records():
        np.testing.assert_array_equal(record.array, expected[record.address])


def test_other_memory_between_child_and_container_is_seen(server):
    model = Swaps(None)
    expected = values(model, INPUTS)
    with probe(model, HOST, server.port, probe_set=SET, structure=False) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    for record in server.records():
        np.testing.assert_array_equal(record.array, expected[record.address])
    assert (expected[""] == 2 * expected["inner"]).all()


def test_tensors_without_a_version_are_copied(server):
    model = nn.Sequential(WritesInPlace(lambda x: x.neg_()), nn.Sequential(nn.ReLU())).eval()
    expected = values(model, INPUTS)
    with probe(model, HOST, server.port, structure=False), torch.inference_mode():
        model(INPUTS)
    assert flush(HOST, server.port)
    records = server.records()
    assert len({id(record.array) for record in records}) == len(records) == 5
    for record in records:
        np.testing.assert_array_equal(record.array, expected[record.address])


def test_passes_of_a_training_share_within_a_pass_only(server):
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 4)), nn.Identity())
    kinds = ("output", "grad_output", "parameter")
    with probe(model, HOST, server.port, kinds=kinds, structure=False, budget=np.inf) as watch:
        for step in range(3):
            watch.items = np.arange(12) + 100 * step
            model(INPUTS).sum().backward()
    assert flush(HOST, server.port)
    steps = {}
    for record in server.records():
        steps.setdefault((record.kind, record.step), []).append(record)
    for (kind, step), records in steps.items():
        assert len(records) == (2 if kind == "parameter" else 4)
        assert kind != "parameter" or step == 2  # once, at the end of the epoch
        for record in records:
            assert record.items is None or record.items[0] == 100 * step
    assert len({id(one.array) for one in steps["output", 0]}) == 1
    assert len({id(one.array) for one in steps["parameter", 2]}) == 2
    arrays = [{id(one.array) for one in steps["output", step]} for step in range(3)]
    assert not arrays[0] & arrays[1] | arrays[1] & arrays[2]


def test_each_request_has_its_arrays(server, monkeypatch):
    monkeypatch.setattr(sending, "BATCH_BYTES", 1)
    model = nn.Sequential(nn.Linear(8, 6), nn.Sequential(nn.ReLU(), nn.Dropout()))
    expected = values(model, INPUTS)
    with probe(model, HOST, server.port, probe_set=SET, structure=False, queue_mb=0.01) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    assert all(len(records) <= 1 for records, _ in server.batches())
    assert {record.address for record in server.records()} == expected.keys()
    for record in server.records():
        np.testing.assert_array_equal(record.array, expected[record.address])
    assert watch.status()["dropped"] == 0


def test_projected_rows_are_shared_with_their_summary(server):
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 1500)), nn.Dropout())
    with probe(model, HOST, server.port, probe_set=SET, structure=False, width=1024) as watch:
        watch.run_probe_set()
    assert flush(HOST, server.port)
    records = server.records()
    assert len(records) == 4
    assert {id(one.array) for one in records} == {id(records[0].array)}
    assert all(one.summary is records[0].summary for one in records)
    assert all(one.projected_from == 1500 for one in records)


@pytest.mark.long
def test_server_scores_every_address(tmp_path):
    model = nn.Sequential(nn.Linear(8, 6), nn.Sequential(nn.ReLU(), nn.Dropout()), nn.Dropout())
    with Server(database=tmp_path / "scores.db", port=0) as server:
        with probe(model, server.host, server.port, run="r", probe_set=SET) as watch:
            watch.run_probe_set()
        assert watch.flush()
    with Database(tmp_path / "scores.db") as database:
        points = database.points("r", "Sequential")
    rows = {
        address: {(row["target"], row["score"]): row["value"] for row in points.where(address=address)}
        for address in watch.operations
    }
    assert rows["0"] != rows["1.0"]
    own = {name: value for name, value in rows["1.0"].items() if not name[1].startswith("cka")}
    assert ("sign", "linear_f1") in own
    for address in ("1", "1.1", "2", ""):
        assert own.items() <= rows[address].items()


def test_blob_without_shared_arrays_has_the_older_format():
    array = np.ones((2, 3), np.float32)
    assert f'"intus":"{SHARED_FORMAT}"'.encode() not in encode_records([Record(array, "a")])
    assert f'"intus":"{SHARED_FORMAT}"'.encode() in encode_records([Record(array, "a"), Record(array, "b")])
