"""Labels of tokens as lists of different lengths: those of a script that pads them with None itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from intus.core.errors import InputError
from intus.monitoring import flush, probe, register_targets
from intus.serving.run import Server
from intus.storage.database import Database

RANDOM = np.random.default_rng(0)
TEXTS = [torch.tensor(RANDOM.integers(1, 30, RANDOM.integers(3, 9))) for _ in range(120)]
TAGS = [(text % 3).tolist() for text in TEXTS]
NAMES = ("lists", "padded")


def padded(rows, filler):
    longest = max(map(len, rows))
    return [[*row, *[filler] * (longest - len(row))] for row in rows]


def batches():
    """Yield ids and inputs of shuffled batches, each padded to its longest text."""
    for ids in np.split(np.random.default_rng(1).permutation(120), 6):
        yield ids, torch.tensor(padded([TEXTS[number].tolist() for number in ids], 0))


class Tagger(nn.Module):
    def __init__(self, special=0):
        super().__init__()
        self.embed, self.out, self.special = nn.Embedding(30, 16), nn.Linear(16, 3), special

    def forward(self, tokens):
        tokens = torch.cat([tokens, tokens.new_zeros(len(tokens), self.special)], 1)
        return self.out(self.embed(tokens))


def scores(tmp_path, watch):
    with Database(tmp_path / "x.db") as database:
        points = database.points(watch.run, watch.model).where(score="linear_f1")
        found = {}
        for row in points:
            found.setdefault(row["target"], {})[row["address"]] = row["value"], row["n"]
        return found, [notice["text"] for notice in database.notices() if notice["code"] == "target_misfit"]


@pytest.mark.long
@pytest.mark.parametrize("way", ["items", "order of arrival"])
def test_own_passes(tmp_path, way):
    torch.manual_seed(0)
    model, order = Tagger(), [number for ids, _ in batches() for number in ids]
    tags = TAGS if way == "items" else [TAGS[number] for number in order]
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        place = server.host, server.port
        with probe(model, *place, budget=np.inf) as watch:
            assert register_targets(*place, name="lists", targets=tags)
            assert register_targets(*place, name="padded", targets=padded(tags, None))
            for ids, tokens in batches():
                if way == "items":
                    watch.items = ids
                model(tokens)
        assert flush(*place)
    found, misfits = scores(tmp_path, watch)
    assert found["lists"] == found["padded"]
    assert found["lists"]["embed"][0] > 0.95
    assert misfits == []


@pytest.mark.long
def test_probe_set(tmp_path):
    torch.manual_seed(0)
    model, inputs = Tagger(), torch.tensor(padded([text.tolist() for text in TEXTS], 0))
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        labels = {"lists": TAGS, "padded": padded(TAGS, None)}
        with probe(model, server.host, server.port, probe_set=(inputs, labels)) as watch:
            watch.run_probe_set()
        assert flush(server.host, server.port)
    found, misfits = scores(tmp_path, watch)
    assert found["lists"] == found["padded"]
    assert found["lists"]["embed"][0] > 0.95
    assert misfits == []


@pytest.mark.long
def test_tokens_that_have_no_label_are_not_guessed(tmp_path):
    model = Tagger(special=2)
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        place = server.host, server.port
        with probe(model, *place, budget=np.inf) as watch:
            assert register_targets(*place, name="lists", targets=TAGS)
            for watch.items, tokens in batches():
                model(tokens)
        assert flush(*place)
    found, misfits = scores(tmp_path, watch)
    assert "lists" not in found
    assert "which positions they belong to is not known" in misfits[0]


@pytest.mark.parametrize("mask", [[[1, 1, 1], [0, 1, 1]], [[1, 1, 1], [1, 1, 1]]])
def test_mask_that_contradicts_the_lists_is_refused(mask, unused_port):
    inputs = {"tokens": torch.ones(2, 3, dtype=int), "attention_mask": torch.tensor(mask)}
    with pytest.raises(InputError, match="have 2 labels for row 1, but its attention_mask is"):
        probe(Tagger(), port=unused_port, probe_set=(inputs, {"tag": [[1, 2, 3], [1, 2]]}))
