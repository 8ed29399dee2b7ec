"""Scores of passes of several data, or of several states of the model, say so, whatever tells them apart."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

import intus
from intus.monitoring import flush, probe
from intus.serving.data_point import DataPoint, Key
from intus.serving.run import Server

HOST = "127.0.0.1"
ROWS, OTHERS, THIRD = torch.randn(3, 48, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(48) % 2
BOTH = TensorDataset(torch.cat([ROWS, OTHERS]), torch.cat([LABELS, LABELS]))
PAIRS = {
    "datasets": (TensorDataset(ROWS, LABELS), TensorDataset(OTHERS, LABELS)),
    "parts of one": (Subset(BOTH, range(48)), Subset(BOTH, range(48, 96))),
}
SEVERAL = "48 rows of the DataLoader over {0} of 48 items and 48 rows of the DataLoader over {0} of 48 items"


def loader(data, **options):
    return DataLoader(data, batch_size=16, **options)


def batches(*parts):
    return zip(*(loader(part, shuffle=True) for part in parts), strict=True)


def evaluate(model, data, changed=lambda x: x):
    model.eval()
    with torch.no_grad():
        for x, _ in data:
            model(changed(x))
    model.train()


def note_of(records):
    """Return the note that all scores of these records have, without the server's other facts."""
    first = records[0]
    return DataPoint(Key.of(first), first.kind, first.epoch, -1, tuple(records)).doubt


