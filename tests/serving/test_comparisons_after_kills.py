"""Scores that compare layers and epochs: of parts that are scored before the rest, and after kills."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from server_help import Served
from serving_help import point, record

from intus.serving.aggregation.aggregator import Aggregator
from intus.serving.aggregation.service import AggregatorService
from intus.serving.evaluation.evaluator import Evaluator
from intus.serving.evaluation.relations import Relations
from intus.serving.evaluation.scoring import evaluate
from intus.serving.frontend import Frontend
from intus.serving.http.remote import RemoteFrontend
from intus.serving.schedule import Moment
from intus.storage.codec import encode_records
from intus.storage.database import Database
from intus.storage.kept_sketch import KeptSketch
from intus.storage.sketches import KEPT_EPOCHS

LAYERS, ROWS = ("a", "b", "c"), 60
SKETCH = KeptSketch("a", 1.5, 2.0, -1, (1.0, -1), 0, b"content")


def array_of(layer, epoch):
    """Return the rows of a layer; those of the layers and epochs of a run are related."""
    drawn = np.random.default_rng(0).normal(size=(ROWS, 8))
    turned = np.random.default_rng([LAYERS.index(layer), epoch]).normal(size=(8, 8))
    return (drawn @ (np.eye(8) + 0.3 * turned)).astype(np.float32)


def records_of(epoch, rows=slice(None), layers=LAYERS):
    """Return an epoch's records of some rows, each layer with item ids."""
    items = np.arange(ROWS)[rows]
    return [
        record(array=array_of(layer, epoch)[rows], address=layer, epoch=epoch, items=items)
        for layer in layers
    ]


def requests_of(epoch):
    """Return an epoch as two requests, each of a part of the rows of all layers."""
    for part, rows in enumerate((slice(0, 25), slice(25, None))):
        sent, ended = (part + 1) * len(LAYERS), part == 1
        report = {"run": "r", "model": "m", "epoch": epoch, "sent": sent, "ended": ended}
        envelope = {"client": "c", "seq": 2 * epoch + part, "dropped": 0, "epochs": [report]}
        yield encode_records(records_of(epoch, rows), envelope)


def send(server, epochs):
    """Send whole epochs."""
    for body in (body for epoch in epochs for body in requests_of(epoch)):
        assert server.ask("/records", body)[0] == 200


def table(path):
    """Return all rows of the run but when its training began, by what they are of."""
    with Database(path) as database:
        points = database.points("r", "m")
    keys = "address", "epoch", "kind", "score"
    cells = "value", "low", "high", "baseline", "n", "note"
    return {
        tuple(row[name] for name in keys): tuple(str(row[name]) for name in cells) for row in iter(points)
    }


def cka(x, y):
    """Compute unbiased CKA with matrices of ones (Song et al. 2012, equation 5)."""

    def hsic(k, other):
        n, one = len(k), np.ones(len(k))
        middle = one @ k @ one * (one @ other @ one) / ((n - 1) * (n - 2))
        return np.trace(k @ other) + middle - 2 / (n - 2) * (one @ k @ other @ one)

    k, other = (a @ a.T * (1 - np.eye(len(a))) for a in (x.astype(float), y.astype(float)))
    return hsic(k, other) / np.sqrt(hsic(k, k) * hsic(other, other))


def check_comparisons(found, epochs):
    """Check that the comparisons are all there, and as numpy computes them from the rows."""
    expected = {
        (layer, float(epoch), "output", "cka_epoch"): cka(array_of(layer, epoch), array_of(layer, epoch - 1))
        for layer in LAYERS
        for epoch in range(1, epochs)
    }
    expected |= {
        (layer, float(epoch), "output", "cka_layer"): cka(array_of(layer, epoch), array_of(before, epoch))
        for before, layer in pairwise(LAYERS)
        for epoch in range(epochs)
    }
    assert {key for key in found if key[-1].startswith("cka")} == expected.keys()
    for key, value in expected.items():
        assert float(found[key][0]) == pytest.approx(value, abs=1e-4)
        assert int(found[key][4]) == ROWS
        assert "incomplete" not in found[key][5]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the scores of eight epochs without a kill."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Served(folder) as server:
        send(server, range(8))
        assert server.flush()[0] == 200
    found = table(folder / "x.db")
    check_comparisons(found, 8)
    return found


@pytest.mark.parametrize(
    "pauses",
    [(0.15,), *(pytest.param(one, marks=pytest.mark.long) for one in [(0,), (0.4,), (0.1, 0.1, 0.1)])],
)
def test_scores_are_the_same_if_the_server_is_killed_while_epochs_wait(tmp_path, undisturbed, pauses):
    """Comparisons with an epoch that was scored before a kill were missing, without a word."""
    server = Served(tmp_path)
    send(server, range(8))
    for pause in pauses:
        time.sleep(pause)
        server.kill()
        server = Served(tmp_path)
    with server:
        assert server.flush()[0] == 200
    assert table(tmp_path / "x.db") == undisturbed


@pytest.mark.parametrize("end", [pytest.param("terminate", marks=pytest.mark.long), "kill"])
def test_scores_are_the_same_if_the_server_ends_inside_of_an_epoch(tmp_path, undisturbed, end):
    """The comparison with the epoch before stayed that of the part, marked incomplete."""
    server = Served(tmp_path)
    send(server, range(5))
    first, second = requests_of(5)
    assert server.ask("/records", first)[0] == 200
    assert server.flush()[0] == 200
    getattr(server.process, end)()
    server.process.wait()
    server = Served(tmp_path)
    assert server.ask("/records", second)[0] == 200
    send(server, range(6, 8))
    with server:
        assert server.flush()[0] == 200
    assert table(tmp_path / "x.db") == undisturbed


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "x.db") as database:
        yield database


