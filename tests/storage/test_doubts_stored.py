"""Doubts of rows in the database, which points have whether they come before or after."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intus.core.doubt import Doubt
from intus.core.results import Results
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
)


def shown(database):
    found = database.columns("r", "m", SHOWN)
    found["note"] = ["; ".join(sorted(note.split("; "))) for note in found["note"]]
    return sorted(zip(*found.values(), strict=True), key=repr)


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
    ],
)
@pytest.mark.parametrize("withdraw", [False, True])
def test_doubt_is_of_the_named_rows_alone(tmp_path, doubt, doubted, withdraw):
    doubt = Doubt(doubt.note, withdraw, doubt.after, doubt.until, doubt.modes, doubt.address, doubt.training)
    with Database(tmp_path / "x.db") as database:
        for one in ROWS:
            database.add(Results.from_rows([one]))
        before = database.change_number()
        database.put_doubt("r", "m", doubt)
        for number, one in enumerate(ROWS):
            named = {name: one[name] for name in ("address", "target", "score", "epoch", "mode")}
            found = database.columns("r", "m", ["value", "low", "note"], **named)
            note = found["note"][0].partition("; of an earlier training")[0]
            if number not in doubted:
                assert note == one["note"], number
                assert found["value"][0] is None or found["value"][0] == one["value"]
            elif withdraw:
                assert (found["value"], found["low"], note) == ([None], [None], "d"), number
            else:
                assert (found["value"], found["low"], note) == ([0.5], [0.4], "a note; d"), number
        epochs = database.epochs_after("r", "m", before)
    assert set(epochs) == {ROWS[number]["epoch"] for number in doubted}
