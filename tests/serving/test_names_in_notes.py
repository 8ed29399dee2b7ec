"""Notes of scores with names of runs, layers and classes that read like other notes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from serving_help import point, record, target_of

import intus
from intus.core.notes import Facts
from intus.monitoring import flush, probe
from intus.serving.aggregation.window import absent
from intus.serving.evaluation.targets import coverage
from intus.serving.run import Server

NOTES = (
    "labels no. 7 of this name",
    "rows of 2 of 3 classes (a, b)",
    "items with other inputs than in earlier epochs",
    "parameters as before the training",
    "many held-out rows are exact copies of fitted ones: pass groups=",
    "the labels are numbers (see r2)",
    "labels are perhaps of other rows: mine",
)
names = st.lists(st.sampled_from(["; ", ";", "'", "a", ", ", *NOTES]), min_size=1, max_size=5).map("".join)


@given(st.lists(names, min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_labels_that_were_registered_during_other_runs_have_no_facts_of_their_names(runs, number, in_order):
    """Before, a run named "a; labels no. 7 of this name" gave others such labels."""
    facts = {"name": "y", "targets": [0, 1, 0, 1], "during": runs, "number": number}
    of_point = point(record(4, items=None if in_order else np.arange(4)))
    assert Facts.of(coverage(target_of(facts), of_point)) == Facts(number=number)


@given(st.lists(names, min_size=1, max_size=7))
def test_missing_layers_have_no_facts_of_their_names(layers):
    assert (
        Facts.of(point(record(), lacks=absent(dict(zip(layers, reversed(layers), strict=True)))).doubt)
        == Facts()
    )


@given(st.lists(names | st.text(max_size=30), min_size=12, max_size=24, unique=True), st.data())
def test_classes_of_rows_are_the_same_where_their_notes_are(classes, data):
    """Before, rows of nine of ten classes had the same note whether they lacked the ninth or the tenth."""
    assume(not any("\0" in name for name in classes))
    some = st.sets(st.sampled_from(range(len(classes))), min_size=1, max_size=len(classes) - 1)
    kept = [data.draw(some) for _ in range(2)]
    labels = np.repeat(np.arange(len(classes)), 40)
    target = target_of({"name": "y", "targets": [classes[code] for code in labels]})
    found = []
    for one in kept:
        items = np.flatnonzero(np.isin(labels, list(one)))
        of_rows = Facts.of(coverage(target, point(record(len(items), items=items))))
        assert of_rows == Facts(classes=of_rows.classes)
        if len(items) >= len(labels) / 4:  # as many at random would have ten of each class
            assert of_rows.classes is not None
            assert (of_rows.classes.known, of_rows.classes.every) == (len(one), len(classes))
            found.append((of_rows.classes, one))
    if len(found) == 2:
        (mine, codes), (theirs, other_codes) = found
        assert (mine == theirs) == (codes == other_codes)


@pytest.mark.parametrize("name", ["plain", "labels are perhaps of other rows"])
def test_rise_is_found_whatever_an_earlier_run_is_called(tmp_path, name):
    """Before, nothing was found of a run whose labels were registered during one of the second name."""
    rows = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    labels = (rows[:, 0] > 0).long()
    with Server(database=tmp_path / "runs.db", port=0) as server:
        where = server.host, server.port
        model = torch.nn.Linear(6, 6)
        with probe(model, *where, run=name, budget=float("inf"), block=True):
            intus.register_targets(*where, name="y", targets=labels)
        with probe(model, *where, run="later", budget=float("inf"), block=True) as watch:
            for watch.epoch in range(4):
                watch.items = np.arange(300)
                with torch.no_grad():
                    model(rows if watch.epoch > 1 else torch.randn_like(rows))
        assert flush(*where)
    run = intus.runs(tmp_path / "runs.db")["later"]
    notes = run.scores(target="y", score="linear_f1")["note"]
    assert notes.str.contains("labels registered during").all()
    assert [(each.kind, each.epoch) for each in run.findings()] == [("risen", 2)]
