"""Hypotheses that declare several names are rows of a query's relation H, for all and for some records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import intus
from intus.hypotheses import lag, masks, nesting, tokenize
from intus.inspection import inspect

TEXTS = ["def f(a): return (a)", "x = (1, [2, 'three'])", "print((((1))))  # four", "a = 'b'"] * 10


def encode(texts):
    return torch.tensor([[ord(c) for c in text.ljust(24)] for text in texts])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(128, 3))


def select(model, hypotheses, where):
    text = f"""
    SELECT S.h, S.unit, S.unit_score INSPECT U.uid AND H.h USING correlation OVER D.seq AS S
    FROM models M, units U, hypotheses H, inputs D WHERE M.mid = U.mid AND {where} ORDER BY S.h, S.unit
    """
    return intus.query(text, models=model, hypotheses=hypotheses, data=TEXTS, inputs=encode)


def test_declared_names_are_hypotheses_and_share_a_parse(model):
    asked = []

    def tokens(text):
        asked.append(text)
        return [("digit" if c.isdigit() else "other", i, i + 1) for i, c in enumerate(text)]

    given = [tokenize(tokens, ["digit", "other"], name="t"), nesting("(", ")"), tokenize()]
    answer = select(model, given, "H.name IN ('digit', 'other', 'depth', 'comment')")
    assert asked == TEXTS
    want = inspect(model, given, "correlation", TEXTS, "0", inputs=encode)
    for row in answer.itertuples():
        same = want[(want.target == row.h) & (want.unit == row.unit)]
        assert row.unit_score == pytest.approx(same.value.iloc[0], abs=1e-9)
    assert answer.h.unique().tolist() == ["comment", "depth", "digit", "other"]


def test_numbered_hypotheses_of_some_records(model):
    """Labels with a kind, of a table and lagged over records, for the records 8 to 19."""
    labels = np.random.default_rng(0).integers(0, 2, size=(40, 24))
    frame = pd.DataFrame({"even": np.arange(40) % 2, "long": [len(text) for text in TEXTS]})
    given = {
        "m": intus.hypothesis(kind="binary")(labels),
        "next": lag(labels, 1, over=TEXTS),
        "table": frame,
        "mask": masks(lambda text: np.array([c == "a" for c in text.ljust(24)])),
    }
    answer = select(model, given, "D.did >= 8 AND D.did < 20")
    assert sorted(answer.h.unique()) == ["even", "long", "m", "mask", "next"]
    part = {"m": labels[8:20], "next": labels[9:21], "even": frame["even"][8:20], "long": frame["long"][8:20]}
    want = inspect(model, part, "correlation", TEXTS[8:20], "0", inputs=encode)
    for row in want.itertuples():
        same = answer[(answer.h == row.target) & (answer.unit == row.unit)]
        assert same.unit_score.iloc[0] == pytest.approx(row.value, abs=1e-9)
