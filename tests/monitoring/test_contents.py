"""A dataset that changes its order has no ids, other changes are said, and copies of rows are not hidden."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from intus.core.findings import findings
from intus.core.notes import Facts
from intus.core.results import Results
from intus.core.sketch import row_hashes
from intus.monitoring import contents as contents_module
from intus.monitoring import flush, probe, register_targets
from intus.monitoring.contents import Contents
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
ROWS = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(90) % 2


class Changing(Dataset):
    """A dataset whose items are rows in an order, with what else a function does to them."""

    def __init__(self, change=lambda row: row):
        self.order, self.change = list(range(len(ROWS))), change

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, item):
        return self.change(ROWS[self.order[item]]), LABELS[item]


def train(server, data, after=lambda data: None, *, run="r", epochs=3):
    """Train without ids; return the records of the first layer, and the probe."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Linear(data[0][0].shape[-1], 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with probe(model, HOST, server.port, run=run, name="m", structure=False, block=True) as watch:
        for _ in range(epochs):
            for x, y in DataLoader(data, batch_size=30, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            after(data)
    assert flush(HOST, server.port)
    return watch


def named(server):
    """Return the epochs whose rows all have ids, and those of which none has."""
    records = [one for one in server.records() if one.address == "0"]
    epochs = {one.epoch for one in records}
    have = {e for e in epochs if all((r.items >= 0).all() for r in records if r.epoch == e)}
    lack = {e for e in epochs if all((r.items < 0).all() for r in records if r.epoch == e)}
    return have, lack


def turn(data):
    data.order = data.order[::-1]


def test_dataset_that_changes_its_order_has_no_ids_from_then_on(server):
    watch = train(server, Changing(), turn)
    assert named(server) == ({1}, {2, 3})
    assert "changes its order" in watch.status()["items"]
    assert any("changes its order" in fault for fault in watch.status()["faults"])


def test_random_augmentation_keeps_ids_and_is_said(server):
    watch = train(server, Changing(lambda row: row + 0.01 * torch.randn(4)))
    assert named(server) == ({1, 2, 3}, set())
    assert "not verified" in watch.status()["items"]
    assert watch.status()["faults"] == []


@pytest.mark.parametrize(
    "data",
    [
        Changing(),
        TensorDataset(ROWS.repeat(1, 3).bfloat16().float(), LABELS),
        TensorDataset(torch.nn.functional.one_hot(LABELS).float(), LABELS),
    ],
    ids=["plain", "wide", "few different rows"],
)
def test_dataset_that_stays_as_it_is_has_ids(server, data):
    watch = train(server, data)
    assert named(server) == ({1, 2, 3}, set())
    assert "label i belongs to row i" in watch.status()["items"]
    assert watch.status()["faults"] == []


@pytest.mark.long
def test_scores_of_copies_have_a_note_and_no_finding(tmp_path):
    base = torch.randn(100, 64, generator=torch.Generator().manual_seed(1))
    noise = torch.randint(0, 2, (100,), generator=torch.Generator().manual_seed(2)).repeat(3)
    subjects = np.arange(100).tolist() * 3
    path = tmp_path / "x.db"
    with Server(database=path, port=0, scores="lda_f1") as server:
        register_targets(HOST, server.port, name="noise", targets=noise)
        register_targets(HOST, server.port, name="grouped", targets=noise, groups=subjects)
        train(server, TensorDataset(base.repeat(3, 1), noise), run="copies", epochs=3)
        train(server, TensorDataset(torch.randn(300, 64), noise), run="none", epochs=2)
    with Database(path) as database:
        points = database.points("copies", "m").where(score="lda_f1")
        others = database.points("none", "m").where(score="lda_f1")
        texts = [one["text"] for one in database.notices("copies")]
        found = findings(Results.concat([points]), ["0", "1"])
    marks = {(t, Facts.of(note).has_copies) for t, note in zip(points["target"], points["note"], strict=True)}
    assert marks == {("noise", True), ("grouped", False)}
    assert not any(Facts.of(note).has_copies for note in others["note"])
    assert max(points.where(target="noise")["value"]) > 0.7  # rows of random labels are recognized
    assert [one for one in found if one.target == "noise"] == []
    assert any("exact copies" in text for text in texts)
    assert not any("noise can be decoded" in text or "noise is learned" in text for text in texts)


@pytest.mark.long
def test_scores_of_copies_have_a_note_after_a_restart_of_the_server_too(tmp_path):
    """Before, only the server that was told of them knew it, and epochs that the next one scored had none."""
    base, path = torch.randn(40, 8, generator=torch.Generator().manual_seed(1)), tmp_path / "x.db"
    data = TensorDataset(base.repeat(3, 1), torch.arange(120) % 2)
    servers = [Server(database=path, port=0, scores="lda_f1")]
    port = servers[0].port

    def restart(data):
        assert flush(HOST, port)
        servers.pop().stop()
        servers.append(Server(database=path, port=port, scores="lda_f1"))

    try:
        register_targets(HOST, port, name="parity", targets=torch.arange(120) % 2)
        train(servers[0], data, restart, epochs=3)
    finally:
        servers[0].stop()
    with Database(path) as database:
        points = database.points("r", "m").where(target="parity", score="lda_f1", address="0")
    assert [Facts.of(note).has_copies for note in points["note"]] == [True] * 3


@settings(max_examples=60, deadline=None)
@given(
    items=st.integers(20, 900),
    most=st.sampled_from([256, 4096]),  # of 64, seven may come by chance before an item comes again
    times=st.integers(1, 3),
    batch=st.integers(1, 50),
    change=st.sampled_from(["none", "order", "values"]),
    seed=st.integers(0, 99),
)
def test_contents_are_told_apart(items, most, times, batch, change, seed):
    """A sample finds copies and other orders, and never a change or copies where there are none."""
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents_module, "MOST", most)
        contents, news = Contents(), []
        base = random.normal(size=(items, 5))
        rows = np.tile(base, (times, 1))
        for _ in range(3):
            order = random.permutation(len(rows))
            for start in range(0, len(rows), batch):
                ids = order[start : start + batch]
                news.append(contents.see(ids, row_hashes(rows[ids])))
            if change == "order":
                rows = rows[random.permutation(len(rows))]
            elif change == "values":
                rows = rows + random.normal(size=rows.shape)
    said = [one for one in news if one]
    assert len(said) == len(set(said))
    assert ("copies" in said) == (times > 1)
    if change == "none":
        assert set(said) <= {"copies"}
    elif change == "order":
        assert set(said) - {"copies"}  # of copies, no order can be proven
        assert "reordered" in said or times > 1 or most < 2 * items
    else:
        assert "changed" in said
        assert "reordered" not in said
