"""Examples of records that a model reads with padding at the start or at the end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from intus import inspect
from intus.inspection.followup.summaries import stored_examples
from intus.inspection.followup.unit_over import unit_over
from intus.inspection.followup.unit_reader import UnitReader
from intus.inspection.followup.unit_row import read_row

TEXTS = ["abc", "abcdefghij", "zb", "cab"] * 5


class SeesB(nn.Module):
    """An embedding whose unit is 5 at the letter b and 0 elsewhere, but 9 at padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 1)
        self.embedding.weight.data.zero_()
        self.embedding.weight.data[[2, 0], 0] = torch.tensor([5.0, 9.0])

    def forward(self, ids, attention_mask):
        return self.embedding(ids)


def encoder(side, extra):
    def encode(texts):
        width = max(map(len, texts)) + extra
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, text in enumerate(texts):
            part = slice(width - len(text), width) if side == "left" else slice(0, len(text))
            ids[row, part] = torch.tensor([ord(letter) - 96 for letter in text])
            mask[row, part] = 1
        return {"ids": ids, "attention_mask": mask}

    return encode


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("extra", [0, 6])
@pytest.mark.parametrize("side", ["left", "right"])
def test_examples_of_padded_records_mark_the_symbol_of_the_value(side, extra, as_list):
    data = [list(text) for text in TEXTS] if as_list else TEXTS
    hypothesis = {"b": lambda text: [letter == "b" for letter in text]}
    options = {"inputs": encoder(side, extra)}
    table = inspect(SeesB(), hypothesis, "correlation", data, "embedding", **options)
    assert table.value[0] == pytest.approx(1)
    found = table.examples(0, k=3)
    assert found.kind.value_counts().to_dict() == {"top": 3, "random": 3}  # it has no counter-examples
    for row in found.itertuples():
        marked = row.text.partition("»")[2].partition("«")[0]
        assert marked == TEXTS[row.record][row.position]
        assert (marked == "b") == row.label == (row.behavior == 5)
    unit = read_row(table, 0)
    _, stored = stored_examples(table.asked().plan, unit, found)
    for one in stored.examples:
        assert one.tokens == list(TEXTS[one.record])
        assert one.behavior == (5 if one.tokens[one.at] == "b" else 0)
        assert one.shades == [100 * (letter == "b") for letter in one.tokens]
        assert one.holds == [letter == "b" for letter in one.tokens]


@pytest.mark.parametrize("side", ["left", "right"])
def test_unit_over_a_padded_record_with_one_label(side):
    label = {"has z": [float("z" in text) for text in TEXTS]}
    table = inspect(SeesB(), label, "correlation", TEXTS, "embedding", inputs=encoder(side, 4))
    over = unit_over(UnitReader(table.asked().plan, read_row(table, 0)), 3)
    assert over.symbols == ["c", "a", "b"]
    assert over.values.tolist() == [0, 0, 5]
