"""inspect on sequences: recurrent layers, a transformer, ragged texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from intus.core.errors import InputError
from intus.inspection import inspect

TEXTS = ["def f(a): return (a)", "x = (1, (2, 3))", "print((((1))))", "no brackets here", "(a)(b)(c)"] * 12


def encode(texts):
    length = max(map(len, texts))
    return torch.tensor([[ord(c) % 64 for c in text.ljust(length)] for text in texts])


def depth(text):
    """Return the nesting depth of parentheses at each character."""
    return np.cumsum([(c == "(") - (c == ")") for c in text])


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=batch_first)

    def forward(self, ids):
        x = self.embed(ids)
        return self.lstm(x if self.lstm.batch_first else x.transpose(0, 1))[0]


@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layer_with_ragged_texts(batch_first):
    torch.manual_seed(0)
    model = Recurrent(batch_first).eval()
    frame = inspect(model, depth, "correlation", TEXTS, [("lstm", "*")], inputs=encode, batch=20)
    assert frame.unit.tolist() == list(range(12))
    units, truth = [], []
    for start in range(0, len(TEXTS), 20):
        out = model(encode(TEXTS[start : start + 20])).detach().numpy()
        out = out if batch_first else out.transpose(1, 0, 2)
        for values, text in zip(out, TEXTS[start : start + 20], strict=True):
            units.append(values[: len(text)])
            truth.append(depth(text))
    units, truth = np.concatenate(units), np.concatenate(truth)
    assert frame.n.tolist() == [len(truth)] * 12
    for unit in range(12):
        want = stats.pearsonr(units[:, unit].astype(float), truth).statistic
        assert frame.value[unit] == pytest.approx(want, abs=1e-5)


def test_transformer_with_keyword_inputs():
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2Model(config)
    ids = np.random.default_rng(0).integers(0, 64, size=(80, 10))

    def is_low(record):
        return record < 20

    frame = inspect(
        model,
        [is_low],
        ["correlation", "linear_accuracy"],
        ids,
        ["wte", "h.0", "h.*.mlp.c_fc"],
        inputs=lambda records: {"input_ids": torch.tensor(np.stack(records))},
    )
    assert frame.address.drop_duplicates().tolist() == ["wte", "h.0", "h.0.mlp.c_fc", "h.1.mlp.c_fc"]
    assert (frame[frame.unit >= 0].n == 800).all()
    assert frame[frame.address == "h.1.mlp.c_fc"].unit.max() == 255
    embedding = model.wte(torch.tensor(ids)).detach().numpy().reshape(-1, 64)
    got = frame[(frame.address == "wte") & (frame.unit == 5)].value.iloc[0]
    want = stats.pearsonr(embedding[:, 5].astype(float), (ids < 20).reshape(-1)).statistic
    assert got == pytest.approx(want, abs=1e-6)
    probe = frame[(frame.address == "h.0") & (frame.unit == -1)].iloc[0]
    assert probe.low > probe.baseline > 0.5


def test_string_labels_with_missing_ones():
    torch.manual_seed(0)
    frame = inspect(
        Recurrent(True),
        {"kind": lambda text: ["bracket" if c in "()" else None if c == " " else "other" for c in text]},
        "linear_accuracy",
        TEXTS,
        "embed",
        inputs=encode,
    )
    assert frame.value.iloc[0] > 0.9 > frame.baseline.iloc[0] + 0.1
    every = sum(c != " " for text in TEXTS for c in text)
    assert 0.1 * every < frame.n.iloc[0] < 0.4 * every


def test_second_call_of_a_module():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(4, 4)

        def forward(self, x):
            return self.step(torch.relu(self.step(x)))

    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(float)
    model = Twice()
    frame = inspect(model, {"y": y}, "correlation", x, ["step", "step:2"])
    assert frame.address.drop_duplicates().tolist() == ["step", "step:2"]
    with torch.no_grad():
        out = model(torch.from_numpy(x)).numpy()
    got = frame[(frame.address == "step:2") & (frame.unit == 1)].value.iloc[0]
    assert got == pytest.approx(stats.pearsonr(out[:, 1].astype(float), y).statistic, abs=1e-6)


def test_conv1d_channels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1))
    x = np.random.default_rng(0).normal(size=(40, 1, 9)).astype(np.float32)
    frame = inspect(model, lambda record: record[0] > 0, "correlation", x, "0")
    assert frame.unit.tolist() == [0, 1, 2]
    with torch.no_grad():
        out = model(torch.from_numpy(x)).numpy()
    want = stats.pearsonr(out[:, 2].reshape(-1).astype(float), (x > 0).reshape(-1)).statistic
    assert frame.value[2] == pytest.approx(want, abs=1e-6)


def test_labels_of_other_length_are_refused():
    text = ["abcdef"] * 8
    with pytest.raises(
        InputError, match=r"shape \(3,\) per record, but 'lstm' has positions of shape \(6,\)"
    ):
        inspect(Recurrent(True), lambda t: np.zeros(3), "correlation", text, "lstm", inputs=encode)


@pytest.mark.parametrize("first", [True, False])
def test_as_many_records_as_positions(first):
    """The pass of a single record tells which axis the records are on."""

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 5)

        def forward(self, x):  # (records, positions, 3), or positions first
            return self.layer(x if first else x.transpose(0, 1))

    torch.manual_seed(0)
    net, x = Plain(), torch.randn(12, 6, 3)
    label = np.random.default_rng(0).random((12, 6))
    table = inspect(net, {"h": label}, "correlation", x, "layer", batch=6)  # 6 records of 6 positions
    outputs = net.layer(x).detach().reshape(72, 5).numpy()
    expected = [np.corrcoef(outputs[:, unit], label.reshape(-1))[0, 1] for unit in range(5)]
    np.testing.assert_allclose(table.value, expected, atol=1e-6)
