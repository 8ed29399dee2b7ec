"""Layers that do not keep the order of a probe set's rows have no labels, and all others have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from intus.core.fingerprints import fingerprints
from intus.core.record import PROBE_SET_MODE, LateRecord
from intus.monitoring import flush, probe
from intus.monitoring.row_check import compare, permutation
from intus.monitoring.sender import Sender
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
ROWS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()
SET = (ROWS, {"sign": LABELS})


TRUTH: dict[str, bool] = {}  # not an attribute, for those of a model are restored after a pass


class Steps(nn.Module):
    """A model whose steps may move rows; notes in TRUTH at each layer whether they are in their order."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in steps])

    def forward(self, x):
        own = torch.arange(len(x))
        ids, orders = own, []
        for number, (step, layer) in enumerate(zip(self.steps, self.layers, strict=True)):
            match step:
                case "sort":
                    order = x[:, 1].argsort()
                case "experts":
                    order = (x[:, 2] > x[:, 2].median()).long().argsort(stable=True)
                case "shuffle":
                    order = torch.randperm(len(x))
                case "back":
                    order = orders.pop().argsort() if orders else own
                case _:
                    order = own
            if step in ("sort", "experts", "shuffle"):
                orders.append(order)
            ids, x = ids[order], layer(x[order])
            TRUTH[f"layers.{number}"] = bool((ids == own).all())
        return x[ids.argsort()]


