"""Epochs and ids of rows are found from unchanged training scripts, which train as without a probe."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter

from intus.backends.torch.loaders import LOADERS
from intus.core.errors import AddressError
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

# The first feature of a row is its number: what a record's rows are is known without ids.
ROWS = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
ROWS[:, 0] = torch.arange(96)
LABELS = (ROWS[:, 1] > 0).long()
DATA = TensorDataset(ROWS, LABELS)
EPOCHS = 4


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "x.db"
    with Server(database=path, port=0, scores="mean,lda_f1") as server:
        yield server, path


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.head = nn.Identity(), nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 2))

    def forward(self, x):
        return self.head(self.seen(x) / 96)


def script(loader, *, after=None, watched=None, changed=lambda x: x, validated=None):
    """Train for 4 epochs as a script that knows nothing of intus; return the weights and random state."""
    torch.manual_seed(0)
    model = Net()
    watch = watched(model) if watched else None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        for x, y in loader() if callable(loader) else loader:
            optimizer.zero_grad()
            F.cross_entropy(model(changed(x)), y).backward()
            optimizer.step()
        if validated is not None:
            model.eval()
            with torch.no_grad():
                for x, _ in validated:
                    model(x)
            model.train()
        if after is not None:
            after(model)
    state = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    return *state, watch


def records(kept):
    return [record for record in kept if record.address == "seen"]


def check_ids(kept, *, epochs=(1, 2, 3, 4), mode="train", rows=96):
    """Check the ids of all rows against the numbers that the rows have themselves."""
    own = [record for record in records(kept) if record.mode == mode]
    assert sorted({record.epoch for record in own}) == list(epochs)
    for epoch in epochs:
        of_epoch = [record for record in own if record.epoch == epoch]
        assert sum(record.rows for record in of_epoch) == rows
        for record in of_epoch:
            np.testing.assert_array_equal(record.items, record.array[:, 0].astype(np.int64))


class Weighted(TensorDataset):
    """A dataset with a method that fetches a batch."""

    def __getitems__(self, items):
        return [self[item] for item in items]


def loaders():
    plain = {"batch_size": 20}
    generator = torch.Generator
    return {
        "sequential": lambda: DataLoader(DATA, **plain),
        "shuffled": lambda: DataLoader(DATA, shuffle=True, **plain),
        "generator": lambda: DataLoader(DATA, shuffle=True, generator=generator().manual_seed(3), **plain),
        "workers": lambda: DataLoader(DATA, shuffle=True, num_workers=2, **plain),
        "persistent": lambda: DataLoader(
            DATA, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4, **plain
        ),
        "batches": lambda: DataLoader(
            DATA, batch_size=None, sampler=BatchSampler(RandomSampler(DATA), 20, drop_last=False)
        ),
        "batch sampler": lambda: DataLoader(
            DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 20, drop_last=False)
        ),
        "getitems": lambda: DataLoader(Weighted(ROWS, LABELS), shuffle=True, **plain),
    }


def unchanged():
    return [vars(_BaseDataLoaderIter)[name] for name in ("__init__", "_reset", "_next_index", "__next__")]


@pytest.mark.long
@pytest.mark.parametrize("how", list(loaders()))
def test_unchanged_script_has_its_epochs_and_ids(served, kept, how):
    server, _ = served
    before, observed = unchanged(), []
    validation = DataLoader(TensorDataset(ROWS + 1000, LABELS), batch_size=20)
    make = loaders()[how]
    loader = make()
    plain = script(loader, validated=validation)
    loader = make()
    watched = script(
        loader,
        validated=validation,
        after=lambda model: observed.append(unchanged() != before),
        watched=lambda model: probe(model, server.host, server.port, run=how, block=True),
    )
    watch = watched[2]
    assert observed == [True] * EPOCHS
    watch.remove()
    assert unchanged() == before
    assert not LOADERS.arrivals.recent
    assert all(torch.equal(one, other) for one, other in zip(plain[0], watched[0], strict=True))
    assert torch.equal(plain[1], watched[1])
    check_ids(kept)
    validated = [record for record in records(kept) if record.mode == "eval"]
    assert {record.epoch for record in validated} == {1, 2, 3, 4}
    assert all((record.items < 0).all() for record in validated)  # rows of another dataset
    assert watch.status()["troubles"] == 0
    assert "found from the DataLoader over" in watch.status()["epochs"]
    assert "found from the sampler of the DataLoader" in watch.status()["items"]


@pytest.mark.long
def test_two_lines_give_right_scores_and_say_how(served):
    """One line probes, one gives the labels."""
    server, path = served
    labels = (ROWS[:, 0] >= 48).long()

    def watched(model):
        watch = probe(model, server.host, server.port, run="two lines", block=True)
        register_targets(server.host, server.port, name="half", targets=labels)
        return watch

    script(DataLoader(DATA, batch_size=20, shuffle=True), watched=watched)[2].remove()
    assert flush(server.host, server.port)
    with Database(path) as database:
        points = database.points("two lines", "Net").where(target="half", score="lda_f1", address="seen")
        notices = {one["code"]: one for one in database.notices("two lines") if one["run"] == "two lines"}
    assert points["epoch"].tolist() == [1, 2, 3, 4]
    assert min(points["value"]) > 0.8  # the layer has the number of the row; other labels give about .5
    assert set(points["note"].tolist()) == {""}
    assert {code: one["level"] for code, one in notices.items()} == {"epochs": "info", "items": "info"}
    assert "iterated anew" in notices["epochs"]["text"]
    assert "sampler of the DataLoader over TensorDataset of 96 items" in notices["items"]["text"]


def test_probe_set_runs_on_untrained_model_and_after_each_epoch(served):
    server, path = served
    states = []

    def watched(model):
        states.append([p.detach().clone() for p in model.parameters()])
        return probe(
            model, server.host, server.port, "head.1", run="epoch 0", probe_set=(ROWS, {"y": LABELS})
        )

    def after(model):
        states.append([p.detach().clone() for p in model.parameters()])

    plain = script(DataLoader(DATA, batch_size=20, shuffle=True))
    watched_run = script(DataLoader(DATA, batch_size=20, shuffle=True), watched=watched, after=after)
    assert all(torch.equal(one, other) for one, other in zip(plain[0], watched_run[0], strict=True))
    watched_run[2].remove()
    assert flush(server.host, server.port)
    with Database(path) as database:
        means = database.points("epoch 0", "Net").where(score="mean", address="head.1")
    expected = [float(F.linear(ROWS / 96, *state).mean()) for state in states]
    assert means["epoch"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(means["value"], expected, rtol=1e-4, atol=1e-6)


def test_subset_has_ids_of_whole_dataset(served, kept):
    server, _ = served
    part = Subset(DATA, torch.randperm(96, generator=torch.Generator().manual_seed(1))[:60].tolist())
    rest = Subset(DATA, sorted(set(range(96)) - set(part.indices)))
    script(
        lambda: DataLoader(part, batch_size=16, shuffle=True),
        validated=DataLoader(rest, batch_size=16),
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2].remove()
    check_ids(kept, rows=60)
    check_ids(kept, mode="eval", rows=36)  # the same dataset, so its ids are known too


HALVES = torch.randperm(96, generator=torch.Generator().manual_seed(1)).split(40)


@pytest.mark.parametrize(
    "joined",
    [
        pytest.param(lambda: ConcatDataset([Subset(DATA, one.tolist()) for one in HALVES]), id="folds"),
        pytest.param(
            lambda: ConcatDataset([Subset(TensorDataset(ROWS, LABELS), one.tolist()) for one in HALVES]),
            id="of datasets of the same tensors",
        ),
        pytest.param(
            lambda: Subset(
                ConcatDataset([Subset(Subset(DATA, range(95, -1, -1)), HALVES[0]), Subset(DATA, HALVES[1])]),
                range(79, -1, -1),
            ),
            id="subset of folds, one of a subset",
        ),
        pytest.param(
            lambda: ConcatDataset([ConcatDataset([Subset(DATA, range(50, 90))]), Subset(DATA, range(9))]),
            id="folds of folds",
        ),
    ],
)
def test_joined_subsets_of_a_dataset_have_its_ids(served, kept, joined):
    server, _ = served
    watch = script(
        lambda: DataLoader(joined(), batch_size=16, shuffle=True),
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2]
    assert "row i of the TensorDataset that its subsets are of" in watch.status()["items"]
    watch.remove()
    check_ids(kept, rows=len(joined()))


def test_joined_subsets_of_several_datasets_have_ids_of_the_whole(served, kept):
    server, _ = served
    parts = TensorDataset(ROWS[:48], LABELS[:48]), TensorDataset(ROWS[48:], LABELS[48:])
    joined = ConcatDataset([Subset(one, range(48)) for one in parts])
    watch = script(
        lambda: DataLoader(joined, batch_size=16, shuffle=True),
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2]
    assert "row i of its dataset" in watch.status()["items"]
    watch.remove()
    check_ids(kept, rows=96)


def test_ranks_have_ids_of_whole_dataset(served, kept):
    server, _ = served
    sampler = DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=True)
    script(
        DataLoader(DATA, batch_size=16, sampler=sampler),
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2].remove()
    check_ids(kept, rows=48)


def by_norm(samples):
    return default_collate(sorted(samples, key=lambda sample: -float(sample[0].norm())))


def by_distance(samples):
    """Sort a batch, which changes the order of the first alone."""
    return default_collate(sorted(samples, key=lambda sample: abs(float(sample[0][0]) - 5)))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


class Named(Dataset):
    def __getitem__(self, name):
        return DATA[int(name[1:])]


REFUSED = {
    "an IterableDataset has no indices": lambda: DataLoader(Stream(), batch_size=20),
    "its collate_fn changes the order": lambda: DataLoader(DATA, 20, collate_fn=by_norm),
    "its collate_fn changes the order of": lambda: DataLoader(DATA, 20, collate_fn=by_distance),
    "in_order=False": lambda: DataLoader(DATA, 20, num_workers=2, in_order=False),
    "its sampler gives list, and not indices": lambda: DataLoader(
        Named(), 20, sampler=[f"n{number}" for number in range(96)]
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("reason", list(REFUSED))
def test_rows_that_a_sampler_does_not_tell_have_no_ids(served, kept, reason):
    server, _ = served
    watch = script(
        REFUSED[reason](), watched=lambda model: probe(model, server.host, server.port, block=True)
    )[2]
    watch.remove()
    assert reason in watch.status()["items"]
    assert {record.epoch for record in records(kept)} == {1, 2, 3, 4}
    assert all(record.items is None or (record.items < 0).all() for record in records(kept))


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (lambda x: x.double().float(), True),
        (lambda x: x.clone(), True),
        (lambda x: x.view(2, -1, 6).flatten(0, 1), True),
        (lambda x: x.flip(0), False),
        (lambda x: x[torch.argsort(x[:, 1])], False),
        (lambda x: x + 1e-3, False),
    ],
    ids=["copy", "clone", "view", "flipped", "sorted", "changed"],
)
def test_rows_changed_after_the_loader_have_ids_only_if_they_are_the_same(served, kept, changed, found):
    server, _ = served
    watch = script(
        DataLoader(DATA, batch_size=16, shuffle=True),
        changed=changed,
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2]
    watch.remove()
    if found:
        check_ids(kept)
    else:
        assert {record.epoch for record in records(kept)} == {1, 2, 3, 4}
        assert all((record.items < 0).all() for record in records(kept))
        assert "no tensor of the newest" in watch.status()["items"]


def test_script_wins(served, kept):
    server, _ = served
    model, loader = Net(), DataLoader(DATA, batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe(model, server.host, server.port) as watch:
        for watch.epoch in (7, 9):
            for x, y in loader:
                watch.items = x[:, 0].long() + 500
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    assert {record.epoch for record in records(kept)} == {7, 9}
    assert all((record.items == record.array[:, 0] + 500).all() for record in records(kept))
    assert watch.status()["epochs"] == watch.status()["items"] == "set by the script"


def test_peeked_batch_and_second_stream_are_no_epochs(served, kept):
    server, _ = served
    torch.manual_seed(0)
    model, loader = Net(), DataLoader(DATA, batch_size=32, shuffle=True)
    others = DataLoader(TensorDataset(ROWS * 2), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe(model, server.host, server.port, block=True) as watch:
        model(next(iter(loader))[0])  # to see a shape
        for _ in range(2):
            for x, y in loader:
                (more,) = next(iter(others))
                (F.cross_entropy(model(x), y) + model(more).mean()).backward()
                optimizer.step()
    assert [watch.epoch, {record.epoch for record in records(kept)}] == [2, {1, 2}]


def test_epochs_of_script_without_loader(served, kept):
    """The first batch comes again. A batch used twice between two steps is no epoch."""
    server, _ = served
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe(model, server.host, server.port, block=True) as watch:
        for _ in range(3):
            for x, y in zip(ROWS.split(32), LABELS.split(32), strict=True):
                (F.cross_entropy(model(x), y) + F.cross_entropy(model(x), y)).backward()
                optimizer.step()
    assert [record.epoch for record in records(kept)] == [1] * 6 + [2] * 6 + [3] * 6
    assert "found from the first batch" in watch.status()["epochs"]


def test_one_epoch_without_a_sign_of_others_is_said(served):
    server, path = served
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe(model, server.host, server.port, run="one", block=True) as watch:
        for _ in range(3):
            for rows in torch.randperm(96).split(32):
                F.cross_entropy(model(ROWS[rows]), LABELS[rows]).backward()
                optimizer.step()
        said = "No new epoch was found since epoch 1, although rows that were compared came twice on average"
        assert said in watch.status()["epochs"]
    assert flush(server.host, server.port)
    assert any(said in fault for fault in watch.status()["faults"])
    with Database(path) as database:
        assert any(said in one["text"] for one in database.notices("one"))


def test_failed_probe_observes_no_loaders(served):
    server, _ = served
    before = unchanged()
    with pytest.raises(AddressError):
        probe(Net(), server.host, server.port, "nothing")
    assert unchanged() == before


def test_positional_arguments_are_those_of_the_paper():
    assert list(inspect.signature(probe).parameters)[:5] == ["model", "host", "port", "which", "when"]
    assert all(
        parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        for parameter in list(inspect.signature(probe).parameters.values())[:5]
    )


def test_weighted_sampler_repeats_items(served, kept):
    server, _ = served
    sampler = WeightedRandomSampler([1.0] * 96, 96, replacement=True)
    script(
        DataLoader(DATA, batch_size=16, sampler=sampler),
        watched=lambda model: probe(model, server.host, server.port, block=True),
    )[2].remove()
    check_ids(kept)


@pytest.mark.long
def test_skipped_passes_of_found_rows_are_no_trouble(served, kept, caplog, monkeypatch):
    """Labels of rows with ids do not depend on passes that the budget skips."""
    monkeypatch.setattr("intus.monitoring.budget.FREE_S", 0.0)
    server, _ = served
    watch = script(
        DataLoader(DATA, batch_size=16, shuffle=True),
        watched=lambda model: probe(model, server.host, server.port, structure=False, budget=1e-9),
    )[2]
    watch.remove()
    assert watch.status()["skipped"] > 0
    assert "random order" not in caplog.text
    assert "labels cannot be" not in caplog.text
    for record in records(kept):
        np.testing.assert_array_equal(record.items, record.array[:, 0].astype(np.int64))


def test_model_that_trains_without_a_loader_is_told_nothing_of_one_of_another_model(served):
    """Before, its rows were said not to be found from that loader, as long as that model was watched."""
    server, path = served

    def without_loader(run):
        script(
            lambda: zip(ROWS.split(12), LABELS.split(12), strict=True),
            watched=lambda model: probe(model, server.host, server.port, run=run, structure=False),
        )[2].remove()
        assert flush(server.host, server.port)
        with Database(path) as database:
            return {(one["code"], one["text"]) for one in database.notices() if one["run"] == run}

    alone = without_loader("alone")
    first = script(
        DataLoader(DATA, batch_size=12, shuffle=True),
        watched=lambda model: probe(model, server.host, server.port, run="first", structure=False),
    )[2]
    assert "sampler" in first.status()["items"]
    assert without_loader("after another") == alone
    first.remove()


def test_rows_of_skipped_passes_are_looked_up_once_an_epoch(served, monkeypatch):
    """Before, the batch of each skipped pass was compared with those of the DataLoader."""
    looked_up = []
    monkeypatch.setattr("intus.monitoring.budget.Budget._affords", lambda self, now, mode, is_first: False)
    items = LOADERS.items
    monkeypatch.setattr(LOADERS, "items", lambda *args: looked_up.append(args) or items(*args))
    server, _ = served
    script(
        DataLoader(DATA, batch_size=8, shuffle=True),
        watched=lambda model: probe(model, server.host, server.port, structure=False),
    )[2].remove()
    assert len(looked_up) == EPOCHS


def test_time_of_other_processes_is_not_charged_for_finding_epochs(served, monkeypatch):
    """Whoever waits for the processor while an epoch is looked for has taken nothing from the training."""
    origin = LOADERS.origin
    monkeypatch.setattr(
        LOADERS, "origin", lambda *args, **options: time.sleep(0.04) or origin(*args, **options)
    )
    monkeypatch.setattr("intus.monitoring.budget.Budget._affords", lambda self, now, mode, is_first: False)
    server, _ = served
    watch = script(
        DataLoader(DATA, batch_size=8),
        watched=lambda model: probe(model, server.host, server.port, structure=False),
    )[2]
    watch.remove()
    assert watch.status()["passes"] * 0.04 > 1.8 > 4 * watch.status()["spent"]