def test_part_of_an_epoch_is_not_compared_with_what_came_last(database):
    """The first layer had a cka_layer with the last one, of a part of the rows."""
    service = AggregatorService(Evaluator(Frontend(database)), Aggregator())
    service.records(records_of(0, slice(0, 20)), {})
    service.flush()
    service.records(records_of(0, slice(20, None)), {})
    service.flush()
    found = table(database.url.database)
    service.close()
    check_comparisons(found, 1)


def test_layers_that_are_scored_out_of_turn_are_compared_in_the_order_of_the_network(database):
    relations, found = Relations(), {}
    for number in (1, 2, 0):
        each = replace(point(records_of(0)[number]), number=number)
        scored = evaluate(each, [], relations=relations)
        for row in [*scored.results, *scored.later]:
            if row["score"] == "cka_layer":
                found[row["address"]] = row["note"], row["n"]
    assert found == {"b": ("with a", ROWS), "c": ("with b", ROWS)}


def test_layer_that_comes_late_replaces_the_comparison_of_its_neighbors():
    relations, notes = Relations(), []
    for number in (0, 2, 1):
        each = replace(point(records_of(0)[number]), number=number)
        scored = evaluate(each, [], relations=relations)
        notes.append(
            [(r["address"], r["note"]) for r in [*scored.results, *scored.later] if "cka" in r["score"]]
        )
    assert notes == [[], [("c", "with a")], [("b", "with a"), ("c", "with b")]]


def test_comparison_that_is_not_possible_any_more_says_so():
    """Rows without ids of two layers are compared only if there are as many."""
    relations = Relations()
    first, second = (
        replace(point(replace(one, items=None)), number=number)
        for number, one in enumerate(records_of(0, layers=("a", "b")))
    )
    evaluate(first, [], relations=relations)
    assert "cka_layer" in set(evaluate(second, [], relations=relations).results["score"])
    more = np.concatenate([first.records[0].array, first.records[0].array])
    more = replace(first, records=(replace(first.records[0], array=more),))
    (row,) = evaluate(more, [], relations=relations).later
    assert (row["address"], row["score"], row["value"]) == ("b", "cka_layer", None)
    assert row["note"] == "with a, before more rows came: the layer before it has other rows"


def test_epoch_before_of_which_nothing_is_kept_is_told():
    after = replace(point(records_of(1)[0]), previous=(0.0, -1))
    relations = Relations()
    sketch = evaluate(after, [], relations=Relations()).known.sketch
    (row,) = relations.of(after, sketch, [], Moment(0, 1.0)).own
    assert (row.score, row.note) == ("cka_epoch", "with epoch 0: no rows of it are kept")
    assert relations.of(after, sketch, [], Moment(0, 0.0)).own == []  # it will be scored


def test_equal_outputs_are_compared_with_their_own_epoch_before(database):
    """A layer with the rows of another in one epoch need not have had them in the epoch before."""
    service = AggregatorService(Evaluator(Frontend(database)), Aggregator())
    for epoch in range(3):
        second = "a" if epoch == 1 else "b"  # the rows of both are equal in epoch 1 alone
        arrays = {"a": array_of("a", epoch), "b": array_of(second, epoch)}
        sent = [record(array=arrays[name], address=name, epoch=epoch, items=np.arange(ROWS)) for name in "ab"]
        service.records(sent, {})
        service.flush()
    points = database.points("r", "m", score="cka_epoch", address="b")
    service.close()
    rows = [array_of("b", 0), array_of("a", 1), array_of("b", 2)]
    expected = [cka(rows[1], rows[0]), cka(rows[2], rows[1])]
    assert points["value"].tolist() == pytest.approx(expected, abs=1e-4)


def test_database_keeps_what_epochs_can_still_be_compared_with(database):
    database.put_run("r", "m", tags=["a"])
    for epoch in range(8):
        database.keep_sketch("r", "m", SKETCH._replace(epoch=float(epoch)), (2.0, -1) if epoch < 5 else None)
        kept = [each.epoch for each in database.sketches("r", "m", 1.5)]
        assert len(kept) == min(epoch + 1, KEPT_EPOCHS if epoch >= 5 else epoch + 1)
    assert kept == [5, 6, 7]
    database.keep_sketch("r", "m", SKETCH._replace(training=2.5))
    assert database.sketches("r", "m", 1.5) == []
    assert database.sketches("r", "m", 2.5) == [SKETCH._replace(training=2.5, content=b"")]
    database.remove("m")
    assert database.sketches("r", "m", 2.5) == []


def test_evaluator_of_its_own_keeps_samples_at_the_frontend(tmp_path):
    with Served(tmp_path) as server:
        assert server.send(0) == 200
        assert server.flush()[0] == 200
        frontend = RemoteFrontend(f"http://{server.host}:{server.port}")
        frontend.keep_sketch("r", "m", SKETCH, Moment(0, 2.0))
        assert frontend.sketches("r", "m", SKETCH.training) == [SKETCH._replace(content=b"")]
        assert frontend.sketches("r", "m", SKETCH.training, ("a", 2.0, -1)) == [SKETCH]
        assert frontend.sketches("r", "m", SKETCH.training, ("b", 2.0, -1)) == []