def recorded(model, server, **options):
    """Return whether each layer's rows have their ids, and the faults."""
    kept = {}
    gather = Sender.gather

    def keep(self, record, nbytes, contents=None):
        assert record.mode == PROBE_SET_MODE
        kept[record.address] = bool((record.items >= 0).all())
        if kept[record.address]:
            np.testing.assert_array_equal(record.items, np.arange(len(ROWS)))
        gather(self, record, nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sender, "gather", keep)
        with probe(model, HOST, server.port, probe_set=SET, structure=False, **options) as watch:
            watch.run_probe_set()
        return kept, watch.status()["faults"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from(["layer", "sort", "experts", "shuffle", "back"]), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_labels_are_refused_where_rows_moved_and_nowhere_else(server, steps, seed):
    torch.manual_seed(seed)
    model = Steps(steps).train()
    TRUTH.clear()
    kept, faults = recorded(model, server)
    assert kept.pop("") is True  # the order is restored at the end
    assert kept == TRUTH
    assert bool(faults) == (not all(TRUTH.values()))


class Noisy(nn.Module):
    """A model that draws noise in evaluation mode, as a variational autoencoder does."""

    def __init__(self):
        super().__init__()
        self.seen, self.noisy = nn.Identity(), nn.Identity()

    def forward(self, x):
        return self.noisy(self.seen(x) + torch.randn_like(x))


class Summed(nn.Module):
    """A model with a layer whose rows depend on those before them."""

    def __init__(self):
        super().__init__()
        self.seen, self.summed = nn.Identity(), nn.Identity()

    def forward(self, x):
        return self.summed(self.seen(x).cumsum(0))


class Sized(nn.Module):
    """A model for batches of one size."""

    def __init__(self):
        super().__init__()
        self.sorted = nn.Identity()

    def forward(self, x):
        return self.sorted(x.view(len(ROWS), 6)[x[:, 0].argsort()])


class Graph(nn.Module):
    """A model whose rows are the nodes of a graph."""

    def __init__(self):
        super().__init__()
        self.seen, self.summed = nn.Identity(), nn.Identity()
        self.edges = torch.rand(len(ROWS), len(ROWS), generator=torch.Generator().manual_seed(0)) < 0.2

    def forward(self, x):
        return self.summed(self.edges.float() @ self.seen(x))


@pytest.mark.parametrize("model", [Noisy(), Summed(), Graph()], ids=["noise", "sums", "graph"])
def test_rows_that_depend_on_others_are_not_proven_and_said(server, caplog, model):
    caplog.set_level("INFO", "intus.monitoring")
    kept, faults = recorded(model, server)
    assert set(kept.values()) == {True}
    assert faults == []
    last = "noisy" if isinstance(model, Noisy) else "summed"
    assert f"It is not proven for '{last}' and '' of {type(model).__name__}" in caplog.text


def test_model_for_batches_of_one_size_is_checked(server):
    kept, _ = recorded(Sized(), server)
    assert kept == {"": False, "sorted": False}


def test_statistics_of_rows_in_another_order_are_not_made(server):
    kept, _ = recorded(Steps(["layer", "sort", "layer", "back"]), server, statistics=False)
    assert kept == {"": True, "layers.0": True, "layers.1": False, "layers.2": False, "layers.3": True}
    kept = {}
    gather = Sender.gather

    def keep(self, record, nbytes, contents=None):
        kept[record.address] = isinstance(record, LateRecord)
        gather(self, record, nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sender, "gather", keep)
        model = Steps(["layer", "sort"])
        with probe(model, HOST, server.port, probe_set=SET, statistics=True) as watch:
            watch.run_probe_set()
    assert kept == {"": True, "layers.0": True, "layers.1": False}


def test_layer_that_begins_to_sort_is_noticed(server):
    model = Steps(["layer", "layer"])
    with probe(model, HOST, server.port, probe_set=SET, structure=False) as watch:
        watch.run_probe_set()
        assert watch.status()["faults"] == []
        model.steps = ["layer", "sort"]
        for watch.epoch in (1, 2):
            model(ROWS)
        watch.run_probe_set()
        assert any("'layers.1'" in fault for fault in watch.status()["faults"])


@pytest.mark.long
def test_scores_without_labels_stay_and_the_page_says_why(tmp_path):
    path = tmp_path / "x.db"
    model = Steps(["layer", "sort", "back"])
    with Server(database=path, port=0, scores="mean,lda_f1") as server:
        with probe(model, HOST, server.port, run="r", name="m", probe_set=SET) as watch:
            watch.run_probe_set()
        assert flush(HOST, server.port)
    with Database(path) as database:
        points = database.points("r", "m")
        notices = [one["text"] for one in database.notices("r")]
    labeled = {points["address"][row] for row, one in enumerate(points["target"]) if one == "sign"}
    plain = {points["address"][row] for row, one in enumerate(points["score"]) if one == "mean"}
    assert labeled == {"", "layers.0", "layers.2"}
    assert plain == {"", "layers.0", "layers.1", "layers.2"}
    assert any("Layer 'layers.1' of m does not keep the order of rows" in text for text in notices)
    assert not any("withdrawn" in text for text in notices)
    assert all("at 1 of 4 layers: 'layers.1'" in text for text in notices if "cannot be matched" in text)


@settings(max_examples=50, deadline=None)
@given(rows=st.integers(2, 16), seed=st.integers(0, 99), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_rounding_is_no_other_order(rows, seed, scale):
    values = np.random.default_rng(seed).normal(size=(rows, 3, 50)) * scale
    order = permutation(rows)
    rounded = values[order] * (1 + 1e-6 * np.random.default_rng(1).normal(size=values.shape))
    assert compare(fingerprints(values, 0), fingerprints(rounded, 0), order) == "kept"
    assert compare(fingerprints(values, 0), fingerprints(values, 0), order) == "reordered"
    constant = np.ones((rows, 5))
    assert compare(fingerprints(constant, 0), fingerprints(constant, 0), order) == "kept"


class Writes(nn.Module):
    """A model that writes to its inputs."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Identity()

    def forward(self, x):
        return self.seen(x.add_(1) * 2)


def test_probe_set_that_the_script_writes_to_has_no_labels_from_then_on(server):
    rows, model = ROWS.clone(), nn.Sequential(nn.Linear(6, 2))
    with probe(model, HOST, server.port, probe_set=(rows, SET[1]), structure=False) as watch:
        watch.run_probe_set()
        rows.copy_(rows.flip(0))
        watch.epoch = 1
        watch.run_probe_set()
        (fault,) = watch.status()["faults"]
    assert flush(HOST, server.port)
    assert "were written to after probe() got them, first seen in epoch 1" in fault
    known = {(one.epoch, bool((one.items >= 0).all())) for one in server.records()}
    assert known == {(0, True), (1, False)}


def test_model_that_writes_to_its_inputs_gets_copies(server):
    rows, model = ROWS.clone(), Writes()
    with probe(model, HOST, server.port, probe_set=(rows, SET[1]), structure=False) as watch:
        watch.run_probe_set()
        watch.epoch = 1
        watch.run_probe_set()
        assert watch.status()["faults"] == []
    assert flush(HOST, server.port)
    assert torch.equal(rows, ROWS)
    arrays = [one.array for one in server.records() if one.address == "seen"]
    np.testing.assert_array_equal(arrays[0], arrays[1])


@pytest.mark.long
def test_copies_of_rows_are_one_group(tmp_path, caplog):
    caplog.set_level("INFO", "intus.monitoring")
    rows = torch.randn(100, 64).repeat(3, 1)
    noise = torch.randint(0, 2, (100,), generator=torch.Generator().manual_seed(2)).repeat(3)
    model = nn.Sequential(nn.Linear(64, 64))
    path = tmp_path / "x.db"
    with Server(database=path, port=0, scores="lda_f1") as server:
        for run, third in {"found": (), "given": ({"groups": list(range(100)) * 3},)}.items():
            given_set = (rows, {"noise": noise}, *third)
            with probe(model, HOST, server.port, run=run, name="m", probe_set=given_set) as watch:
                watch.run_probe_set()
        assert flush(HOST, server.port)
    with Database(path) as database:
        found, given_ = (
            database.points(run, "m").where(score="lda_f1", address="0") for run in ("found", "given")
        )
    assert found["value"].tolist() == given_["value"].tolist()
    assert found["low"][0] < 0.5  # without groups they are 0.7 and more
    assert "200 of the 300 rows of the probe set are exact copies" in caplog.text
