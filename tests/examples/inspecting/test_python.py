"""The character model of Python's standard library: the labels, and the answers by numpy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intus.examples.inspecting.python import WINDOW, label, new_reader, records


def test_labels_of_a_source():
    source = 'def f(self):  # a "comment"\n    return self.x[(1)] + "("\n'
    ideas = label(source)
    spelled = {
        name: "".join(np.array(list(source))[ideas[name]])
        for name in ("string", "comment", "keyword", "self")
    }
    assert spelled == {
        "string": '"("',
        "comment": '# a "comment"',
        "keyword": "defreturn",
        "self": "selfself",
    }
    assert ideas["bracket depth"][source.index("1")] == 2
    assert ideas["bracket depth"][-1] == 0


@pytest.fixture(scope="module")
def python(run_example):
    return run_example("python")


@pytest.mark.slow
def test_lstm_knows_more_than_the_character(python):
    summary = python.table("python-summary").set_index("idea")
    for idea in ("string", "bracket depth"):
        row = summary.loc[idea]
        assert row.q < 0.01
        assert abs(row["r lstm"]) > 2 * abs(row["r embed"])
        assert abs(row["r lstm"]) > 1.5 * abs(row["r untrained"])
        assert abs(row["r lstm"]) > 5 * row.baseline
        assert row["probe lstm"] > row["probe embed"] + 0.15
        assert row["probe lstm"] > row["probe untrained"] + 0.05
    assert (summary["probe lstm"] > summary["probe embed"]).all()


@pytest.mark.slow
def test_best_string_unit_equals_numpy(python):
    row = python.table("python-summary").set_index("idea").loc["string"]
    model = new_reader()
    model.load_state_dict(torch.load(python.folder / "reader.pt", weights_only=True)[-1])
    codes, ideas, _ = records()
    assert codes.shape[1] == WINDOW
    with torch.no_grad():
        unit = model.lstm(model.embed(torch.tensor(codes)))[0][..., int(row.unit)].numpy()
    labeled = ~np.isnan(ideas["string"])
    r = np.corrcoef(unit[labeled], ideas["string"][labeled])[0, 1]
    assert row["r lstm"] == pytest.approx(r, abs=1e-4)
    assert python.pictures()["python"] > 5000
