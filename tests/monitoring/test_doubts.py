"""Scores of an epoch have what a probe finds out late of its rows, stored before or still to be stored."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from test_killed_servers import Fleet
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import intus
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
DOUBTED = "labels are perhaps of other rows"  # as docs/probing.md says
#: One score without labels and one with them; the first test has all.
FEW = "mean,lda_f1"
ROWS = torch.randn(240, 6, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[:, 0] > 0).long()


class Turning(Dataset):
    """A dataset that gives its rows in another order once it is told to."""

    def __init__(self):
        self.order = list(range(len(ROWS)))

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return ROWS[self.order[item]], LABELS[self.order[item]]

    def turn(self):
        self.order = self.order[::-1]


class Sorting(nn.Module):
    """A model whose head has its rows sorted from some pass on."""

    def __init__(self):
        super().__init__()
        self.first, self.head, self.sorts = nn.Linear(6, 6), nn.Linear(6, 2), False

    def forward(self, x):
        x = self.first(x)
        order = x[:, 0].argsort() if self.sorts else torch.arange(len(x))
        return self.head(x[order])[order.argsort()]


def train(model, loader, epochs, after=lambda epoch: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(1, epochs + 1):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        after(epoch)


def train_turned(place, model, *, turned_after=2, epochs=4, stored=lambda: None, **options):
    """Train on data whose order changes; ``stored`` is called when the epochs before are scored."""
    data = Turning()

    def after(epoch):
        if epoch == turned_after:
            stored()
            data.turn()

    with probe(model, *place, run="r", name="m", structure=False, block=True, **options):
        train(model, DataLoader(data, batch_size=40, shuffle=True), epochs, after)


def layer():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 2))


def scores_of(where, address="0"):
    """Return a layer's scores with labels, and those without that need no items."""
    table = intus.runs(where)["r"].scores(address=address)
    return table[table.target != ""], table[(table.target == "") & ~table.score.str.startswith("cka")]


def notices_of(path):
    with Database(path) as database:
        return [notice["text"] for notice in database.notices()]


def doubtful(labelled):
    """Return the epochs of which all scores are in doubt, and those of which none is."""
    marks = labelled.note.str.contains(DOUBTED).groupby(labelled.epoch)
    return set(marks.all()[lambda m: m].index), set(marks.any()[lambda m: ~m].index)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "waiting"])
