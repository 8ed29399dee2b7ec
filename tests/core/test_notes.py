"""Facts in the notes of scores: what is written is read back, whatever else a note says."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.doubt import Doubt
from intus.core.notes import Facts, SomeClasses, joined, remarks, within
from intus.storage.doubts import doubted

#: What notes of databases say, which must be read as long as there are such databases.
STORED = {
    "many held-out rows are exact copies of fitted ones: pass groups=": Facts(has_copies=True),
    "items with other inputs than in earlier epochs": Facts(has_other_inputs=True),
    "parameters as before the training": Facts(is_untrained=True),
    "the labels are numbers (see r2)": Facts(are_numbers=True),
    "labels no. 2 of this name": Facts(number=2),
    "labels no. 1234 of this name": Facts(number=1234),
    "rows of 2 of 10 classes (0, 1)": Facts(classes=SomeClasses(2, 10, "0, 1")),
    "rows of 1,200 of 20,000 classes (a, b, …)": Facts(classes=SomeClasses(1200, 20000, "a, b, …")),
    "labels are perhaps of other rows: the order of the dataset changed": Facts(
        doubts=("the order of the dataset changed",)
    ),
    "labels are perhaps of other rows": Facts(doubts=("",)),
}
counts = st.integers(0, 10**6)
#: Names with what notes consist of, as a user may give them to runs, layers and classes.
names = st.lists(st.sampled_from(["; ", ";", " ", "'", "(", ")", ", ", "a", "7", *STORED]), max_size=6).map(
    "".join
)
plain = names.map(within)
facts = st.builds(
    Facts,
    number=st.integers(1, 10**6),
    classes=st.none()
    | st.builds(
        SomeClasses,
        counts,
        counts,
        plain.map(lambda name: name.replace("(", " ").replace(")", " ")),
        st.sampled_from(["", "0a1b2c"]),
    ),
    doubts=st.lists(plain, max_size=2).map(tuple),
    **{name: st.booleans() for name in ("has_copies", "has_other_inputs", "is_untrained", "are_numbers")},
)
others = st.lists(plain.map("with {}".format) | st.sampled_from(["", "matched 3 of 4 labels"]), max_size=3)


@pytest.mark.parametrize(("note", "expected"), STORED.items(), ids=str)
def test_notes_of_databases_are_read(note, expected):
    assert Facts.of(note) == expected
    assert Facts.of(f"order not verified; {note}; incomplete: 3 of 4") == expected
    assert expected.note == note


@given(facts, others, others)
def test_facts_that_are_written_are_read_back_beside_other_remarks(written, before, after):
    assert Facts.of(written.note) == written
    assert Facts.of(joined(*before, written.note, *after)) == written


@given(facts, facts)
def test_facts_of_joined_notes_are_those_of_each(one, other):
    """A note of two scorers has what either says; the later labels count where both name some."""
    found = Facts.of(joined(one.note, other.note))
    for field in fields(Facts):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, bool):
            expected = mine or theirs
        elif field.name == "doubts":
            expected = mine + theirs
        else:
            expected = mine if theirs == field.default else theirs
        assert getattr(found, field.name) == expected


@given(facts, names)
def test_name_inside_a_remark_states_no_fact(written, name):
    for remark in (
        f"with {within(name)}",
        f"labels registered during {within(name)!r}, perhaps of other data",
    ):
        assert remarks(remark) == [remark]
        assert Facts.of(joined(remark, written.note)) == written


@given(facts, names)
def test_doubt_with_any_reason_is_one_doubt(written, reason):
    found = Facts.of(replace(written, doubts=(reason,)).note)
    assert found == replace(written, doubts=(within(reason),))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_score_has_each_doubt_once(epochs):
    """Before, a doubt was left out if its words were part of another's, as those of epoch 1 of epoch 12."""
    doubts = [Doubt(Facts(doubts=(f"seen in epoch {epoch}",)).note) for epoch in epochs]
    of = {"address": "", "target": "y", "score": "r2", "epoch": 0, "mode": "", "training": None, "step": -1}
    columns = {name: [value] for name, value in of.items()}
    columns |= {name: [0.5] for name in ("value", "low", "high", "baseline", "n", "p")} | {"note": ["as is"]}
    for doubt in doubts:
        columns = doubted(columns, [doubt])
    assert doubted(columns, doubts) == columns
    found = Facts.of(columns["note"][0]).doubts
    assert sorted(found) == sorted({f"seen in epoch {epoch}" for epoch in epochs})


def test_doubt_of_scores_with_a_remark_is_not_of_those_that_name_it():
    doubt = Doubt("withdrawn", withdraw=True, of="not verified")
    of = "fc", "y", "r2", 0.0, "train", None
    assert doubt.concerns(*of, "not verified; labels no. 2 of this name")
    assert not doubt.concerns(*of, "labels registered during 'not verified', perhaps of other data")