@pytest.fixture
def notes(server):
    """Return a function that runs a training with a probe, and returns notes by epoch and mode."""

    def run(train, *, script=False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(*outputs):
            optimizer.zero_grad()
            sum(out.square().mean() for out in outputs).backward()
            optimizer.step()

        with probe(model, HOST, server.port, run="r", structure=False, block=True) as watch:
            for epoch in (1, 2):
                if script:
                    watch.epoch = epoch
                train(model, step, watch)
        assert flush(HOST, server.port)
        found = {}
        for one in server.records():
            if one.address == "0":
                found.setdefault((one.epoch, one.mode), []).append(one)
        return {period: note_of(records) for period, records in found.items()}, watch

    return run


TRAININGS = {
    "in turns": lambda model, a, b: (model(a), model(b)),
    "computed": lambda model, a, b: (model(a * 2), model(b * 2)),
    "together": lambda model, a, b: (model(torch.cat([a, b])),),
}


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("pair", list(PAIRS))
@pytest.mark.parametrize("calls", list(TRAININGS))
def test_scores_of_two_datasets_that_train_say_so(notes, calls, pair, script):
    def train(model, step, watch):
        for (a, _), (b, _) in batches(*PAIRS[pair]):
            step(*TRAININGS[calls](model, a, b))

    found, _ = notes(train, script=script)
    name = type(PAIRS[pair][0]).__name__
    assert set(found) == {(1, "train"), (2, "train")}
    for note in found.values():
        if calls == "in turns":
            assert note == f"of {SEVERAL.format(name)}"
        else:
            assert note.startswith("perhaps of several data: of the DataLoader over")
            assert " or the DataLoader over" in note


@pytest.mark.parametrize(("first", "second", "views"), [(8, 16, 1), (4, 16, 1), (12, 18, 1), (6, 8, 2)])
def test_scores_of_joined_batches_of_several_sizes_say_so(notes, first, second, views):
    """Before, rows whose number is a multiple of one of the sizes were said to be of that loader alone."""

    def train(model, step, watch):
        one, other = (
            DataLoader(part, size) for part, size in zip(PAIRS["parts of one"], (first, second), strict=True)
        )
        for (a, _), (b, _) in zip(one, other):  # noqa: B905
            step(model(torch.cat([a, *[b + at for at in range(views)]])))

    found, _ = notes(train)
    assert {epoch for epoch, _ in found} == {1, 2}
    for note in found.values():
        assert note.startswith("perhaps of several data: of the DataLoader over")


def test_batches_that_are_not_in_the_input_are_not_named(notes):
    """A number of rows that no sum of the other batches completes is of one loader alone."""

    def train(model, step, watch):
        one, other = (
            DataLoader(part, size) for part, size in zip(PAIRS["parts of one"], (12, 16), strict=True)
        )
        for (a, _), _ in zip(one, other):  # noqa: B905
            step(model(a * 2))

    found, _ = notes(train)
    assert set(found.values()) == {""}


def test_two_datasets_one_after_another_in_one_epoch_say_so(notes):
    def train(model, step, watch):
        for data in PAIRS["datasets"]:
            for x, _ in loader(data, shuffle=True):
                step(model(x))

    found, _ = notes(train, script=True)
    assert set(found.values()) == {f"of {SEVERAL.format('TensorDataset')}"}


def test_training_on_a_loader_and_on_rows_of_no_loader_says_so(notes):
    def train(model, step, watch):
        for x, _ in loader(PAIRS["datasets"][0], shuffle=True):
            step(model(x), model(THIRD[:5]))

    found, _ = notes(train)
    said = "of 48 rows of the DataLoader over TensorDataset of 48 items and 15 rows of unknown data"
    assert set(found.values()) == {said}


PLAIN = {
    "as they are": lambda model, x: (model(x),),
    "computed": lambda model, x: (model(x * 2),),
    "two views": lambda model, x: (model(x + 1), model(x - 1)),
    "views together": lambda model, x: (model(torch.cat([x + 1, x - 1])),),
    "with validation inside": lambda model, x: (
        (evaluate(model, loader(TensorDataset(OTHERS, LABELS))), x)[1:] and (model(x * 2),)
    ),
}


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("calls", list(PLAIN))
def test_training_on_one_dataset_has_no_note(notes, calls, script):
    def train(model, step, watch):
        for x, _ in loader(PAIRS["datasets"][0], shuffle=True):
            step(*PLAIN[calls](model, x))
        evaluate(model, loader(PAIRS["datasets"][1]))

    found, watch = notes(train, script=script)
    assert {note for (_, mode), note in found.items() if mode == "train"} == {""}
    if calls != "with validation inside":
        assert set(found.values()) == {""}
        assert not [fault for fault in watch.status()["faults"] if "of both" in fault]


@pytest.mark.parametrize("kind", ["loader", "computed", "tensor"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_several_evaluations_in_one_epoch_say_so(notes, kind, times):
    validation = loader(TensorDataset(OTHERS, LABELS))

    def train(model, step, watch):
        for number, (x, _) in enumerate(loader(PAIRS["datasets"][0], shuffle=True)):
            step(model(x))
            if number < times:
                rows = [(OTHERS, 0)] if kind == "tensor" else validation
                evaluate(model, rows, (lambda x: x * 2) if kind == "computed" else lambda x: x)

    found, _ = notes(train)
    said = f"of {times} evaluations in one epoch, between which the model changed" if times > 1 else ""
    assert {mode: note for (_, mode), note in found.items()} == {"train": "", "eval": said}


@pytest.mark.parametrize("change", ["best weights", "in place", "through data", "values", "none"])
def test_evaluations_of_other_weights_in_one_epoch_say_so(notes, change):
    validation = loader(TensorDataset(OTHERS, LABELS))

    def train(model, step, watch):
        best = copy.deepcopy(model.state_dict())
        for x, _ in loader(PAIRS["datasets"][0], shuffle=True):
            step(model(x))
        evaluate(model, validation)
        if change == "best weights":
            model.load_state_dict(best)
        elif change == "in place":
            with torch.no_grad():
                next(model.parameters()).mul_(0.5)
        elif change == "through data":  # as an average of the weights that is copied in for a while
            for parameter in model.parameters():
                parameter.data.copy_(parameter.data * 0.5)
        elif change == "values":
            for parameter in model.parameters():
                parameter.detach().numpy()[:] = 0.5
        evaluate(model, validation)

    found, _ = notes(train)
    said = "of 2 evaluations in one epoch, between which the model changed" if change != "none" else ""
    assert {mode: note for (_, mode), note in found.items()} == {"train": "", "eval": said}


def test_rows_of_a_training_are_not_said_to_be_of_the_loader_of_a_validation(notes):
    """Rows in a random order, with a validation after each round: nothing says where an epoch begins."""
    validation = loader(TensorDataset(OTHERS, LABELS))

    def train(model, step, watch):
        for some in torch.randperm(len(ROWS)).split(16):
            step(model(ROWS[some]))
        evaluate(model, validation)

    found, _ = notes(train)
    assert not any("DataLoader" in note for (_, mode), note in found.items() if mode == "train")


def test_several_evaluations_of_a_model_that_is_not_called_to_train_say_so(notes):
    def train(model, step, watch):
        for _ in range(2):
            step(model.forward(ROWS))
            evaluate(model, [(OTHERS, 0)])

    found, _ = notes(train, script=True)
    assert set(found.values()) == {"of 2 evaluations in one epoch, between which the model changed"}


def test_two_looks_at_one_state_of_the_model_have_no_note(notes):
    def train(model, step, watch):
        step(model(ROWS))
        for _ in range(2):
            evaluate(model, [(OTHERS, 0)])

    found, _ = notes(train, script=True)
    assert set(found.values()) == {""}


def test_second_mode_of_a_training_is_no_evaluation(notes):
    """A script that names the passes of each dataset trains with both."""

    def train(model, step, watch):
        for (a, _), (b, _) in batches(*PAIRS["datasets"]):
            out, watch.mode = model(a), "unlabelled"
            step(out, model(b))
            watch.mode = None

    found, _ = notes(train)
    assert found == {(epoch, mode): "" for epoch in (1, 2) for mode in ("train", "unlabelled")}


def test_evaluation_of_rows_of_no_loader_beside_a_validation_says_so(notes):
    fixed = torch.randn(5, 4)

    def train(model, step, watch):
        for x, _ in loader(PAIRS["datasets"][0], shuffle=True):
            step(model(x))
        evaluate(model, [(fixed, 0)])
        evaluate(model, loader(TensorDataset(OTHERS, LABELS)))

    found, _ = notes(train)
    said = "of 5 rows of unknown data and 48 rows of the DataLoader over TensorDataset of 48 items"
    assert [note for (_, mode), note in found.items() if mode == "eval"] == [said] * 2


def test_rows_of_no_loader_are_not_taken_for_those_of_the_newest_loader(notes):
    """Before, the look was taken for one at the third dataset, and the validation was not recorded then."""
    fixed = torch.randn(5, 4)
    teacher = nn.Linear(4, 2)

    def train(model, step, watch):
        for x, _ in loader(PAIRS["datasets"][0], shuffle=True):
            step(model(x))
        for x, _ in loader(TensorDataset(THIRD, LABELS)):
            teacher(x)
        evaluate(model, [(fixed, 0)])
        evaluate(model, loader(TensorDataset(OTHERS, LABELS)))

    found, watch = notes(train)
    said = "of 5 rows of unknown data and 48 rows of the DataLoader over TensorDataset of 48 items"
    assert [note for (_, mode), note in found.items() if mode == "eval"] == [said] * 2
    assert watch.status()["faults"] == []


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Run a server for all tests, and return it with the path of its database."""
    path = tmp_path_factory.mktemp("stored") / "runs.db"
    with Server(database=path, port=0) as server:
        yield server, path


def test_stored_scores_of_two_datasets_say_so(stored):
    server, path = stored
    a, b = PAIRS["datasets"]
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    intus.register_targets(HOST, server.port, name="digit", targets=LABELS)
    with probe(model, HOST, server.port, run="two datasets", structure=False, block=True):
        for (x, y), (z, _) in batches(a, b):
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + model(z).square().mean()).backward()
            optimizer.step()
    assert flush(HOST, server.port)
    table = intus.runs(str(path))["two datasets"].scores()
    assert set(table.target) == {""}
    assert table[table.address == "0"].note.str.contains("rows of the DataLoader").all()


STOPS = {
    "inside": (lambda epoch, number: epoch == 2 and number == 1, {2}),
    "in the first": (lambda epoch, number: number == 1, {1}),
    "at the end": (lambda epoch, number: epoch == 2 and number == 2, set()),
}


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("how", list(STOPS))
def test_scores_of_an_epoch_inside_of_which_the_training_stops_say_so(request, stored, how, script):
    """Before, nothing said it, unless the epoch had less than half of the rows of another."""
    stops, parts = STOPS[how]
    server, path = stored
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    validation = loader(TensorDataset(OTHERS, LABELS))

    def train(watch):
        for epoch in (1, 2):
            if script:
                watch.epoch = epoch
            for number, (x, y) in enumerate(loader(PAIRS["datasets"][0], shuffle=True)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if stops(epoch, number):
                    break
            evaluate(model, validation)
            if stops(epoch, number):
                return

    intus.register_targets(HOST, server.port, name="digit", targets=LABELS)
    with probe(model, HOST, server.port, run=request.node.name, structure=False, block=True) as watch:
        train(watch)
    assert flush(HOST, server.port)
    table = intus.runs(str(path))[request.node.name].scores()
    marks = table.note.str.contains("a part of the epoch: the training stopped inside of it")
    is_part = table.epoch.isin(parts) & (table["mode"] == "train")
    assert (marks == is_part).all()
    assert set(table[table["mode"] == "train"].target) >= {"", "digit"}


AFTER = ["the next epoch", "the epochs again", "fewer epochs again"]


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_scores_of_an_epoch_that_is_broken_off_and_followed_by_others_say_so(
    request, stored, at, after, script
):
    """Before, nothing said it, unless it was the last: as of a notebook's cell that is stopped and run again.

    The numbers of rows that the scores are of are the judge.
    """
    server, path = stored
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def train(watch, epochs, stop):
        for epoch in epochs:
            if script:
                watch.epoch = epoch
            for number, (x, y) in enumerate(loader(PAIRS["datasets"][0], shuffle=at != 2)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if (epoch, number) == (stop, 1):
                    raise KeyboardInterrupt

    with probe(model, HOST, server.port, run=request.node.name, structure=False, block=True) as watch:
        with pytest.raises(KeyboardInterrupt):
            train(watch, [1, 2, 3], at)
        next_epochs = {AFTER[0]: range(at + 1, at + 3), AFTER[1]: [1, 2, 3], AFTER[2]: [1, 2]}
        train(watch, next_epochs[after], None)
    assert flush(HOST, server.port)
    table = intus.runs(str(path))[request.node.name].scores(score="mean")
    table = table[table.address == "0"]
    marks = table.note.str.contains("a part of the epoch: the training stopped inside of it")
    assert (marks == (table.n == 32)).all()
    is_replaced = script and after != AFTER[0] and at <= len(next_epochs[after])
    assert marks.sum() == (0 if is_replaced else 1)


def test_loop_of_named_epochs_that_goes_on_over_them_is_not_said_to_have_stopped(server):
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        steps = (batch for _ in range(4) for batch in loader(PAIRS["datasets"][0]))
        for step, (x, y) in enumerate(steps):
            if step % 2 == 0:
                watch.epoch = step // 2
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert flush(HOST, server.port)
    assert "/doubts" not in {path for path, _ in server.got}


def test_looks_at_a_batch_after_each_epoch_are_not_said_to_have_stopped(server):
    """A picture of a batch in training mode is no loop that was broken off."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = loader(PAIRS["datasets"][0], shuffle=True)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for watch.epoch in (1, 2, 3):
            for x, y in data:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model(next(iter(data))[0])
    assert flush(HOST, server.port)
    assert "/doubts" not in {path for path, _ in server.got}


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("at", [1, 3])
def test_epoch_that_begins_with_a_look_and_is_broken_off_is_a_part(server, at, is_computed, script):
    """Before, the look that each epoch begins with was taken for a loop that was broken off too."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = loader(PAIRS["datasets"][0], shuffle=True)
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for epoch in range(1, at + 1):
            if script:
                watch.epoch = epoch
            model(next(iter(data))[0])
            for number, (x, y) in enumerate(data):
                optimizer.zero_grad()
                F.cross_entropy(model(x + 0.01 * torch.randn(4) if is_computed else x), y).backward()
                optimizer.step()
                if (epoch, number) == (at, 1):
                    break
    assert flush(HOST, server.port)
    said = [
        bytes(body) for path, body in server.got if path == "/doubts" and b"stopped inside" in bytes(body)
    ]
    assert [json.loads(one)["until"] for one in said] == [at]


def test_epochs_that_all_have_a_part_of_the_batches_have_no_note(server):
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with probe(model, HOST, server.port, structure=False, block=True):
        for _ in range(3):
            for number, (x, y) in enumerate(loader(PAIRS["datasets"][0])):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if number == 1:
                    break
    assert flush(HOST, server.port)
    assert "/doubts" not in {path for path, _ in server.got}


CALLS = {
    "joined": lambda model, x, a: [model(torch.cat([a, x]))],
    "in turns": lambda model, x, a: [model(a), model(x)],
    "the loop's first": lambda model, x, a: [model(x), model(a)],
}


@pytest.mark.parametrize("script", [True, False], ids=["epochs named", "found"])
@pytest.mark.parametrize("calls", list(CALLS))
@pytest.mark.parametrize("size", [3, 8, 16])
@pytest.mark.parametrize("stop", [None, 1])
def test_loop_that_ended_is_not_said_to_have_stopped(server, calls, size, script, stop):
    """Before, it was said if the iterator that its body keeps over other data had batches left.

    Of joined batches, in epochs that the script names, it is not known which loader the loop is over.
    """
    main, aux = PAIRS["parts of one"]
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    others = (batch for _ in range(99) for batch in DataLoader(aux, size))
    with probe(model, HOST, server.port, structure=False, block=True) as watch:
        for epoch in (1, 2, 3):
            if script:
                watch.epoch = epoch
            for number, (x, _) in enumerate(DataLoader(main, 6)):
                optimizer.zero_grad()
                outputs = CALLS[calls](model, x, next(others)[0])
                sum(out.square().mean() for out in outputs).backward()
                optimizer.step()
                if epoch == 3 and number == stop:
                    break
    assert flush(HOST, server.port)
    said = [path for path, body in server.got if path == "/doubts" and b"stopped inside" in bytes(body)]
    assert bool(said) == (stop is not None and not (script and calls == "joined"))
