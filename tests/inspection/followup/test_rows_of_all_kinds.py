"""Rows about directions, twins, gradients and subwords: examples, verification, pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from intus import Directions, inspect
from intus.core.errors import InputError

DATA = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)


def first_is_positive(record):
    return record[0] > 0


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 2)
        with torch.no_grad():
            self.first.weight.copy_(torch.eye(6))
            self.first.bias.zero_()

    def forward(self, x):
        return self.second(self.first(x))


def test_direction_has_examples_and_no_ablation():
    matrix = np.array([[1.0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]])
    table = inspect(
        Small(), first_is_positive, "correlation", DATA, ("first", Directions(matrix, ["sum", "third"]))
    )
    row = table[~table.address.str.contains("random")].iloc[0]
    found = table.examples(row, k=3)
    values = DATA[:, :2].sum(axis=1)
    top = found[found.kind == "top"]
    size = values[top.record] / top.behavior.to_numpy()  # directions may be scaled to length 1
    assert top.record.tolist() == np.argsort(-values)[:3].tolist()
    assert size == pytest.approx(size[0], rel=1e-5)
    checked = table.verify(row, records=80)
    assert checked.perturbation.units == 2
    assert checked.perturbation.rank == 1
    assert checked.ablation is None
    assert "computed from a layer and cannot be replaced" in checked.notes[0]


def test_twin_is_found_by_its_name():
    model = Small()
    table = inspect(model, first_is_positive, "correlation", DATA, "first", twin=True)
    rows = table[(table.unit == 0)]
    assert rows.model.tolist() == ["Small", "Small (new)"]
    old, new = (table.examples(rows.iloc[at], k=5) for at in (0, 1))
    want = np.argsort(-DATA[:, 0])[:5].tolist()
    assert old[old.kind == "top"].record.tolist() == want
    assert new[new.kind == "top"].record.tolist() != want
    assert table.verify(rows.iloc[1], records=20).model == "Small (new)"


def test_gradients_are_read_and_activations_replaced():
    """The gradient of the output to a unit is constant, and ablation takes the mean of activations."""
    model = Small()

    def one(output):
        return output[:, 0]

    table = inspect(
        model, first_is_positive, "correlation", DATA, "first", behavior="activation*gradient", output=one
    )
    weight = float(model.second.weight[0, 0].detach())
    found = table.verify({"address": "first", "unit": 0, "target": "first_is_positive"}, records=100)
    assert found.ablation.mean == pytest.approx(DATA[:, 0].mean(), abs=1e-6)
    assert found.perturbation.rank == 1
    assert found.perturbation.flips.value * weight > 0
    top = table.examples(0, k=3)
    values = DATA[:, 0] * weight * (1 if weight > 0 else -1)
    assert top[top.kind == "top"].record.tolist() == np.argsort(-values)[:3].tolist()


class Words(nn.Module):
    """Subwords of two letters; unit 1 is 1 for the subword "ab"."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 3)
        with torch.no_grad():
            self.embed.weight[:, 1] = 0
            self.embed.weight[1, 1] = 1
            self.embed.weight[0] = 50  # padding, and the start of each record

    def forward(self, ids):
        return self.embed(ids)


IDS = {"ab": 1, "cd": 2, "e": 3}
TEXTS = [["abcd", "e"], ["cd", "abe", "cde"], ["e"], ["cdab", "ab", "e", "cd"]] * 12


def pieces(words):
    return [(number, word[at : at + 2]) for number, word in enumerate(words) for at in range(0, len(word), 2)]


def encode(records):
    rows = [[0, *(IDS[piece] for _, piece in pieces(words))] for words in records]
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def positions(words):
    return [None, *(number for number, _ in pieces(words)), *[None] * (9 - 1 - len(pieces(words)))]


def padded(records):
    ids = encode(records)
    return torch.nn.functional.pad(ids, (0, 9 - ids.shape[1]))


def has_ab(words):
    return ["ab" in word for word in words]


def test_words_of_subwords(tmp_path):
    table = inspect(Words(), has_ab, "correlation", TEXTS, "embed", inputs=padded, symbols=positions)
    row = table[table.unit == 1].iloc[0]
    found = table.examples(row, k=48)
    tops = found[found.kind == "top"]
    of_last = tops[tops.record == 3].iloc[0]
    assert (of_last.position, of_last.behavior, of_last.text) == (1, 1.0, "cdab »ab« e cd")
    assert tops[tops.record == 0].iloc[0].behavior == 0.5  # the mean of two subwords
    checked = table.verify(row, records=60)
    assert checked.perturbation.rank == 1
    assert checked.perturbation.excess.low > 0.4
    # "ab" and "abcd" have the same label, and the unit is 1 and .5 there.
    assert 0 <= checked.perturbation.baseline.value < 0.2
    subwords = [piece for words in TEXTS for _, piece in pieces(words)]
    assert checked.ablation is not None
    assert checked.ablation.mean == pytest.approx(np.mean([piece == "ab" for piece in subwords]))
    axis = table.draw_unit(row, 3, path=tmp_path / "words.png").axes[0]
    assert [text.get_text() for text in axis.texts] == TEXTS[3]
    assert len(axis.lines) == 2  # two of four words are underlined


def test_symbols_given_as_lists_are_refused_for_changed_records():
    given = [positions(words) for words in TEXTS]
    table = inspect(Words(), has_ab, "correlation", TEXTS, "embed", inputs=padded, symbols=given)
    with pytest.raises(InputError, match="symbols was given as a list for each record"):
        table.verify(1)
    assert table.verify(1, tests="ablation").ablation is not None


def test_row_of_a_model_that_was_trained_since(images, seven):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    table = inspect(model, {"seven": seven}, "correlation", images, "1")
    assert len(table.examples(0, k=1))
    with torch.no_grad():
        model[1].weight.zero_()
    with pytest.raises(InputError, match="weights of the model have changed since the table was made"):
        table.examples(0, k=1)


def test_number_of_a_row_is_its_label(linear, images, seven):
    table = inspect(linear, {"seven": seven}, "correlation", images, "1")
    part = table[table.unit >= 2]
    label = part.value.idxmax()
    pd.testing.assert_frame_equal(part.examples(label, k=2), table.examples(table.loc[label], k=2))
    with pytest.raises(InputError, match="row=0 labels 0 rows of the table's index"):
        part.examples(0)
