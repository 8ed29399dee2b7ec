"""Doubts of rows in the database, which points have whether they come before or after."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.doubt import Doubt
from intus.core.results import Predictions, Results
from intus.storage import doubts as doubts_module
from intus.storage.database import Database

SHOWN = ["address", "target", "score", "epoch", "mode", "value", "low", "note", "training"]


def row(**facts):
    named = {"run": "r", "model": "m", "address": "fc1", "target": "t", "score": "f1", "mode": "train"}
    return named | {"epoch": 1, "value": 0.5, "low": 0.4, "note": "a note", "training": 10.0} | facts


ROWS = [
    row(**facts)
    for facts in (
        {},
        {"epoch": 2},
        {"mode": "eval", "kind": "output@eval"},
        {"address": "fc2"},
        {"target": "", "score": "mean"},
        {"target": "", "score": "cka_epoch"},
        {"target": "", "score": "cka_layer"},
        {"epoch": 0, "training": 5.0},
        {"epoch": 3, "value": math.nan, "low": math.nan, "note": "no value, because"},
        {"target": "", "score": "mean", "step": 4},
    )
]
DOUBTS = st.builds(
    Doubt,
    st.sampled_from(["doubt a", "doubt b"]),
    st.booleans(),
    st.sampled_from([None, 0.0, 1.0]),
    st.sampled_from([None, 1.0, 2.0]),
    st.sampled_from([(), ("train",), ("eval", "probe")]),
    st.sampled_from([None, "fc1"]),
    st.sampled_from([5.0, 10.0]),
    st.just(""),
    st.booleans(),
)


def shown(database):
    found = database.columns("r", "m", SHOWN)
    found["note"] = ["; ".join(sorted(note.split("; "))) for note in found["note"]]
    return sorted(zip(*found.values(), strict=True), key=repr)


@pytest.mark.long
@settings(max_examples=25)
@given(st.lists(DOUBTS, max_size=2))
def test_points_have_doubts_in_whatever_order_both_come_and_however_often(tmp_path_factory, doubts):
    """Rows that are computed again, as after a restart, stay what they are, without a further revision."""
    outcomes = set()
    for order in permutations(["rows", *doubts]):
        with Database(tmp_path_factory.mktemp("order") / "x.db") as database:
            for step in [*order, *order]:
                if step == "rows":
                    database.add(Results.from_rows(ROWS))
                else:
                    database.put_doubt("r", "m", step)
            before = database.columns("r", "m", ["revision"])
            for step in order:
                if step == "rows":
                    database.add(Results.from_rows(ROWS))
                else:
                    database.put_doubt("r", "m", step)
            assert database.columns("r", "m", ["revision"]) == before
            outcomes.add(tuple(shown(database)))
    assert len(outcomes) == 1 or len({one.note for one in doubts if one.withdraw}) > 1


@pytest.mark.parametrize(
    ("doubt", "doubted"),
    [
        (Doubt("d", training=10.0), {0, 1, 2, 3, 5}),
        (Doubt("d", until=1.0, training=10.0), {0, 2, 3, 5}),
        (Doubt("d", after=1.0, training=10.0), {1}),
        (Doubt("d", modes=("eval",), training=10.0), {2}),
        (Doubt("d", address="fc1", training=10.0), {0, 1, 2, 5, 6}),
        (Doubt("d", training=5.0), {7}),
        (Doubt("d"), {0, 1, 2, 3, 5}),  # of the newest training
        (Doubt("d", after=0.5, until=1.0, modes=("train",), every=True), {0, 3, 4, 5, 6}),  # of whole epochs
    ],
)
@pytest.mark.parametrize("withdraw", [False, True])
def test_doubt_is_of_the_named_rows_alone(tmp_path, doubt, doubted, withdraw):
    doubt = replace(doubt, withdraw=withdraw)
    with Database(tmp_path / "x.db") as database:
        for one in ROWS:
            database.add(Results.from_rows([one]))
        before = database.change_number()
        database.put_doubt("r", "m", doubt)
        for number, one in enumerate(ROWS):
            named = {name: one[name] for name in ("address", "target", "score", "epoch", "mode")}
            named["step"] = one.get("step", -1)
            found = database.columns("r", "m", ["value", "low", "note"], **named)
            note = found["note"][0].partition("; of an earlier training")[0]
            if number not in doubted:
                assert note == one["note"], number
                assert found["value"][0] is None or found["value"][0] == one["value"]
            elif withdraw:
                assert (found["value"], found["low"], note) == ([None], [None], "d"), number
            else:
                assert (found["value"], found["low"], note) == ([0.5], [0.4], "a note; d"), number
        epochs = set(database.epochs_after("r", "m", before))
    assert epochs >= {ROWS[number]["epoch"] for number in doubted}
    after, until = (
        each if each is not None else none for each, none in [(doubt.after, -1), (doubt.until, 9)]
    )
    assert all(after < epoch <= until for epoch in epochs)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def place(request, tmp_path):
    return tmp_path / "x.db" if request.param == "sqlite" else request.getfixturevalue("new_postgres")()


def expected(added, doubts):
    """Return what the points of a plain list are: the last row of each key, with each doubt about it."""
    out = []
    for one in added.values():
        facts = [one[name] for name in ("address", "target", "score", "epoch", "mode", "training", "note")]
        told = [each for each in doubts if each.concerns(*facts, one.get("step", -1))]
        value, low, note = one["value"], one["low"], one["note"]
        if math.isnan(value):
            value = low = None
        elif withdrawn := [each.note for each in told if each.withdraw]:
            value, low, note = None, None, min(withdrawn)
        else:
            note = "; ".join([note, *sorted({each.note for each in told})])
        note += "; of an earlier training under the same run=" if one["training"] < 10.0 else ""
        shown_ = note if ";" not in note else "; ".join(sorted(note.split("; ")))
        of_key = (one[name] for name in ("address", "target", "score", "epoch", "mode"))
        out.append((*of_key, value, low, shown_, one["training"]))
    return sorted(out, key=repr)


@pytest.mark.parametrize("seed", range(12))
def test_points_that_are_written_while_a_doubt_is_stored_have_it_and_none_is_lost(place, monkeypatch, seed):
    """Points are added, overwritten and doubted between the steps; the judge is a plain list."""
    rng = np.random.default_rng(seed)
    some = ["doubt a", "doubt b"][: 1 + seed % 2]
    added, doubts, busy = {}, [], []
    monkeypatch.setattr(doubts_module, "MOST_AT_ONCE", 2)

    def add(database):
        rows_ = [ROWS[number] for number in rng.choice(len(ROWS), 4, replace=False)]
        rows_ = [
            one | {"epoch": float(one["epoch"]), "value": one["value"] + int(rng.integers(3))}
            for one in rows_
        ]
        database.add(Results.from_rows(rows_))
        for one in rows_:
            added[
                (*(one[name] for name in ("address", "target", "score", "epoch", "mode")), one.get("step"))
            ] = one

    def put(database):
        after, until = [(None, None), (0.0, 1.0), (None, 2.0)][rng.integers(3)]
        modes = [(), ("train",)][rng.integers(2)]
        doubt = Doubt(some[rng.integers(len(some))], len(some) == 1, after, until, modes, training=10.0)
        doubts.append(replace(doubt, every=bool(rng.integers(2))))
        database.put_doubt("r", "m", doubts[-1])

    def between(name):
        original = getattr(doubts_module, name)

        def call(connection, *args):
            if name == "concerned" and len(busy) < 3:
                busy.append(name)
                (add if rng.integers(2) else put)(database)
            out = original(connection, *args)
            if name == "concerned":
                add(database)
            return out

        monkeypatch.setattr(doubts_module, name, call)

    with Database(place) as database:
        add(database)
        between("concerned")
        for _ in range(seed % 4):
            (add if rng.integers(2) else put)(database)
            busy.clear()
        put(database)
        found = shown(database)
    assert found == expected(added, doubts)


def test_doubt_that_a_kill_has_left_half_done_is_finished(tmp_path, monkeypatch):
    doubt = Doubt("d", training=10.0, every=True)
    apply = doubts_module.apply
    monkeypatch.setattr(doubts_module, "MOST_AT_ONCE", 2)
    calls = []

    def killed(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return apply(*args)

    with Database(tmp_path / "x.db") as database:
        database.add(Results.from_rows(ROWS))
        monkeypatch.setattr(doubts_module, "apply", killed)
        with pytest.raises(KeyboardInterrupt):
            database.put_doubt("r", "m", doubt)
        monkeypatch.setattr(doubts_module, "apply", apply)
        assert sum("; d" in note for note in database.columns("r", "m", ["note"])["note"]) == 7
        assert len(database.columns("r", "m", ["value"], note="a note; d")["value"]) == 2  # are rewritten
    with Database(tmp_path / "x.db") as database:
        assert sum("; d" in note for note in database.columns("r", "m", ["note"])["note"]) == 7
        assert database.put_doubt("r", "m", doubt) == 0


def predicted(epoch):
    numbers = np.arange(4)
    facts = ("r", "m", epoch, -1, "fc1", "output", "t", "f1")
    return Predictions(*facts, ("a", "b"), numbers, numbers % 2, numbers % 2)


@pytest.mark.parametrize("withdraw", [False, True])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
def test_readers_see_a_doubt_on_all_of_its_points_or_on_none(place, monkeypatch, withdraw, every):
    """Before, those that were rewritten had it, and others not yet: of one layer or of a whole page."""
    monkeypatch.setattr(doubts_module, "MOST_AT_ONCE", 2)
    rows = [row(epoch=epoch, address=f"fc{layer}") for epoch in range(6) for layer in (1, 2)]
    seen, followed, stop = [], [], threading.Event()

    def state(reader):
        points = reader.columns("r", "m", ["epoch", "address", "value", "note"])
        return tuple(zip(*points.values(), strict=True))

    def read(reader):
        while not stop.is_set():
            seen.append((state(reader), reader.predictions("r", "m", "fc1", "t", ["f1"]) is None))

    def follow(reader):
        """Read what changed alone, as the page does."""
        points, change = {}, 0
        while not stop.is_set():
            now = reader.change_number()
            for epoch in reader.epochs_after("r", "m", change) or []:
                points[epoch] = tuple(reader.columns("r", "m", ["value", "note"], epochs=[epoch])["note"])
            change = now
            followed.append(tuple(points[epoch] for epoch in sorted(points)))

    with Database(place) as database, Database(place) as one, Database(place) as other:
        database.add(Results.from_rows(rows), predicted=[predicted(epoch) for epoch in range(6)])
        before = state(database)
        threads = [threading.Thread(target=read, args=[one]), threading.Thread(target=follow, args=[other])]
        for thread in threads:
            thread.start()
        while not (seen and followed):
            time.sleep(0.01)
        original = doubts_module.apply
        monkeypatch.setattr(doubts_module, "apply", lambda *args: (time.sleep(0.05), original(*args))[1])
        assert database.put_doubt("r", "m", Doubt("d", withdraw, training=10.0, every=every)) == len(rows)
        after = state(database)
        time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
    assert before != after
    assert {points for points, _ in seen} == {before, after}
    assert {is_gone for points, is_gone in seen if points == after} == {withdraw}
    assert followed[-1] == tuple((note, note) for *_, note in after[::2])
