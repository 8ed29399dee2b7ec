"""Layers that return packed items, or several tensors: what is recorded of them, and what is said."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from intus.core.errors import InputError
from intus.monitoring import flush, probe
from intus.serving.run import Server
from intus.storage.database import Database

RANDOM = np.random.default_rng(0)
TEXTS = [torch.tensor(RANDOM.integers(1, 30, RANDOM.integers(1, 9))) for _ in range(120)]
LENGTHS = torch.tensor([len(text) for text in TEXTS])
TOKENS = nn.utils.rnn.pad_sequence(TEXTS, batch_first=True)


class Tagger(nn.Module):
    """Runs a recurrent layer on packed items, which are in another order than the batch inside of it."""

    def __init__(self, cell=nn.LSTM, *, batch_first=True, packs=True):
        super().__init__()
        self.packs = packs
        self.embed, self.first = nn.Embedding(30, 16), batch_first
        self.rnn, self.out = cell(16, 8, batch_first=batch_first), nn.Linear(8, 3)

    def forward(self, tokens, lengths):
        x = self.embed(tokens if self.first else tokens.T)
        if not self.packs:
            return self.out(self.rnn(x)[0])
        packed = pack_padded_sequence(x, lengths, batch_first=self.first, enforce_sorted=False)
        made, _ = self.rnn(packed)
        return self.out(pad_packed_sequence(made, batch_first=True)[0])


def recorded(model, port, *inputs, **options):
    """Return the records of a call of a model, by address and kind, and the notices."""
    with probe(model, port=port, structure=False, budget=np.inf, **options) as watch:
        gathered, told = {}, []
        sender, troubles = watch._tap.sender, watch._tap.troubles
        own, inform = sender.gather, troubles.inform
        sender.gather = lambda record, *rest: (
            gathered.update({(record.address, record.kind): record}),
            own(record, *rest),
        )[1]
        troubles.inform = lambda code, text, level="info": (
            told.append((code, text)),
            inform(code, text, level),
        )[1]
        made = model(*inputs)
        if any(kind.startswith("grad") for kind in options.get("kinds", ())):
            made.square().sum().backward()
        watch.epoch = 1
        sender.gather = own
    return gathered, dict(told)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("first", [True, False])
def test_packed_output_is_recorded_as_torch_unpacks_it(cell, first, unused_port):
    torch.manual_seed(0)
    model = Tagger(cell, batch_first=first)
    kept = {}
    model.rnn.register_forward_hook(lambda module, given, made: kept.update(given=given[0], made=made[0]))
    records, told = recorded(model, unused_port, TOKENS, LENGTHS, kinds=("output", "input"))
    for kind, packed in (("output", kept["made"]), ("input", kept["given"])):
        judge = pad_packed_sequence(packed, batch_first=True)[0].detach().numpy()
        assert records["rnn", kind].batch_axis == 0
        assert np.array_equal(records["rnn", kind].array, judge)
    assert "'rnn'" in told["packed"]
    assert "pad_packed_sequence" in told["packed"]


def test_gradient_of_packed_output_has_the_order_of_the_batch(unused_port):
    torch.manual_seed(0)
    model, kept = Tagger(), {}

    def keep(module, given, made):
        made[0].data.retain_grad()
        kept["made"] = made[0]

    model.rnn.register_forward_hook(keep)
    records, _ = recorded(model, unused_port, TOKENS, LENGTHS, kinds=("grad_output",))
    judge = pad_packed_sequence(kept["made"]._replace(data=kept["made"].data.grad), batch_first=True)[0]
    assert np.array_equal(records["rnn", "grad_output"].array, judge.numpy())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.booleans())
def test_unpacked_items_are_the_items(lengths, is_sorted):
    from intus.backends.torch.captured_tensor import unpacked

    lengths = sorted(lengths, reverse=True) if is_sorted else lengths
    items = [torch.randn(length, 2) for length in lengths]
    packed = pack_padded_sequence(
        nn.utils.rnn.pad_sequence(items, batch_first=True), torch.tensor(lengths), True, is_sorted
    )
    rows = unpacked(packed)
    for row, item in zip(rows, items, strict=True):
        assert torch.equal(row[: len(item)], item)
        assert not row[len(item) :].any()


@pytest.mark.long
def test_labels_of_packed_tokens_belong_to_their_tokens(tmp_path):
    """A layer that reads from left to right gives the same for each token whether items are packed or not."""
    torch.manual_seed(0)
    model, judge = Tagger(), Tagger(packs=False)
    judge.load_state_dict(model.state_dict())
    probe_set = (TOKENS, LENGTHS), {"tag": [(text % 3).tolist() for text in TEXTS]}
    found, notices = [], []
    with Server(database=tmp_path / "x.db", port=0, scores="linear_f1") as server:
        for run, one in (("packed", model), ("padded", judge)):
            with probe(one, server.host, server.port, run=run, probe_set=probe_set) as watch:
                watch.run_probe_set()
        assert flush(server.host, server.port)
    with Database(tmp_path / "x.db") as database:
        for run in ("packed", "padded"):
            points = database.points(run, "Tagger").where(score="linear_f1", address="rnn")
            found.append([(row["target"], row["value"], row["n"]) for row in points])
            notices.append([one["text"] for one in database.notices() if one["run"] == run])
    ((target, value, n),), ((_, other, rows),) = found
    assert (target, n) == ("tag", rows)
    assert value == pytest.approx(other, abs=0.02)
    assert value > 0.5
    assert any("PackedSequence" in text for text in notices[0])
    assert not any("order of their own" in text for text in notices[0])


def test_probe_set_of_packed_items_is_refused(unused_port):
    packed = pack_padded_sequence(torch.randn(3, 4, 2), torch.tensor([4, 2, 1]), batch_first=True)
    with pytest.raises(InputError, match="PackedSequence"):
        probe(nn.LSTM(2, 3), port=unused_port, probe_set=((packed,), {"x": [0, 1, 0]}))


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...]


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        hidden = self.a(x)
        logits = self.b(hidden)
        return Output(logits.mean(), logits, (x, hidden))


def test_tensors_that_are_not_recorded_are_named(unused_port):
    x = torch.randn(5, 4)
    text = recorded(Several(), unused_port, x)[1]["parts"]
    assert "1 of 3 layers of Several return several tensors" in text
    assert "logits" in text
    assert "'loss', 'hidden.0' and 'hidden.1'" in text
    assert "'1.0' and '1.1'" in recorded(nn.Sequential(nn.LSTM(4, 3)), unused_port, x[None])[1]["parts"]
    assert recorded(nn.Sequential(nn.Linear(4, 3)), unused_port, x)[1] == {}


def test_packed_sequence_has_the_fields_that_are_used():
    assert PackedSequence._fields == ("data", "batch_sizes", "sorted_indices", "unsorted_indices")