def test_scores_of_before_a_dataset_changed_its_order_are_in_doubt(tmp_path, is_stored):
    path = tmp_path / "x.db"
    with Server(database=path, port=0) as server:
        place = HOST, server.port
        register_targets(*place, name="digit", targets=LABELS)
        train_turned(place, layer(), stored=lambda: is_stored and flush(*place))
        assert flush(*place)
        on_page, _ = scores_of(f"{HOST}:{server.port}")
    labelled, others = scores_of(str(path))
    assert doubtful(labelled) == doubtful(on_page) == ({1, 2}, set())  # rows of later epochs have no ids
    assert labelled.value.notna().any()
    assert not others.note.str.contains(DOUBTED).any()
    command = [sys.executable, "-m", "intus", "export", str(path), "--score", "lda_f1", "--address", "0"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    assert len(lines) == 2
    assert all(DOUBTED in line for line in lines)
    assert [one for one in intus.runs(str(path))["r"].findings() if one.target] == []


def test_scores_of_an_earlier_training_are_not_in_doubt(tmp_path):
    """The doubt is of the present training alone, of which only the first epochs are stored anew."""
    with Server(database=tmp_path / "x.db", port=0, scores=FEW) as server:
        place = HOST, server.port
        register_targets(*place, name="digit", targets=LABELS)
        train_turned(place, layer(), turned_after=0, epochs=4)
        flush(*place)
        train_turned(place, layer(), turned_after=1, epochs=2)
        assert flush(*place)
    labelled, _ = scores_of(str(tmp_path / "x.db"))
    assert doubtful(labelled) == ({1}, {2, 3, 4})


@pytest.mark.long
@pytest.mark.parametrize("roles", [["all"], ["aggregator", "evaluator", "frontend"]], ids=["one", "apart"])
def test_doubt_survives_kills_before_and_after_it_is_acknowledged(tmp_path, roles):
    fleet = Fleet(tmp_path, roles, 0)
    place = HOST, fleet.ports["aggregator"]

    def restart(*names):
        for name in names:
            fleet.processes[name].kill()
            fleet.processes[name].communicate()
            fleet.processes[name] = fleet._start(name)

    try:
        register_targets(*place, name="digit", targets=LABELS)
        data = Turning()

        def after(epoch):
            if epoch == 1:
                assert flush(*place)
            elif epoch == 2:  # of which the arrays wait while the server is away, as the doubt does
                for role in roles:
                    fleet.processes[role].kill()
                    fleet.processes[role].communicate()
                data.turn()
            elif epoch == 3:
                for role in roles[:1]:  # the first alone takes them
                    fleet.processes[role] = fleet._start(role)
                assert watch._tap.sender.drain(30)
                restart(*roles[:1])
                for role in roles[1:]:
                    fleet.processes[role] = fleet._start(role)

        with probe(layer_ := layer(), *place, run="r", name="m", structure=False, block=True) as watch:
            train(layer_, DataLoader(data, batch_size=40, shuffle=True), 4, after)
        assert flush(*place)
        restart(*roles)
        assert flush(*place)
    finally:
        fleet.stop()
    labelled, others = scores_of(str(tmp_path / "x.db"))
    assert doubtful(labelled) == ({1, 2}, set())
    assert not others.note.str.contains(DOUBTED).any()


@pytest.mark.parametrize("by_order", [False, True])
def test_layer_whose_rows_move_later_has_its_scores_withdrawn(tmp_path, by_order):
    torch.manual_seed(0)
    model, path = Sorting(), tmp_path / "x.db"
    with Server(database=path, port=0, scores=FEW) as server:
        place = HOST, server.port
        register_targets(*place, name="digit", targets=LABELS)

        def after(epoch):
            flush(*place)
            model.sorts = True

        loader = DataLoader(TensorDataset(ROWS, LABELS), batch_size=40, shuffle=not by_order)
        batches = [[x + 0, y] for x, y in loader] if by_order else loader
        with probe(model, *place, run="r", name="m", structure=False, block=True) as watch:
            train(model, batches, 3, after)
        assert flush(*place)
        faults = watch.status()["faults"]
    labelled, others = scores_of(str(path), "head")
    assert set(labelled.epoch) == ({1, 2, 3} if by_order else {1})
    assert labelled.value.isna().all()
    assert labelled.note.str.startswith(
        "withdrawn: in epoch 2, the layer had its rows in another order"
    ).all()
    assert others.value.notna().any()
    kept, _ = scores_of(str(path), "first")
    assert kept[kept.score == "lda_f1"].value.notna().all()
    assert any("withdrawn" in fault and "'head'" in fault for fault in faults)


class Late(nn.Module):
    """A model whose head has its rows sorted once its first weight is large."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        order = x[:, 1].argsort() if self.first.bias[0] > 5 else torch.arange(len(x))
        return self.head(self.first(x)[order])[order.argsort()]


def test_layer_of_a_probe_set_is_in_doubt_since_the_last_test_of_its_order(tmp_path):
    """Tested are epochs 0, 1, 3 and 7, and rows are moved from epoch 5 on."""
    torch.manual_seed(0)
    model, path = Late(), tmp_path / "x.db"
    with (
        Server(database=path, port=0, scores=FEW) as server,
        probe(
            model, HOST, server.port, run="r", name="m", probe_set=(ROWS, {"digit": LABELS}), structure=False
        ) as watch,
    ):
        for watch.epoch in range(8):
            with torch.no_grad():
                model.first.bias[0] = 10.0 if watch.epoch >= 5 else 0.0
            watch.run_probe_set()
        flush(HOST, server.port)
    labelled, _ = scores_of(str(path), "head")
    assert doubtful(labelled) == ({4, 5, 6}, {0, 1, 2, 3})
    assert not scores_of(str(path), "first")[0].note.str.contains(DOUBTED).any()


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_scores_of_rows_that_the_labels_turn_out_not_to_be_for_are_withdrawn(tmp_path, mode):
    """The model was called without gradients on another dataset before it is trained."""
    path, model = tmp_path / "x.db", layer().train(mode == "train")
    with Server(database=path, port=0, scores=FEW) as server:
        place = HOST, server.port
        register_targets(*place, name="digit", targets=LABELS)
        with probe(model, *place, run="r", name="m", structure=False, block=True) as watch:
            with torch.no_grad():
                for x, _ in DataLoader(TensorDataset(ROWS + 1, LABELS), batch_size=40):
                    model(x)
            flush(*place)
            model.train()
            train(model, DataLoader(TensorDataset(ROWS, LABELS), batch_size=40, shuffle=True), 2)
        assert flush(*place)
    assert any("are withdrawn" in fault for fault in watch.status()["faults"])
    labelled, others = scores_of(str(path))
    before = labelled.epoch == 0
    assert before.any()
    assert set(labelled[before]["mode"]) == {mode}
    assert labelled[before].value.isna().all()
    assert labelled[before].note.str.startswith("withdrawn: labels are for the rows of").all()
    assert not labelled[~before].note.str.contains("withdrawn").any()
    assert others.value.notna().any()


def test_layer_whose_rows_move_is_withdrawn_in_a_training_that_begins_again_too(tmp_path):
    """By order of arrival its rows have no ids, so that nothing else tells the server."""
    torch.manual_seed(0)
    model, path = Sorting(), tmp_path / "x.db"
    model.sorts = True
    with Server(database=path, port=0, scores=FEW) as server:
        place = HOST, server.port
        register_targets(*place, name="digit", targets=LABELS)
        with probe(model, *place, run="r", name="m", structure=False, block=True) as watch:
            for watch.epoch in (1, 2, 1, 2):
                for x in ROWS.split(40):
                    model(x + 0)
                flush(*place)
        assert flush(*place)
    assert any("watch.epoch back" in notice for notice in notices_of(path))
    labelled, _ = scores_of(str(path), "head")
    assert set(labelled.epoch) == {1, 2}
    assert labelled.note.str.startswith("withdrawn: in epoch").all()
    assert labelled.value.isna().all()
